/* The roofline by numbers worked out by hand, for a config of 1.47 billion parameters (Qwen3.5-MoE's shape). */
#include <math.h>

#include "base/macros.h"
#include "engine/roofline.h"
#include "tests/tap.h"

/* FLOP of a token: those of the routers' products, of the recurrence and the convolution of a layer, and those of a pair
 * of a query and a key, in all heads of a layer. */
enum {
	ROUTERS = 2 * 65 * 1024 * 24,
	RECURRENCE = 7 * 262144,
	CONV = 2 * 4096 * 4,
	PAIR = 4 * 1024
};

static struct model_config config(void)
{
	struct model_config c = {
		.hidden_size = 1024,
		.n_layers = 24,
		.vocab_size = 32768,
		.n_layers_of = {[LAYER_ATTENTION] = 6, [LAYER_DELTA] = 18, [LAYER_MOE] = 24},
		.n_heads = 8,
		.n_kv_heads = 2,
		.head_dim = 128,
		.rotary_dim = 32,
		.attention_gate = true,
		.qk_norm = true,
		.n_key_heads = 8,
		.n_value_heads = 16,
		.key_head_dim = 128,
		.value_head_dim = 128,
		.conv_kernel = 4,
		.n_experts = 64,
		.n_experts_per_token = 8,
		.expert_size = 256,
		.shared_expert_size = 256,
	};

	for (uint32_t i = 0; i < c.n_layers; i++)
		c.layers[i] =
			(struct layer_kinds){i % 4 == 3 ? LAYER_ATTENTION : LAYER_DELTA, LAYER_MOE};
	return c;
}

TEST(decode)
{
	const struct model_config c = config();
	const struct roofline_row row = {.start = 1023, .n_tokens = 1};
	const struct roofline_step s = {.rows = &row, .n_rows = 1, .n_logits = 1, .experts = 8};
	struct roofline r = {0}, int8 = {0}, coded = {0};
	struct peak peaks = {.read = 57e9, .flops = 228e9, .dot = 457e9, .int8 = 910e9};
	bool by_bytes = false;

	roofline_add(&r, &c, true, &s);
	/* Bytes of an embedding row, norms, lm_head, 6 attention and 18 DeltaNet mixers, and 24 times a router and 9
	 * experts. */
	is_int(r.weight_bytes,
	       2048 + 200704 + 67108864 + 6 * 7341056 + 18 * 16908928 +
		       24 * (266240 + 9 * 3 * 256 * 1024 * 2),
	       "a token: weights once, of the experts those it takes");
	is_int(r.weight_bytes, 761847040, "762 MB");
	is_int(r.kv_bytes, (1024 + 1) * 1024 * 6, "keys and values of 1024 tokens, one written");
	roofline_add(&int8, &c, true,
		     &(struct roofline_step){.rows = &row, .n_rows = 1, .kv_number = 1});
	is_int(int8.kv_bytes, (1024 + 1) * 2 * 2 * (128 + 4) * 6, "in int8 each has a scale");
	is_int(r.state_bytes, 2 * 1114112 * 18, "a state read and written a delta layer");
	is_int(r.flops.bf16, 757252096 - ROUTERS, "products");
	is_int(r.flops.floats, ROUTERS + PAIR * 1024 * 6 + (RECURRENCE + CONV) * 18,
	       "the router's; attention of 8 heads over 1024 keys; the recurrence and the convolution");
	ok(fabs(roofline_seconds(&r, &peaks, &by_bytes) - 808252672 / 57e9) < 1e-9 && by_bytes,
	   "the weights decide: 14.2 ms at 57 GB/s");
	peaks.read *= 1e3;
	ok(fabs(roofline_seconds(&r, &peaks, &by_bytes) - r.flops.bf16 / 457e9 -
		r.flops.floats / 228e9) < 1e-9 &&
		   !by_bytes,
	   "on memory a thousand times as fast the operations do, each kind at its peak");
	roofline_add(&coded, &c, true,
		     &(struct roofline_step){.rows = &row,
					     .n_rows = 1,
					     .n_logits = 1,
					     .weight = 0.5625,
					     .int8 = true});
	is_int(coded.flops.int8, 757252096 - ROUTERS, "products of quantised weights are of int8");
	ok(!coded.flops.bf16 && coded.flops.floats == r.flops.floats, "and the others as before");
	ok(fabs(roofline_seconds(&coded, &peaks, &by_bytes) - coded.flops.int8 / 910e9 -
		r.flops.floats / 228e9) < 1e-9,
	   "at the peak of int8");
	r = (struct roofline){0};
	roofline_add(&r, &c, false, &s);
	is_int(r.flops.floats, roofline_flops(&coded), "in float32 all are of floats");
	is_int(r.kv_bytes, 2 * (1024 + 1) * 1024 * 6, "elements of four bytes");
	is_int(r.state_bytes, 2 * 1114112 * 18, "states are in float anyway");
}

TEST(prefill)
{
	const struct model_config c = config();
	const struct roofline_row rows[] = {{0, 512}, {1023, 1}};
	struct roofline_step s = {
		.rows = rows, .n_rows = 1, .n_prefill_rows = 1, .n_logits = 1, .experts = 64};
	const struct peak peaks = {.read = 57e9, .flops = 228e9, .dot = 457e9, .int8 = 910e9};
	struct roofline r = {0}, twice = {0};
	bool by_bytes = true;

	roofline_add(&r, &c, true, &s);
	is_int(r.weight_bytes, 2876822784, "512 tokens: all experts");
	is_int(r.kv_bytes, 1024 * 1024 * 6, "what is written, and read once");
	is_int(r.state_bytes, 1114112 * 18, "a state that begins at zero is only written");
	is_int(r.flops.bf16, 353420443648 - ROUTERS * 512ll, "products");
	is_int(r.flops.floats,
	       ROUTERS * 512ll + PAIR * 512ll * 513 / 2 * 6 + (RECURRENCE + CONV) * 18ll * 512,
	       "the router's; half of all pairs of a query and a key; delta");
	(void)roofline_seconds(&r, &peaks, &by_bytes);
	ok(!by_bytes, "the products decide");
	twice = r;
	roofline_add(&twice, &c, true, &s);
	ok(roofline_bytes(&twice) == 2 * roofline_bytes(&r) &&
		   roofline_flops(&twice) == 2 * roofline_flops(&r),
	   "steps add up");
	s.n_rows = 2;
	s.n_logits = 2;
	twice = (struct roofline){0};
	roofline_add(&twice, &c, true, &s);
	is_int(twice.state_bytes - r.state_bytes, 2 * 1114112 * 18,
	       "with a generated token: its state");
	is_int(twice.weight_bytes - r.weight_bytes, 2048, "and no weights but its embedding");
	is_int(twice.flops.floats - r.flops.floats,
	       ROUTERS + PAIR * 1024 * 6 + (RECURRENCE + CONV) * 18,
	       "and its router, its keys, and its step of the recurrence");
}

/* Returns the FLOP of bf16 of a step whose kernels have these operations on tensor cores. */
static double bf16_flops(const struct model_config *c, struct roofline_step s,
			 struct kernel_tensor tensor)
{
	struct roofline plain = {0}, r = {0};

	roofline_add(&plain, c, true, &s);
	s.tensor = tensor;
	roofline_add(&r, c, true, &s);
	check(roofline_flops(&r) == roofline_flops(&plain));
	return r.flops.bf16;
}

TEST(tensor_cores)
{
	struct model_config c = config();
	const struct roofline_row rows[] = {{0, 512}, {1023, 1}};
	const struct roofline_step s = {.rows = rows, .n_rows = 2, .n_prefill_rows = 1};
	const struct kernel_tensor attention = {.attention = true}, splits = {.splits = true};
	const struct kernel_tensor delta = {.delta = true}, all = {true, true, true};
	const int64_t prompt = PAIR * 512ll * 513 / 2 * 6, token = PAIR * 1024 * 6;
	const int64_t recurrence = RECURRENCE * 512ll * 18;
	double none = bf16_flops(&c, s, (struct kernel_tensor){0});

	is_int(bf16_flops(&c, s, attention) - none, prompt, "a prompt's pairs are of bf16");
	is_int(bf16_flops(&c, s, splits) - none, token, "those of a generated token");
	is_int(bf16_flops(&c, s, delta) - none, recurrence, "a prompt's recurrence");
	is_int(bf16_flops(&c, s, all) - none, prompt + token + recurrence, "and all of them");
	c.sliding_window = 100;
	for (uint32_t i = 3; i < c.n_layers; i += 4)
		c.layers[i].mixer = LAYER_SLIDING;
	is_int(bf16_flops(&c, s, attention) - none, PAIR * (100ll * 101 / 2 + 412 * 100) * 6,
	       "a prompt's pairs in a window");
	is_int(bf16_flops(&c, s, splits) - none, PAIR * 100 * 6, "those of a generated token");
	ok_all("however they are computed, FLOP are as many");
}

TEST(dense)
{
	struct model_config c = config();
	const struct roofline_row row = {.start = 0, .n_tokens = 1};
	const struct roofline_step s = {.rows = &row, .n_rows = 1};
	struct roofline sparse = {0}, dense = {0};

	roofline_add(&sparse, &c, true, &s);
	c.layers[5].mlp = LAYER_DENSE;
	c.mlp_size = 4096;
	roofline_add(&dense, &c, true, &s);
	is_int(dense.weight_bytes - sparse.weight_bytes,
	       3 * 4096 * 1024 * 2 - (65 * 1024 * 4 + 3 * 256 * 1024 * 2),
	       "a dense layer: its MLP in place of router and shared expert");
}

/* The work of launches that share the rows of a step, or the terms of their sums. */
TEST(parts)
{
	struct model_config c = config();
	struct roofline_row rows[32];
	const struct roofline_step s = {.rows = rows, .n_rows = 32, .n_logits = 32};
	static const char *const kernels[] = {"attention_split", "attention_combine"};
	static const uint32_t starts[] = {0, 15, 30, 32};
	struct kernel_timing down = {"moe_down", 8, 64, .experts = 40};
	struct kernel_timing dense = {"moe_down", 8, 64, .dense = true};
	const struct kernel_timing whole_dense = dense;
	struct roofline_work whole, part, sum = {0};

	for (uint32_t i = 0; i < 32; i++)
		rows[i] = (struct roofline_row){32768 + i, 1};
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		struct kernel_timing l = {kernels[k], 3855, 2};

		check(roofline_kernel(&c, true, &s, &l, &whole));
		sum = (struct roofline_work){0};
		for (int i = 0; i < 3; i++) {
			l.first_row = starts[i];
			l.n_rows = starts[i + 1] - starts[i];
			check(roofline_kernel(&c, true, &s, &l, &part));
			sum.bytes += part.bytes;
			sum.flops += part.flops;
		}
		check(sum.bytes == whole.bytes && sum.flops == whole.flops);
		if (!k) /* the last two rows */
			check(part.flops == PAIR * (32799.0 + 32800) &&
			      part.bytes == (32799.0 + 32800) * 1024 + 2 * 1024 * 10);
	}
	ok_all("32 rows in launches of 15, 15 and 2: each counts its own, once");

	c.mlp_size = 5000;
	check(roofline_kernel(&c, true, &s, &whole_dense, &whole));
	sum = (struct roofline_work){0};
	dense.n_terms = 2048;
	for (; dense.first_term < 5000; dense.first_term += 2048) {
		check(roofline_kernel(&c, true, &s, &dense, &part));
		sum.bytes += part.bytes;
		sum.flops += part.flops;
	}
	check(sum.flops == whole.flops);
	/* each launch adds to the outputs, or stores them */
	check(sum.bytes == whole.bytes + 2 * 32 * 1024 * 4);
	ok_all("sums of 5000 terms in three launches: weights and inputs once");

	c.shared_expert_size = 3072;
	down.n_terms = 2048;
	ok(roofline_kernel(&c, true, &s, &down, &part) &&
		   part.flops == 2.0 * 32 * (8 * 256 + 2048) * 1024 &&
		   part.bytes == (40 * 256 + 2048) * 1024 * 2 + 32 * (8 * 256 + 2048) * 2 +
					 32 * 9 * 1024 * 4,
	   "the first 2048 terms: all of the experts', and a part of the shared one's");
	down.first_term = 2048;
	ok(roofline_kernel(&c, true, &s, &down, &part) && part.flops == 2.0 * 32 * 1024 * 1024 &&
		   part.bytes == 1024 * 1024 * 2 + 32 * 1024 * 2 + 32 * 1024 * 4,
	   "the others: the shared one's alone");
}

/* A layer with a sliding window launches the kernels of other attention. */
TEST(sliding)
{
	struct model_config c = config();
	const struct roofline_row rows[] = {{8191, 1}, {50, 1}}, prompt = {0, 512};
	struct roofline_step s = {.rows = rows, .n_rows = 2};
	struct kernel_timing l = {"attention_split", 65, 2, .sliding = true};
	struct roofline_work w;

	c.sliding_window = 100;
	ok(roofline_kernel(&c, true, &s, &l, &w) && w.flops == PAIR * 151.0 &&
		   w.bytes == 151 * 1024 + 2 * 1024 * 10,
	   "of 8192 keys it reads 100");
	l.kernel = "attention";
	s = (struct roofline_step){.rows = &prompt, .n_rows = 1, .n_prefill_rows = 1};
	ok(roofline_kernel(&c, true, &s, &l, &w) && w.flops == PAIR * (100.0 * 101 / 2 + 41200) &&
		   w.bytes == 512 * 1024 + 512 * 1024 * 10,
	   "a prompt's as well");
}

static struct roofline_work kernel(const char *name, uint32_t m, uint32_t n, uint32_t k,
				   uint32_t experts, const struct roofline_step *s)
{
	const struct model_config c = config();
	const struct kernel_timing l = {name, m, n, k, .experts = experts};
	struct roofline_work w = {0};

	ok(roofline_kernel(&c, true, s, &l, &w), "%s is known", name);
	return w;
}

TEST(kernels)
{
	const struct model_config c = config();
	const struct roofline_row prompt = {0, 512};
	const struct roofline_row rows[8] = {{1023, 1}, {1023, 1}, {1023, 1}, {1023, 1},
					     {1023, 1}, {1023, 1}, {1023, 1}, {1023, 1}};
	struct roofline_step prefill = {.rows = &prompt, .n_rows = 1, .n_prefill_rows = 1};
	const struct roofline_step decode = {.rows = rows, .n_rows = 8, .n_logits = 8};
	static const char *const movers[] = {"embed",	 "combine_norm",  "attention_prepare",
					     "moe_topk", "sample_blocks", "sample"};
	const struct kernel_timing strange = {"no_such_kernel", 1, 1, 1, .experts = 0};
	const struct kernel_timing tensor = {"attention", 4, 2, .tensor = true};
	struct roofline_work w = kernel("gemm_store", 512, 6176, 1024, 0, &prefill);

	is_int(w.bytes, 26345472, "weights, rows in, floats out");
	is_int(w.flops, 6476005376, "2 M N K");
	ok(w.elements, "in elements");
	is_int(kernel("gemm_add", 512, 6176, 1024, 0, &prefill).bytes, 26345472 + 12648448,
	       "what is added to is read as well");
	prefill.weight = 0.5625;
	prefill.int8 = true;
	w = kernel("gemm_store", 512, 6176, 1024, 0, &prefill);
	ok(w.int8 && !w.elements && w.flops == 6476005376, "the same product of quantised weights");
	is_int(w.bytes, 6176 * 1024 * 9 / 16 + 512 * 1024 * 2 + 512 * 6176 * 4,
	       "whose bytes are theirs");
	prefill.weight = 0;
	prefill.int8 = false;
	w = kernel("router", 512, 80, 1024, 0, &prefill);
	ok(!w.elements && w.bytes == (80 + 512) * 1024 * 4 + 512 * 80 * 4, "the router's in float");
	w = kernel("moe_gate_up", 8, 64, 0, 40, &decode);
	is_int(w.bytes, 43044864, "40 experts and the shared one, once each");
	is_int(w.flops, 75497472, "products of 8 tokens with 8 + 1 experts");
	w = kernel("moe_down", 8, 64, 0, 40, &decode);
	is_int(w.bytes, 41 * 256 * 1024 * 2 + 8 * 9 * 256 * 2 + 8 * 9 * 1024 * 4, "and down");
	w = kernel("attention", 8, 2, 0, 0, &decode);
	is_int(w.bytes, 8 * 1024 * 1024 + 8 * 1024 * 10, "KV of 8 streams");
	is_int(w.flops, 8ll * 4 * 1024 * 1024, "q k^T and p v");
	w = kernel("delta_decode", 8, 16, 0, 0, &decode);
	is_int(w.flops, 8 * 1867776, "8 recurrent steps");
	ok(w.bytes > 8 * 2 * 1114112 && w.bytes < 1.05 * 8 * 2 * 1114112, "states above all");
	w = kernel("delta_prefill", 2, 1, 0, 0, &prefill);
	is_int(w.flops, 512ll * 7 * 262144, "as the recurrence");
	is_int(kernel("delta_conv", 1024, 1, 0, 0, &prefill).bytes, 512ll * (4096 * 8 + 16 * 16),
	       "inputs in, q, k, v and gates out, however many tokens a group takes");
	is_int(kernel("delta_conv_tensor", 1024, 1, 0, 0, &prefill).bytes,
	       512ll * (4096 * 6 + 16 * 16), "q, k and v in bf16");
	is_int(kernel("delta_scan_tensor", 16, 1, 0, 0, &prefill).flops +
		       kernel("delta_out", 1024, 1, 0, 0, &prefill).flops,
	       512ll * 7 * 262144, "the recurrence in two");
	is_int(kernel("delta_norm", 1024, 1, 0, 0, &prefill).bytes, 512ll * 2048 * 10,
	       "outputs and z in, elements out");
	ok(!kernel("attention", 4, 2, 0, 0, &prefill).elements, "floats at the peak of floats");
	ok(roofline_kernel(&c, true, &prefill, &tensor, &w) && w.elements,
	   "but at that of elements where they are rounded for tensor cores");
	is_int(kernel("rms_norm", 8, 1, 0, 0, &decode).bytes, 8 * 1024 * 10, "a norm moves rows");
	for (size_t i = 0; i < ARRAY_SIZE(movers); i++) {
		const struct kernel_timing one = {movers[i], 1, 1, 0, .experts = 0};
		const struct kernel_timing eight = {movers[i], 8, 1, 0, .experts = 0};
		struct roofline_work more = {0};

		check(roofline_kernel(&c, true, &decode, &one, &w) && w.bytes > 0 && !w.flops);
		check(roofline_kernel(&c, true, &decode, &eight, &more) &&
		      more.bytes == 8 * w.bytes);
	}
	ok_all("what only moves rows moves so many bytes a row");
	ok(!roofline_kernel(&c, true, &decode, &strange, &w), "a kernel that nobody knows");
}

TEST_MAIN()
