/* engine/checkpoint/weights: every layout of names gives the same rows; tensors that do not fit the configuration are
 * refused by name; checkpoints of the golden tests open. */
#include <dirent.h>

#include "base/macros.h"
#include "tests/checkpoint_copy.h"
#include "tests/golden/next_rows.h"

/* Changes copies of the checkpoint "moe": Qwen3.5-MoE, packed experts, one file. */
TEST(names)
{
	struct model_config c = parse(config_moe), tied = parse(config_tied);
	struct weights *w, *base;
	struct err e = {0};
	char name[TENSOR_NAME_MAX + 1];
	struct tensor *t;
	struct copy *k;

	if (!ok(open_weights(scratch_path("moe"), &c, &base, &e) == 0, "opens %s", e.text))
		return;

	k = copy_open(scratch_path("moe"));
	for (size_t i = 0; i < k->n; i++) {
		if (strncmp(k->names[i], "model.", 6) != 0)
			continue;
		snprintf(name, sizeof(name), "model.language_model.%s", k->names[i] + 6);
		copy_rename(k, k->names[i], name);
	}
	copy_add(k, "model.visual.blocks.0.norm.weight", "BF16", 1, (uint64_t[]){3}, NULL);
	copy_add(k, "mtp.fc.weight", "F16", 1, (uint64_t[]){3}, NULL);
	expect_same(k, &c, base, "model.language_model., beside a vision tower and an MTP head");
	for (size_t i = 0; i < k->n; i++) {
		if (strncmp(k->names[i], "model.language_model.", 21) != 0)
			continue;
		snprintf(name, sizeof(name), "language_model.model.%s", k->names[i] + 21);
		copy_rename(k, k->names[i], name);
	}
	copy_rename(k, "lm_head.weight", "language_model.lm_head.weight");
	copy_rename(k, "model.visual.blocks.0.norm.weight", "visual.blocks.0.norm.weight");
	expect_same(k, &c, base, "language_model.model.");
	t = copy_find(k, "language_model.model.layers.0.linear_attn.A_log");
	t->n_dims = 2;
	t->shape[1] = t->shape[0];
	t->shape[0] = 1;
	expect_same(k, &c, base, "a vector with a leading dimension of 1");

	/* Three tensors for each expert, as many checkpoints have them. */
	k = copy_open(scratch_path("moe"));
	for (uint32_t layer = 0; layer < c.n_layers; layer++) {
		size_t bytes = 2ul * c.expert_size * c.hidden_size;

		for (int p = 0; p < 3; p++) {
			snprintf(name, sizeof(name), "model.layers.%u.mlp.experts.%s", layer,
				 p < 2 ? "gate_up_proj" : "down_proj");
			t = copy_find(k, name);
			for (uint32_t x = 0; x < c.n_experts; x++) {
				char *data = malloc(bytes);
				uint64_t shape[2] = {p < 2 ? c.expert_size : c.hidden_size,
						     p < 2 ? c.hidden_size : c.expert_size};

				memcpy(data,
				       (const char *)t->data +
					       (p < 2 ? 2 * x + (uint32_t)p : x) * bytes,
				       bytes);
				snprintf(name, sizeof(name),
					 "model.layers.%u.mlp.experts.%u.%s_proj.weight", layer, x,
					 p == 0	  ? "gate"
					 : p == 1 ? "up"
						  : "down");
				copy_add(k, name, "BF16", 2, shape, data);
			}
		}
		snprintf(name, sizeof(name), "model.layers.%u.mlp.experts.gate_up_proj", layer);
		copy_remove(k, name);
		snprintf(name, sizeof(name), "model.layers.%u.mlp.experts.down_proj", layer);
		copy_remove(k, name);
	}
	expect_same(k, &c, base, "one tensor an expert");
	copy_remove(k, "model.layers.2.mlp.experts.4.up_proj.weight");
	expect_missing(k, &c, "model.layers.2.mlp.experts.4.up_proj.weight",
		       "an expert without its up projection");

	/* Tied, with and without a head of its own. */
	k = copy_open(scratch_path("moe"));
	expect_wrong(k, &tied, -EINVAL, "lm_head.weight",
		     "differs from the embedding, but config.json has tie_word_embeddings",
		     "a tied model with a different head");
	memcpy((void *)copy_find(k, "lm_head.weight")->data,
	       copy_find(k, "model.embed_tokens.weight")->data,
	       copy_find(k, "lm_head.weight")->bytes);
	ok(copy_weights(k, &tied, &w, &e) == 0, "a tied model with the same head %s", e.text);
	copy_remove(k, "lm_head.weight");
	if (ok(copy_weights(k, &tied, &w, &e) == 0, "a tied model without a head %s", e.text)) {
		static float a[64], b[64];

		for (uint64_t row = 0; row < tied.vocab_size; row++) {
			weights_row(w, WEIGHT_LM_HEAD, 0, 0, row, false, a);
			weights_row(base, WEIGHT_EMBED, 0, 0, row, false, b);
			check(!memcmp(a, b, tied.hidden_size * sizeof(*a)));
		}
		ok_all("its head is the embedding");
	}
	expect_error(k, &c, -ENOENT,
		     ": tensor lm_head.weight is missing and config.json does not tie it to the "
		     "embedding",
		     "no head and not tied");
}

#define NO_PLACE "has no place in the model of config.json"

TEST(refused)
{
	struct model_config c = parse(config_moe), other;
	struct copy *k = copy_open(scratch_path("moe"));
	struct weights *base = make(7, &c);
	struct tensor *t;
	char name[TENSOR_NAME_MAX + 1];

	t = copy_add(k, "model.layers.3.self_attn.q_proj.bias", "BF16", 1, (uint64_t[]){4}, NULL);
	expect_wrong(k, &c, -EINVAL, "model.layers.3.self_attn.q_proj.bias", NO_PLACE, "a bias");
	snprintf(name, sizeof(name), "model.layers.3.self_attn.q_proj.weight_scale_inv");
	copy_rename(k, t->name, name);
	expect_wrong(k, &c, -EINVAL, "model.layers.3.self_attn.q_proj.weight",
		     "has dtype BF16, must have F8_E4M3", "FP8 scales of a weight that is not FP8");
	copy_rename(k, t->name, "model.layers.3.self_attn.q_proj.weight.absmax");
	expect_wrong(k, &c, -ENOTSUP, "model.layers.3.self_attn.q_proj.weight.absmax",
		     "belongs to weights that bitsandbytes has quantised, which is not supported",
		     "bitsandbytes");
	copy_rename(k, t->name, "model.layers.3.self_attn.q_proj.qweight");
	expect_missing(k, &c, "model.layers.3.self_attn.q_proj.scales", "GPTQ without scales");
	copy_rename(k, t->name, "model.layers.3.self_attn.k_proj.input_scale");
	expect_same(k, &c, base, "a scale of activations");
	copy_rename(k, t->name, "model.layers.4.input_layernorm.weight");
	expect_wrong(k, &c, -EINVAL, "model.layers.4.input_layernorm.weight", NO_PLACE,
		     "a layer too many");
	copy_remove(k, t->name);

	t = copy_find(k, "model.layers.3.self_attn.o_proj.weight");
	t->type = stored_type_find("I16");
	expect_wrong(k, &c, -ENOTSUP, "model.layers.3.self_attn.o_proj.weight",
		     "has dtype I16, in which weights are not supported", "whole numbers");
	t->type = stored_type_find("BF16");
	t->shape[0] = 64;
	t->shape[1] = 32;
	expect_wrong(k, &c, -EINVAL, "model.layers.3.self_attn.o_proj.weight",
		     "has shape [64, 32], but [32, 64] by config.json", "a transposed matrix");
	t->shape[0] = 32;
	t->shape[1] = 64;
	t = copy_find(k, "model.layers.0.linear_attn.conv1d.weight");
	t->n_dims = 2;
	t->shape[1] = 3;
	expect_wrong(k, &c, -EINVAL, "model.layers.0.linear_attn.conv1d.weight",
		     "has shape [256, 3], but [256, 1, 3] by config.json",
		     "a convolution without its middle");
	t->n_dims = 3;
	t->shape[1] = 1;

	other = c;
	other.n_experts = 6;
	expect_wrong(k, &other, -EINVAL, "model.layers.0.mlp.gate.weight",
		     "has shape [5, 32], but [6, 32] by config.json", "another number of experts");
	other = c;
	other.conv_kernel = 4;
	expect_wrong(k, &other, -EINVAL, "model.layers.0.linear_attn.conv1d.weight",
		     "has shape [256, 1, 3], but [256, 1, 4] by config.json",
		     "another convolution");
	other = c;
	other.layers[0].mixer = LAYER_ATTENTION;
	expect_missing(k, &other, "model.layers.0.self_attn.q_proj.weight",
		       "another kind of layer");
	other = c;
	other.n_layers = 5;
	expect_missing(k, &other, "model.layers.4.input_layernorm.weight", "a layer too few");

	copy_remove(k, "model.layers.1.mlp.experts.down_proj");
	expect_missing(k, &c, "model.layers.1.mlp.experts.down_proj",
		       "packed experts without their half");
	copy_remove(k, "model.norm.weight");
	expect_missing(k, &c, "model.norm.weight", "no final norm");
	copy_remove(k, "model.embed_tokens.weight");
	expect_missing(k, &c, "model.embed_tokens.weight", "no embedding");
}

/* Fills each row of a tensor with the number of the row, as f32. */
static void number_rows(struct tensor *t)
{
	float *rows = malloc(2 * t->bytes);

	for (uint64_t i = 0; i < t->bytes / 2; i++)
		rows[i] = (float)(i / t->shape[1]);
	free((void *)(uintptr_t)t->data);
	t->data = rows;
	t->bytes *= 2;
	t->type = stored_type_find("F32");
}

static void check_rows(const struct weights *w, enum weight_role role, const int *want, size_t n)
{
	float row[32];

	for (size_t i = 0; i < n; i++) {
		weights_row(w, role, 0, 0, i, false, row);
		for (int k = 0; k < 32; k++)
			check(row[k] == (float)want[i]);
	}
}

/* Qwen3-Next's interleaved rows, compared with those of transformers. */
TEST(interleaved)
{
	struct model_config c = parse(config_next);
	struct copy *k = copy_open(scratch_path("next"));
	struct weights *w;
	struct err e = {0};

	number_rows(copy_find(k, "model.layers.0.linear_attn.in_proj_qkvz.weight"));
	number_rows(copy_find(k, "model.layers.0.linear_attn.in_proj_ba.weight"));
	if (ok(copy_weights(k, &c, &w, &e) == 0, "opens %s", e.text)) {
		check_rows(w, WEIGHT_DELTA_QKV, next_qkv_rows, ARRAY_SIZE(next_qkv_rows));
		ok_all("q | k | v are the rows that transformers takes");
		check_rows(w, WEIGHT_DELTA_Z, next_z_rows, ARRAY_SIZE(next_z_rows));
		ok_all("z");
		check_rows(w, WEIGHT_DELTA_B, next_b_rows, ARRAY_SIZE(next_b_rows));
		ok_all("b");
		check_rows(w, WEIGHT_DELTA_A, next_a_rows, ARRAY_SIZE(next_a_rows));
		ok_all("a");
	}
	copy_remove(k, "model.layers.0.linear_attn.in_proj_ba.weight");
	expect_missing(k, &c, "model.layers.0.linear_attn.in_proj_ba.weight",
		       "an interleaved layer without in_proj_ba");
}

/* lexis: the rows of weights have the bytes of the tensors with the published names. */
TEST(lexis)
{
	static const struct {
		enum weight_role role;
		uint32_t layer, expert;
		const char *tensor;
	} cases[] = {
		{WEIGHT_EMBED, 0, 0, "model.embed_tokens.weight"},
		{WEIGHT_LM_HEAD, 0, 0, "model.embed_tokens.weight"},
		{WEIGHT_FINAL_NORM, 0, 0, "model.norm.weight"},
		{WEIGHT_INPUT_NORM, 7, 0, "model.layers.7.input_layernorm.weight"},
		{WEIGHT_POST_NORM, 2, 0, "model.layers.2.post_attention_layernorm.weight"},
		{WEIGHT_DELTA_QKV, 1, 0, "model.layers.1.linear_attn.in_proj_qkv.weight"},
		{WEIGHT_DELTA_Z, 2, 0, "model.layers.2.linear_attn.in_proj_z.weight"},
		{WEIGHT_DELTA_B, 4, 0, "model.layers.4.linear_attn.in_proj_b.weight"},
		{WEIGHT_DELTA_A, 5, 0, "model.layers.5.linear_attn.in_proj_a.weight"},
		{WEIGHT_DELTA_CONV, 6, 0, "model.layers.6.linear_attn.conv1d.weight"},
		{WEIGHT_DELTA_A_LOG, 0, 0, "model.layers.0.linear_attn.A_log"},
		{WEIGHT_DELTA_DT_BIAS, 0, 0, "model.layers.0.linear_attn.dt_bias"},
		{WEIGHT_DELTA_NORM, 0, 0, "model.layers.0.linear_attn.norm.weight"},
		{WEIGHT_DELTA_OUT, 0, 0, "model.layers.0.linear_attn.out_proj.weight"},
		{WEIGHT_ATTN_Q, 3, 0, "model.layers.3.self_attn.q_proj.weight"},
		{WEIGHT_ATTN_K, 3, 0, "model.layers.3.self_attn.k_proj.weight"},
		{WEIGHT_ATTN_V, 7, 0, "model.layers.7.self_attn.v_proj.weight"},
		{WEIGHT_ATTN_O, 7, 0, "model.layers.7.self_attn.o_proj.weight"},
		{WEIGHT_ATTN_Q_NORM, 7, 0, "model.layers.7.self_attn.q_norm.weight"},
		{WEIGHT_ATTN_K_NORM, 3, 0, "model.layers.3.self_attn.k_norm.weight"},
		{WEIGHT_ROUTER, 4, 0, "model.layers.4.mlp.gate.weight"},
		{WEIGHT_EXPERT_GATE, 0, 31, "model.layers.0.mlp.experts.31.gate_proj.weight"},
		{WEIGHT_EXPERT_UP, 7, 0, "model.layers.7.mlp.experts.0.up_proj.weight"},
		{WEIGHT_EXPERT_DOWN, 3, 17, "model.layers.3.mlp.experts.17.down_proj.weight"},
		{WEIGHT_SHARED_GATE, 1, 0, "model.layers.1.mlp.shared_expert.gate_proj.weight"},
		{WEIGHT_SHARED_UP, 1, 0, "model.layers.1.mlp.shared_expert.up_proj.weight"},
		{WEIGHT_SHARED_DOWN, 1, 0, "model.layers.1.mlp.shared_expert.down_proj.weight"},
		{WEIGHT_SHARED_ROUTER, 6, 0, "model.layers.6.mlp.shared_expert_gate.weight"},
	};
	static float row[4096];
	const struct tensor *list;
	struct model_config c;
	struct safetensors *s;
	size_t n;
	struct weights *w;
	struct err e = {0};

	if (!ok(model_config_open("models/lexis", &c, &e) == 0 &&
			open_weights("models/lexis", &c, &w, &e) == 0,
		"lexis opens %s", e.text))
		return;
	if (!ok(safetensors_open("models/lexis", &s, &e) == 0, "its tensors too %s", e.text))
		return;
	list = safetensors_list(s, &n);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct tensor *t = tensor_find(list, n, cases[i].tensor);
		const struct weight *of = weights_find(w, cases[i].role, cases[i].layer);
		const uint16_t *bits = t ? t->data : NULL;
		uint64_t rows = of->rows, cols = of->cols;

		if (!ok(t && t->bytes == 2 * rows * cols, "%s", cases[i].tensor))
			continue;
		for (uint64_t r = 0; r < rows; r++) {
			check(!memcmp(weights_view(w, of->role, of->layer, cases[i].expert, r).data,
				      bits + r * cols, 2 * cols));
			weights_row(w, cases[i].role, cases[i].layer, cases[i].expert, r, false,
				    row);
			for (uint64_t k = 0; k < cols; k++) {
				uint16_t b;

				memcpy(&b, (const char *)bits + 2 * (r * cols + k), 2);
				check(row[k] == float_of_bf16(b));
			}
		}
		ok_all("its rows");
	}
	safetensors_close(s);
}

/* The checkpoints of the golden tests, which have the variants of published ones: all of them open. */
TEST(tiny)
{
	static const char dir[] = "tests/golden/tiny";
	struct dirent *entry;
	DIR *d = opendir(dir);
	int n = 0;

	if (!ok(d != NULL, "opens %s", dir))
		return;
	while ((entry = readdir(d))) {
		struct model_config c;
		struct weights *w;
		struct err e = {0};
		char path[512];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (model_config_open(path, &c, &e) < 0 || open_weights(path, &c, &w, &e) < 0) {
			printf("# %s\n", e.text);
			check(!"opens");
			continue;
		}
		n++;
	}
	closedir(d);
	ok_all("every one opens");
	is_int(n, 31, "there are 31");
}

int main(void)
{
	export_checkpoint(config_moe, "moe");
	export_checkpoint(config_next, "next");
	run_tests();
	return done();
}
