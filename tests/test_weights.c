/* engine/checkpoint/weights: every layout of names and every number format gives the same rows; tensors that do not fit
 * the configuration are refused by name; synthetic weights and their export. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/macros.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "engine/checkpoint/export.h"
#include "engine/checkpoint/synthetic.h"
#include "engine/checkpoint/types/float8.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"
#include "kernels/generic/synthetic.clh"
#include "tests/golden/next_rows.h"
#include "tests/quoted.h"
#include "tests/random.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* Small configurations; vocab_size x hidden_size is 65536, so that an embedding holds every 16-bit
 * number, and few sizes are equal, so that most mix-ups change a shape. */
#define COMMON                                                                                       \
	"'hidden_size':32,'num_hidden_layers':4,'vocab_size':2048,'num_attention_heads':4,"          \
	"'num_key_value_heads':2,'head_dim':16,'linear_num_key_heads':2,'linear_num_value_heads':6," \
	"'linear_key_head_dim':16,'linear_value_head_dim':32,'linear_conv_kernel_dim':3"
#define EXPERTS                                                                \
	",'num_experts':5,'num_experts_per_tok':2,'moe_intermediate_size':24," \
	"'shared_expert_intermediate_size':40"

static const char config_moe[] = "{'model_type':'qwen3_5_moe_text'," COMMON EXPERTS "}";
static const char config_tied[] =
	"{'model_type':'qwen3_5_moe_text','tie_word_embeddings':true," COMMON EXPERTS "}";
static const char config_dense[] =
	"{'model_type':'qwen3_5_text','intermediate_size':48," COMMON "}";
static const char config_next[] =
	"{'model_type':'qwen3_next','mlp_only_layers':[1],'intermediate_size':48," COMMON EXPERTS
	"}";

static const char config_unshared[] =
	"{'model_type':'qwen3_moe','mlp_only_layers':[1],'intermediate_size':48," COMMON EXPERTS
	"}";
static const char config_biased[] = "{'model_type':'qwen2','intermediate_size':48," COMMON "}";
static const char config_gemma[] =
	"{'model_type':'gemma3_text','intermediate_size':48,'sliding_window_pattern':3," COMMON "}";
static const char config_attention[] = "{'model_type':'qwen3','intermediate_size':48," COMMON "}";

static struct model_config parse(const char *json)
{
	struct model_config c;
	struct err e = {0};

	json = quoted(json);
	if (model_config_parse("config.json", json, strlen(json), NULL, 0, &c, &e) < 0) {
		printf("Bail out! %s\n", e.text);
		exit(1);
	}
	return c;
}

/* The weights and the checkpoint of a TEST are closed when it ends, in the reverse order of their registration.
 * Weights borrow their checkpoint, so the checkpoint is registered before them. */
static void close_weights(void *w)
{
	weights_close(w);
}

static void close_checkpoint(void *c)
{
	checkpoint_close(c);
}

static struct weights *make(uint64_t seed, const struct model_config *c)
{
	struct weight *table = layers_weights(c);
	struct weights *w;

	if (!table || weights_synthetic(seed, NULL, c, table, &w) < 0) {
		printf("Bail out! out of memory\n");
		exit(1);
	}
	free(table);
	after_test(close_weights, w);
	return w;
}

static int open_weights(const char *dir, const struct model_config *c, struct weights **ret,
			struct err *e)
{
	struct weight *table = layers_weights(c);
	struct checkpoint *from;
	int r = checkpoint_open(dir, &from, e);

	if (r == 0) {
		after_test(close_checkpoint, from);
		r = weights_open(from, c, table, ret, e);
	}
	if (r == 0)
		after_test(close_weights, *ret);
	free(table);
	return r;
}

/* Returns whether x and y have the same rows, more than 1000 elements in all. Both are for the configuration. */
static bool same_rows(const struct model_config *c, const struct weights *x,
		      const struct weights *y)
{
	static float a[4096], b[4096];
	uint64_t compared = 0, different = 0;

	for (uint32_t layer = 0; layer < c->n_layers; layer++) {
		for (int role = 0; role < WEIGHT_ROLES; role++) {
			const struct weight *s = weights_find(x, role, layer);

			for (uint32_t i = 0; s && i < s->experts; i++) {
				for (uint64_t row = 0; row < s->rows; row++) {
					weights_row(x, role, layer, i, row, false, a);
					weights_row(y, role, layer, i, row, false, b);
					compared += s->cols;
					different += memcmp(a, b, s->cols * sizeof(*a)) != 0;
				}
			}
		}
	}
	if (different)
		printf("# %llu rows differ\n", (unsigned long long)different);
	return compared > 1000 && !different;
}

/* A checkpoint in memory, to be changed and written again. */
struct copy {
	struct tensor t[512];
	char names[512][TENSOR_NAME_MAX + 1];
	size_t n;
};

static void copy_free(void *copy)
{
	struct copy *k = copy;

	for (size_t i = 0; i < k->n; i++)
		free((void *)k->t[i].data);
	free(k);
}

static struct copy *copy_open(const char *dir)
{
	struct copy *k = calloc(1, sizeof(*k));
	const struct tensor *list;
	struct safetensors *s;
	struct err e = {0};

	if (!k || safetensors_open(dir, &s, &e) < 0) {
		printf("Bail out! %s\n", e.text);
		exit(1);
	}
	list = safetensors_list(s, &k->n);
	for (size_t i = 0; i < k->n; i++) {
		void *data = malloc(list[i].bytes);

		memcpy(data, list[i].data, list[i].bytes);
		k->t[i] = list[i];
		k->t[i].data = data;
		snprintf(k->names[i], sizeof(k->names[i]), "%s", list[i].name);
		k->t[i].name = k->names[i];
	}
	safetensors_close(s);
	after_test(copy_free, k);
	return k;
}

static struct tensor *copy_find(struct copy *k, const char *name)
{
	for (size_t i = 0; i < k->n; i++)
		if (!strcmp(k->names[i], name))
			return &k->t[i];
	printf("Bail out! no tensor %s\n", name);
	exit(1);
}

static void copy_rename(struct copy *k, const char *name, const char *to)
{
	struct tensor *t = copy_find(k, name);

	snprintf(k->names[t - k->t], sizeof(k->names[0]), "%s", to);
}

static void copy_remove(struct copy *k, const char *name)
{
	size_t i = (size_t)(copy_find(k, name) - k->t);

	free((void *)k->t[i].data);
	k->n--;
	memmove(&k->t[i], &k->t[i + 1], (k->n - i) * sizeof(*k->t));
	memmove(k->names[i], k->names[i + 1], (k->n - i) * sizeof(k->names[0]));
	for (; i < k->n; i++)
		k->t[i].name = k->names[i];
}

/* Appends a tensor. Takes over `data`, which was allocated; NULL: zeros. */
static struct tensor *copy_add(struct copy *k, const char *name, const char *dtype, uint32_t n_dims,
			       const uint64_t *shape, void *data)
{
	struct tensor *t = &k->t[k->n];

	*t = (struct tensor){.name = k->names[k->n],
			     .n_dims = n_dims,
			     .type = stored_type_find(dtype)};
	t->bytes = t->type->bytes;
	for (uint32_t i = 0; i < n_dims; i++) {
		t->shape[i] = shape[i];
		t->bytes *= shape[i];
	}
	t->data = data ? data : calloc(1, t->bytes);
	snprintf(k->names[k->n++], sizeof(k->names[0]), "%s", name);
	return t;
}

static int give(size_t index, void *data, void *user, struct err *e)
{
	struct copy *k = user;

	memcpy(data, k->t[index].data, k->t[index].bytes);
	return 0;
}

/* Writes the copy to a directory "edited" and opens it as weights. */
static int copy_weights(struct copy *k, const struct model_config *c, struct weights **ret,
			struct err *e)
{
	mkdir(scratch_path("edited"), 0777);
	if (safetensors_write(scratch_path("edited/model.safetensors"), k->t, k->n, give, k, e) <
	    0) {
		printf("Bail out! %s\n", e->text);
		exit(1);
	}
	return open_weights(scratch_path("edited"), c, ret, e);
}

static void expect_same(struct copy *k, const struct model_config *c, const struct weights *want,
			const char *what)
{
	struct weights *w;
	struct err e = {0};

	if (!ok(copy_weights(k, c, &w, &e) == 0, "opens: %s %s", what, e.text))
		return;
	ok(same_rows(c, w, want), "the same rows: %s", what);
}

static void expect_error(struct copy *k, const struct model_config *c, int error,
			 const char *sentence, const char *what)
{
	struct weights *w;
	struct err e = {0};
	const char *text = e.text;

	is_int(copy_weights(k, c, &w, &e), error, "refused: %s", what);
	if (!strncmp(text, scratch_path("edited"), strlen(scratch_path("edited"))))
		text += strlen(scratch_path("edited"));
	is_str(text, sentence, "says so");
}

static void expect_missing(struct copy *k, const struct model_config *c, const char *tensor,
			   const char *what)
{
	char sentence[256];

	snprintf(sentence, sizeof(sentence), ": tensor %s is missing", tensor);
	expect_error(k, c, -ENOENT, sentence, what);
}

/* Expects an error about a tensor of the only file, model.safetensors. */
static void expect_wrong(struct copy *k, const struct model_config *c, int error,
			 const char *tensor, const char *says, const char *what)
{
	char sentence[512];

	snprintf(sentence, sizeof(sentence), "/model.safetensors: tensor %s %s", tensor, says);
	expect_error(k, c, error, sentence, what);
}

static void export_to(const struct weights *w, const struct model_config *c, const char *config,
		      const char *dir, uint64_t shard_bytes)
{
	struct err e = {0};

	ok(weights_export(w, c, quoted(config), dir, shard_bytes, &e) == 0, "exports %s", e.text);
}

/* Exports synthetic weights to a directory `name`, in files of up to shard_bytes (0: 4 GiB), and reads them back. */
static void round_trip(const char *json, const char *name, uint64_t shard_bytes)
{
	struct model_config c = parse(json), again;
	struct weights *w = make(7, &c), *back;
	struct err e = {0};

	export_to(w, &c, json, scratch_path(name), shard_bytes);
	if (ok(model_config_open(scratch_path(name), &again, &e) == 0, "its config.json reads %s",
	       e.text))
		ok(!memcmp(&again, &c, sizeof(c)), "and says the same");
	if (ok(open_weights(scratch_path(name), &c, &back, &e) == 0, "it opens %s", e.text))
		ok(same_rows(&c, w, back), "%s: every row comes back", name);
}

TEST(round_trips)
{
	round_trip(config_moe, "moe", 0);
	round_trip(config_moe, "moe-sharded", 50000);
	round_trip(config_tied, "tied", 0);
	round_trip(config_dense, "dense", 100000);
	round_trip(config_next, "next", 0);
	round_trip(config_attention, "attention", 0);
	round_trip(config_unshared, "unshared", 0);
	round_trip(config_biased, "biased", 0);
	round_trip(config_gemma, "gemma", 0);
}

/* Changes copies of the checkpoint "moe" that TEST(round_trips) has exported: Qwen3.5-MoE, packed experts, one file. */
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

/* The exact value of an f16 number, by its definition. */
static float half(unsigned bits)
{
	int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
	float f = exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
			   : ldexpf((float)fraction, -24);

	if (exponent == 31)
		f = fraction ? NAN : INFINITY;
	return bits >> 15 ? -f : f;
}

/* An embedding that holds each 16-bit number once, as f16 and as bf16; then one of other numbers, as f32. */
TEST(formats)
{
	struct model_config c = parse(config_moe);
	struct copy *k = copy_open(scratch_path("moe"));
	struct tensor *t = copy_find(k, "model.embed_tokens.weight");
	uint16_t *bits = (uint16_t *)(uintptr_t)t->data;
	struct weights *w;
	struct err e = {0};
	float out[32], *wide;
	uint16_t narrow[32];

	for (unsigned i = 0; i < 65536; i++)
		bits[i] = (uint16_t)i;
	for (int bf16 = 0; bf16 <= 1; bf16++) {
		t->type = stored_type_find(bf16 ? "BF16" : "F16");
		if (!ok(copy_weights(k, &c, &w, &e) == 0, "%s opens %s", t->type->name, e.text))
			continue;
		for (unsigned i = 0; i < 65536; i++) {
			uint32_t u = i << 16;
			float want = half(i);

			if (bf16)
				memcpy(&want, &u, sizeof(want));
			if (i % 32 == 0) {
				weights_row(w, WEIGHT_EMBED, 0, 0, i / 32, false, out);
				weights_row(w, WEIGHT_EMBED, 0, 0, i / 32, true, narrow);
			}
			check(isnan(want) ? isnan(float_of_bf16(narrow[i % 32]))
					  : narrow[i % 32] == bf16_of_float(want));
			check(isnan(want) ? isnan(out[i % 32])
					  : out[i % 32] == want &&
						    !signbit(out[i % 32]) == !signbit(want));
		}
		ok_all("every %s number is read exactly", t->type->name);
	}
	wide = malloc(65536 * sizeof(*wide));
	for (int i = 0; i < 65536; i++)
		wide[i] = (float)i / 3;
	free(bits);
	t->data = wide;
	t->bytes *= 2;
	t->type = stored_type_find("F32");
	if (ok(copy_weights(k, &c, &w, &e) == 0, "F32 beside BF16 opens %s", e.text)) {
		for (unsigned i = 0; i < 2048; i++) {
			weights_row(w, WEIGHT_EMBED, 0, 0, i, false, out);
			check(!memcmp(out, wide + 32 * i, sizeof(out)));
		}
		ok_all("every F32 number is read as it is");
	}
}

/* Puts floats in place of a tensor's data, which takes them over. */
static void put_floats(struct tensor *t, float *data)
{
	free((void *)(uintptr_t)t->data);
	t->bytes = t->bytes / t->type->bytes * sizeof(*data);
	t->type = stored_type_find("F32");
	t->data = data;
}

/* Makes a matrix (of experts, if it has three dimensions) FP8 with random codes and scales of blocks of 16 x 16 in one
 * copy, and the same numbers as floats in the other. */
static void make_fp8(struct copy *k, struct copy *plain, const char *name)
{
	struct tensor *t = copy_find(k, name);
	uint64_t cols = t->shape[t->n_dims - 1], rows = t->shape[t->n_dims - 2];
	uint64_t experts = t->n_dims == 3 ? t->shape[0] : 1, n = experts * rows * cols;
	uint64_t shape[3] = {experts, CEIL_DIV(rows, 16u), CEIL_DIV(cols, 16u)};
	float *floats = malloc(n * sizeof(*floats)), *scales;
	uint8_t *codes = malloc(n);
	char scale_name[300];

	scales = malloc(experts * shape[1] * shape[2] * sizeof(*scales));
	for (uint64_t i = 0; i < experts * shape[1] * shape[2]; i++)
		scales[i] = ldexpf(1 + (float)random_below(1000) / 1000, (int)random_below(5) - 8);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t row = i / cols % rows, block = i / cols / rows * shape[1] + row / 16;

		codes[i] = (uint8_t)random_below(256) & 0xf7;
		floats[i] = float_of_e4m3(codes[i]) * scales[block * shape[2] + i % cols / 16];
	}
	put_floats(copy_find(plain, name), floats);
	free((void *)(uintptr_t)t->data);
	t->data = codes;
	t->bytes = n;
	t->type = stored_type_find("F8_E4M3");
	snprintf(scale_name, sizeof(scale_name), "%s_scale_inv", name);
	copy_add(k, scale_name, "F32", t->n_dims, shape + 3 - t->n_dims, scales);
}

/* The same with GPTQ of 8 bits, one group. The name is that of the layer, without ".weight". */
static void make_gptq(struct copy *k, struct copy *plain, const char *layer)
{
	char name[300];
	struct tensor *t;
	uint64_t rows, cols;
	float *floats, *scales;
	uint8_t *codes, *zeros;

	snprintf(name, sizeof(name), "%s.weight", layer);
	t = copy_find(k, name);
	rows = t->shape[0];
	cols = t->shape[1];
	floats = malloc(rows * cols * sizeof(*floats));
	scales = malloc(rows * sizeof(*scales));
	codes = malloc(rows * cols);
	zeros = malloc(rows);
	for (uint64_t r = 0; r < rows; r++) {
		scales[r] = (float)(1 + random_below(1000)) / 4096;
		zeros[r] = (uint8_t)random_below(256);
		for (uint64_t c = 0; c < cols; c++) {
			uint8_t q = (uint8_t)random_below(256);

			/* A word has the codes of four columns; zeros are stored less one. */
			codes[(c / 4 * rows + r) * 4 + c % 4] = q;
			floats[r * cols + c] = (float)(q - (uint8_t)(zeros[r] + 1)) * scales[r];
		}
	}
	put_floats(copy_find(plain, name), floats);
	copy_remove(k, name);
	snprintf(name, sizeof(name), "%s.qweight", layer);
	copy_add(k, name, "I32", 2, (uint64_t[]){cols / 4, rows}, codes);
	snprintf(name, sizeof(name), "%s.qzeros", layer);
	copy_add(k, name, "I32", 2, (uint64_t[]){1, rows / 4}, zeros);
	snprintf(name, sizeof(name), "%s.scales", layer);
	copy_add(k, name, "F32", 2, (uint64_t[]){1, rows}, scales);
}

/* Returns whether all rows of a weight at once are the same as one by one. */
static bool same_together(const struct weights *w, enum weight_role role)
{
	const struct weight *of = weights_find(w, role, 0);
	float *all = calloc(of->rows * (of->cols + 1), sizeof(*all));
	float *one = malloc(of->cols * sizeof(*one));
	bool same = true;

	weights_rows(w, role, 0, 0, 0, of->rows, false, all, of->cols + 1);
	for (uint64_t r = 0; r < of->rows; r++) {
		weights_row(w, role, 0, 0, r, false, one);
		same &= !memcmp(all + r * (of->cols + 1), one, of->cols * sizeof(*one));
	}
	free(all);
	free(one);
	return same;
}

/* Quantised weights in any layout of names give the rows of a checkpoint that has the same numbers as floats: packed
 * experts, interleaved projections, embedding and head. quantised/ has tests of the formats. */
TEST(quantised)
{
	struct model_config c = parse(config_moe), next = parse(config_next), again;
	struct copy *k = copy_open(scratch_path("moe")), *plain = copy_open(scratch_path("moe"));
	struct weights *w, *want;
	struct err e = {0};
	uint64_t row;

	c.quantised = next.quantised = (struct quantised_config){16, 16, false};
	make_fp8(k, plain, "model.layers.0.linear_attn.in_proj_qkv.weight");
	make_fp8(k, plain, "model.layers.0.mlp.experts.gate_up_proj");
	make_fp8(k, plain, "model.layers.2.mlp.experts.down_proj");
	make_fp8(k, plain, "model.embed_tokens.weight");
	make_gptq(k, plain, "model.layers.3.self_attn.o_proj");
	make_gptq(k, plain, "lm_head");
	ok(copy_weights(plain, &c, &want, &e) == 0, "floats open %s", e.text);
	expect_same(k, &c, want, "a checkpoint with fp8 and GPTQ beside bf16");
	if (ok(copy_weights(k, &c, &w, &e) == 0, "it opens again %s", e.text)) {
		is_str(weights_tensor(w, WEIGHT_LM_HEAD, 0, 0, 5), "lm_head.qweight",
		       "the tensor of a row is that of its codes");
		ok(!weights_quantised(w, WEIGHT_ATTN_K, 3, 0, 1, &row) && row == 1,
		   "a plain row has no codes");
		ok(weights_quantised(w, WEIGHT_EXPERT_UP, 0, 3, 2, &row) &&
			   row == 3u * 2 * c.expert_size + c.expert_size + 2,
		   "a quantised row knows its place");
		weights_forget(w, WEIGHT_LM_HEAD, 0, 0, 0, 2048);
		weights_forget(w, WEIGHT_EMBED, 0, 0, 3, 4);
		ok(same_together(w, WEIGHT_LM_HEAD), "rows can be read again, and together");
		/* What is exported has no codes, so its config.json must not tell of any. */
		export_to(
			w, &c,
			"{'quantization_config':{'quant_method':'none'},'model_type':'qwen3_5_moe_text'," COMMON
				EXPERTS "}",
			scratch_path("dequantised"), 0);
		ok(model_config_open(scratch_path("dequantised"), &again, &e) == 0,
		   "it is exported as a checkpoint that is not quantised %s", e.text);
	}
	copy_remove(k, "model.layers.0.mlp.experts.gate_up_proj_scale_inv");
	expect_wrong(k, &c, -ENOTSUP, "model.layers.0.mlp.experts.gate_up_proj",
		     "has dtype F8_E4M3, in which weights are not supported without scales",
		     "fp8 without scales");

	k = copy_open(scratch_path("next"));
	plain = copy_open(scratch_path("next"));
	make_fp8(k, plain, "model.layers.0.linear_attn.in_proj_qkvz.weight");
	make_gptq(k, plain, "model.layers.0.mlp.experts.3.up_proj");
	make_gptq(k, plain, "model.layers.1.mlp.down_proj");
	ok(copy_weights(plain, &next, &want, &e) == 0, "floats open %s", e.text);
	expect_same(k, &next, want, "interleaved projections and an expert");
	if (ok(copy_weights(k, &next, &w, &e) == 0, "it opens again %s", e.text)) {
		ok(same_together(w, WEIGHT_DELTA_QKV) && same_together(w, WEIGHT_DELTA_Z),
		   "rows from several places can be read together");
		ok(same_together(w, WEIGHT_ROUTER), "and plain ones");
	}
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

/* Key, scale and offset of synthetic weights are those that another program computed. */
TEST(synthesis)
{
	const struct weight matrix = {.role = WEIGHT_DELTA_QKV, .cols = 256, .gain = 1, .layer = 3};
	const struct weight embedding = {.role = WEIGHT_EMBED, .cols = 1000, .gain = 0.7f};
	const struct weight vector = {.role = WEIGHT_EMBED,
				      .cols = 1000,
				      .offset = 1,
				      .range = 0.125f};
	struct weight_synthesis s;

	synthetic_weight(7, &matrix, 2, &s);
	ok(s.key == 0x3aeefe7b7ffb92b4 && s.scale == 0x1.bcp-19f && s.offset == 0, "a matrix");
	synthetic_weight(7, &embedding, 0, &s);
	ok(s.key == 0x74b5abcc66b8bdc1 && s.scale == 0x1.3ap-20f && s.offset == 0, "an embedding");
	synthetic_weight(7, &vector, 0, &s);
	ok(s.key == 0x74b5abcc66b8bdc1 && s.scale == 0x1p-18f && s.offset == 1, "a vector");
}

/* Hashes all elements of a model's synthetic weights. */
static uint64_t hash_of(const struct weights *w, const struct model_config *c)
{
	static float row[1 << 16];
	struct hash128 h = HASH128_INIT;

	for (int role = 0; role < WEIGHT_ROLES; role++)
		for (uint32_t layer = 0; layer < c->n_layers; layer++) {
			const struct weight *of = weights_find(w, role, layer);

			for (uint32_t i = 0; of && i < of->experts; i++)
				for (uint64_t r = 0; r < of->rows; r++) {
					weights_row(w, role, layer, i, r, false, row);
					hash128_update(&h, row, of->cols * sizeof(*row));
				}
		}
	return (uint64_t)h.value;
}

/* A seed gives the same weights in every version of the program. */
TEST(recorded)
{
	static const struct {
		const char *config;
		uint64_t hash;
	} models[] = {
		{config_moe, 0x29274f409c3071db},      {config_dense, 0x86518f1c5fe328a8},
		{config_next, 0xd729b20eb494e1eb},     {config_attention, 0x3518b9010e8469d7},
		{config_unshared, 0x5c3a095e64b159a6}, {config_biased, 0xbeb397e1f5c82954},
		{config_gemma, 0x9a52304be2f41faa},
	};

	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		struct model_config c = parse(models[i].config);
		uint64_t hash = hash_of(make(1, &c), &c);

		if (!ok(hash == models[i].hash, "all weights of model %zu are as recorded", i))
			printf("#   0x%016" PRIx64 "\n", hash);
	}
}

/* Synthetic elements: known answers of another program; mean and deviation by role; what they depend on. */
TEST(synthetic)
{
	static const uint32_t first[] = {0xbcf4, 0xbce0, 0xbcd4, 0xbc26,
					 0xbc0d, 0x3b10, 0xbca4, 0x3b88};
	static const struct {
		enum weight_role role;
		double deviation, mean;
	} sizes[] = {
		{WEIGHT_EMBED, 1, 0},
		{WEIGHT_LM_HEAD, 2.5 / 5.65685, 0},
		{WEIGHT_ROUTER, 2 / 5.65685, 0},
		{WEIGHT_EXPERT_DOWN, 1 / 4.89898, 0},
		{WEIGHT_DELTA_OUT, 0.5 / 13.8564, 0},
		{WEIGHT_DELTA_CONV, 1 / 1.73205, 0},
		{WEIGHT_INPUT_NORM, 0.125 / 1.73205, 0},
	};
	static const struct {
		enum weight_role role;
		uint32_t layer, expert;
		const char *what;
	} others[] = {
		{WEIGHT_EXPERT_UP, 1, 2, "another seed"},
		{WEIGHT_EXPERT_UP, 1, 3, "another expert"},
		{WEIGHT_EXPERT_UP, 2, 2, "another layer"},
		{WEIGHT_EXPERT_GATE, 1, 2, "another role"},
	};
	struct model_config c = parse(config_moe);
	const uint64_t key = 0xdeadbeefcafef00d;
	struct weights *w = make(1, &c), *other = make(2, &c);
	struct weight_synthesis s;
	float row[4096], row_other[4096];

	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		check(synthetic_bf16(1, 0x1p-20f, 0, i) == first[i]);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, 0) == 0x3f3b);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, 5) == 0x3f08);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, ((uint64_t)1 << 33) + 3) == 0x3f7f);
	check(synthetic_bf16(key, 3 * 0x1p-17f, 1, (uint64_t)1 << 40) == 0x3fcf);
	ok_all("elements are those that they have always been");

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct weight *of = weights_find(w, sizes[i].role, 0);
		uint64_t rows = of->rows, cols = of->cols;
		double sum = 0, squares = 0, n;

		for (uint64_t r = 0; r < rows; r++) {
			weights_row(w, sizes[i].role, 0, 0, r, false, row);
			for (uint64_t k = 0; k < cols; k++) {
				sum += row[k];
				squares += row[k] * (double)row[k];
			}
		}
		n = (double)(rows * cols);
		sum /= n;
		squares = sqrt(squares / n - sum * sum);
		if (!ok(fabs(squares / sizes[i].deviation - 1) < (n > 1000 ? 0.05 : 0.3) &&
				fabs(sum - sizes[i].mean) < 6 * sizes[i].deviation / sqrt(n),
			"role %d has the size of its recipe", sizes[i].role))
			printf("#   mean %g, deviation %g\n", sum, squares);
	}
	weights_row(w, WEIGHT_DELTA_A_LOG, 0, 0, 0, false, row);
	weights_row(w, WEIGHT_DELTA_DT_BIAS, 0, 0, 0, false, row_other);
	for (uint32_t i = 0; i < c.n_value_heads; i++) {
		check(expf(row[i]) >= 1 && expf(row[i]) <= 16);
		check(log1pf(expf(row_other[i])) > 0.0009f && log1pf(expf(row_other[i])) < 0.11f);
	}
	ok_all("decay rates are those of a fresh Mamba");

	/* Each row below differs from this one in one thing. */
	weights_row(w, WEIGHT_EXPERT_UP, 1, 2, 3, false, row);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		weights_row(i ? w : other, others[i].role, others[i].layer, others[i].expert, 3,
			    false, row_other);
		ok(memcmp(row, row_other, 32 * sizeof(*row)) != 0, "%s gives other weights",
		   others[i].what);
	}

	/* Rows agree with single elements, at every alignment of the row's first element. */
	for (uint64_t r = 0; r < 256; r++) {
		weights_row(w, WEIGHT_DELTA_CONV, 0, 0, r, false, row);
		check(weights_synthesis(w, WEIGHT_DELTA_CONV, 0, 0, &s));
		for (uint32_t k = 0; k < 3; k++) {
			uint32_t u = synthetic_bf16(s.key, s.scale, s.offset, r * 3 + k) << 16;

			check(!memcmp(&row[k], &u, 4));
		}
	}
	ok_all("a row is its elements");

	/* The promises on which synthetic.clh relies. */
	for (int role = 0; role < WEIGHT_ROLES; role++) {
		for (uint32_t layer = 0; layer < c.n_layers; layer++) {
			uint32_t u;

			if (!weights_find(w, role, layer))
				continue;
			check(weights_synthesis(w, role, layer, 0, &s));
			memcpy(&u, &s.scale, 4);
			check(s.scale >= 0x1p-40f && s.scale < 1 && !(u & 0xffff));
		}
	}
	ok_all("every scale is a bf16 number");

	c = parse(config_tied);
	w = make(1, &c);
	for (uint64_t r = 0; r < c.vocab_size; r++) {
		weights_row(w, WEIGHT_EMBED, 0, 0, r, false, row);
		weights_row(w, WEIGHT_LM_HEAD, 0, 0, r, false, row_other);
		check(!memcmp(row, row_other, c.hidden_size * sizeof(*row)));
	}
	ok_all("a tied head is the embedding");
}

TEST(export_refused)
{
	struct model_config c = parse(config_moe);
	struct weights *w = make(1, &c);
	struct err e = {0};
	char want[600];

	snprintf(want, sizeof(want), "%s: the directory is not empty", scratch_path("moe"));
	is_int(weights_export(w, &c, quoted(config_moe), scratch_path("moe"), 0, &e), -EEXIST,
	       "does not write into a full directory");
	is_str(e.text, want, "says so");
	is_int(weights_export(w, &c, quoted(config_moe), "/nonexistent/a/b", 0, &e), -ENOENT,
	       "needs the parent directory");
}

TEST_MAIN()
