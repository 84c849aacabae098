/* engine/checkpoint/weights: every number format gives the rows that its numbers say, quantised weights too. */
#include <math.h>

#include "base/macros.h"
#include "engine/checkpoint/types/float8.h"
#include "tests/checkpoint_copy.h"
#include "tests/random.h"

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
	char scale_name[TENSOR_NAME_MAX + 1];

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
	char name[TENSOR_NAME_MAX + 1];
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
		/* An exported checkpoint has no codes, so its config.json names no quantisation. */
		ok(weights_export(
			   w, &c,
			   quoted("{'quantization_config':{'quant_method':'none'},'model_type':'qwen3_5_moe_text'," COMMON
					  EXPERTS "}"),
			   scratch_path("dequantised"), 0, &e) == 0,
		   "exports %s", e.text);
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

int main(void)
{
	export_checkpoint(config_moe, "moe");
	export_checkpoint(config_next, "next");
	run_tests();
	return done();
}
