/* gemm.cl and moe_gemm.cl: plain products and those of the experts, in every size of tile and of remainder. */
#include <math.h>
#include <string.h>

#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

#define BOUND(K) (2e-6 * MAX((K) / 512.0, 1)) /* one chain of K products */

/* ---- plain products ---- */

struct product {
	uint32_t M, N, K, lda, ldc;
};

/* PROJECT_*: the second half of the rows, or of an odd number the larger half, generates. */
enum product_kind { STORE, ADD, ROUTER, PROJECT_STORE, PROJECT_ADD, PRODUCT_KINDS };

static bool adds(enum product_kind kind)
{
	return kind == ADD || kind == PROJECT_ADD;
}

static const struct product products[] = {
	{1, 16, 16, 16, 16},	  {2, 48, 32, 48, 64},	  {3, 16, 208, 208, 16},
	{4, 144, 48, 48, 144},	  {5, 272, 64, 80, 272},  {7, 128, 208, 208, 160},
	{8, 112, 16, 16, 112},	  {9, 400, 80, 80, 416},  {13, 64, 128, 128, 64},
	{16, 1008, 48, 48, 1008}, {33, 32, 512, 512, 32}, {63, 80, 48, 64, 80},
	{64, 144, 112, 112, 144}, {65, 208, 48, 48, 224}, {70, 272, 208, 208, 272},
	{70, 144, 512, 512, 144},
};
/* On tensor cores: sums of several chains, tiles for many rows with parts of tiles on every side, and their
 * neighbours. */
static const struct product tensor_products[] = {
	{1, 48, 2064, 2064, 48},     {8, 144, 4224, 4224, 144},	  {9, 144, 4224, 4224, 160},
	{32, 128, 2048, 2064, 128},  {33, 400, 128, 144, 400},	  {65, 272, 2176, 2176, 288},
	{129, 2064, 256, 256, 2064}, {300, 144, 4096, 4096, 144}, {130, 400, 2064, 2064, 400},
	{40, 144, 640, 640, 144},    {160, 144, 2432, 2432, 144}, {9, 48, 272, 272, 48},
	{40, 144, 400, 400, 144},    {256, 144, 512, 512, 144},	  {258, 144, 512, 512, 144},
};
/* On a GPU: rows enough for router.cl's kernels for many rows, and columns with and without a single panel left. */
static const struct product router_products[] = {
	{513, 48, 272, 272, 48},
	{520, 80, 208, 208, 80},
	{4100, 48, 272, 288, 48},
	{4225, 80, 144, 144, 96},
};
static const struct product small_products[] = {{1, 16, 16, 16, 16}, {3, 80, 16, 16, 80}};

/* generating, parts: of PROJECT_*: the number of rows at the end that generate; work space, or NULL. */
static cl_mem launch(struct kernels *k, const struct product *p, enum product_kind kind,
		     uint32_t generating, cl_mem A, cl_mem W, const float *start, cl_mem dump,
		     cl_mem parts)
{
	uint64_t size = (uint64_t)p->M * p->ldc;
	cl_mem C = adds(kind) ? buffer_floats(start, size) : buffer_out(size * 4);

	switch (kind) {
	case ADD: kernel_gemm_add(k, A, p->lda, W, C, p->ldc, p->M, p->N, p->K, dump); break;
	case PROJECT_STORE:
	case PROJECT_ADD:
		kernel_project(k, kind == PROJECT_ADD, A, p->lda, W, C, p->ldc, p->M, generating,
			       p->N, p->K, dump, parts);
		break;
	default: kernel_gemm_store(k, kind == ROUTER, A, p->lda, W, C, p->ldc, p->M, p->N, p->K);
	}
	return C;
}

/* Makes one weight in a hundred much smaller than the others: some tiles cannot be coded, others can. */
static void scatter(float *weights, size_t n)
{
	for (size_t i = random_below(100); i < n; i += 1 + random_below(200))
		weights[i] = ldexpf(weights[i], -(int)random_below(60));
}

static void product(const struct way *w, struct kernels *k, const struct product *p,
		    enum product_kind kind, unsigned number)
{
	static const struct way router_way = {.bf16 = false};
	const struct way *type = kind == ROUTER ? &router_way : w;
	const struct kernel_shape *s = kernels_shape(k);
	float *a = case_matrix(p->M, p->K, p->lda, -1, 1), *c, *row, *sums;
	float *weights = case_matrix(p->N, p->K, p->K, -1, 1);
	float *start = case_matrix(p->M, p->ldc, p->ldc, -10, 10);
	double *want = CASE_DOUBLES(p->N);
	const struct packed_part part = {weights, p->N, 0, 1};
	cl_mem A, W, C, C1, dump, parts = NULL;
	struct product one = *p;
	uint32_t prompt = p->M / 2; /* rows that do not generate */
	uint64_t bytes = kernels_parts_bytes(k, p->N, p->K, p->M - prompt);

	if (number % 2)
		scatter(weights, (size_t)p->N * p->K);
	A = buffer_elements(type, a, (uint64_t)p->M * p->lda);
	W = buffer_packed(k, type->bf16, &part, 1, p->N / 16, p->K);
	one.M = 1;
	dump = buffer_out((uint64_t)p->M * p->ldc * 4);
	if (kind == PROJECT_ADD && bytes)
		parts = buffer_out(bytes);
	C = launch(k, p, kind, p->M - prompt, A, W, start, dump, parts);
	set_finish(k);
	c = read_floats(C, (uint64_t)p->M * p->ldc);
	if (parts) {
		C1 = launch(k, p, kind, p->M - prompt, A, W, start, dump, NULL);
		set_finish(k);
		check(same_bits(read_floats(C1, (uint64_t)p->M * p->ldc), c,
				(size_t)p->M * p->ldc));
	}
	sums = adds(kind) && s->dump ? read_floats(dump, (uint64_t)p->M * p->ldc) : c;
	for (uint32_t m = 0; m < p->M; m++) {
		reference_gemm(a + m * p->lda, weights, p->N, p->K, p->K, want);
		if (adds(kind) && s->dump)
			near(sums + m * p->ldc, want, p->N, BOUND(p->K));
		for (uint32_t n = 0; adds(kind) && n < p->N; n++)
			want[n] += start[m * p->ldc + n];
		near(c + m * p->ldc, want, p->N, BOUND(p->K));
		/* Padding between the rows is left alone. */
		for (uint32_t n = p->N; n < p->ldc && !harness_small(); n++)
			check(adds(kind) ? c[m * p->ldc + n] == start[m * p->ldc + n]
					 : is_poison(c[m * p->ldc + n]));
	}
	for (uint32_t m = 0; m < p->M && p->N < 500; m += 1 + p->M / 5) { /* some rows alone */
		cl_mem A1 = buffer_elements(type, a + m * p->lda, p->lda);

		C1 = launch(k, &one, kind, m >= prompt, A1, W, start + m * p->ldc, dump, NULL);
		set_finish(k);
		row = read_floats(C1, p->ldc);
		check(same_bits(row, c + m * p->ldc, p->N));
	}
	same_as_generic(w, "product", number, c, (size_t)p->M * p->ldc * 4);
	case_end();
}

/* ---- experts ---- */

/* Weights of an MLP: [experts + 1][rows][K], the shared expert last; unused parts are 0. */
struct mlp_weights {
	float *gate, *up, *down;
	uint32_t D, act_ld; /* row lengths, padded */
	cl_mem gate_up_experts, gate_up_shared, down_experts, down_shared;
};

static uint32_t expert_size(const struct kernel_mlp *m, uint32_t e)
{
	return e < m->experts ? m->expert_size : m->shared_size;
}

static float *gate_of(const struct mlp_weights *W, float *all, uint32_t e)
{
	return all + (size_t)e * W->act_ld * W->D;
}

/* The down projection of expert e, whose rows are as long as its own padded size. */
static float *down_of(const struct mlp_weights *W, uint32_t e)
{
	return W->down + (size_t)e * W->D * W->act_ld;
}

static void fill(float *m, uint32_t rows, uint32_t cols, uint32_t ld)
{
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t c = 0; c < cols; c++)
			m[r * ld + c] = random_uniform(-1, 1);
}

static struct mlp_weights make_mlp(struct kernels *k, const struct kernel_mlp *m)
{
	const struct kernel_shape *s = kernels_shape(k);
	uint32_t D = KERNEL_LD(s->hidden), I = KERNEL_LD(m->expert_size),
		 S = KERNEL_LD(m->shared_size);
	struct mlp_weights W = {.D = D, .act_ld = MAX(I, S)};
	size_t n = (size_t)(m->experts + 1) * W.act_ld * D;
	struct packed_part *parts = case_alloc(3 * (m->experts + 1), sizeof(*parts)), *at = parts;
	uint32_t E = m->experts;

	W.gate = CASE_FLOATS(n);
	W.up = CASE_FLOATS(n);
	W.down = CASE_FLOATS(n);
	for (uint32_t e = 0; e <= E; e++) {
		fill(gate_of(&W, W.gate, e), expert_size(m, e), s->hidden, D);
		fill(gate_of(&W, W.up, e), expert_size(m, e), s->hidden, D);
		fill(down_of(&W, e), s->hidden, expert_size(m, e), KERNEL_LD(expert_size(m, e)));
	}
	for (uint32_t e = 0; e < E; e++) {
		*at++ = (struct packed_part){gate_of(&W, W.gate, e), I, e * 2 * I / 16, 2};
		*at++ = (struct packed_part){gate_of(&W, W.up, e), I, e * 2 * I / 16 + 1, 2};
	}
	W.gate_up_experts = buffer_packed(k, s->bf16, parts, 2 * E, E * 2 * I / 16, D);
	parts[0] = (struct packed_part){gate_of(&W, W.gate, E), S, 0, 2};
	parts[1] = (struct packed_part){gate_of(&W, W.up, E), S, 1, 2};
	W.gate_up_shared = buffer_packed(k, s->bf16, parts, 2, 2 * S / 16, D);
	for (uint32_t e = 0; e < E; e++)
		parts[e] = (struct packed_part){down_of(&W, e), D, e * D / 16, 1};
	W.down_experts = buffer_packed(k, s->bf16, parts, E, E * D / 16, I);
	parts[0] = (struct packed_part){down_of(&W, E), D, 0, 1};
	W.down_shared = buffer_packed(k, s->bf16, parts, 1, D / 16, S);
	return W;
}

/* From the router's logits to the experts' outputs, for T tokens. */
struct mlp_run {
	float *act, *y; /* [T * slots, act_ld], [T * slots, D] */
	int32_t *rows, *ids;
};

static struct mlp_run run_mlp(const struct way *w, struct kernels *k, uint32_t mlp,
			      const struct mlp_weights *W, const float *router, float *h,
			      uint32_t T)
{
	const struct kernel_mlp *m = &kernels_shape(k)->mlps[mlp];
	uint64_t n = (uint64_t)T * kernel_mlp_slots(m), choices = (uint64_t)T * m->topk;
	cl_mem R = buffer_floats(router, (uint64_t)T * kernel_mlp_router_ld(m));
	cl_mem H = buffer_elements(w, h, (uint64_t)T * W->D), ids = buffer_out(choices * 4);
	cl_mem rows = buffer_out(n * 4), tasks = buffer_out(kernels_task_ints(m, T) * 4);
	cl_mem act = buffer_out_elements(w, n * W->act_ld), y = buffer_out(n * W->D * 4);

	kernel_moe_route(k, mlp, R, ids, buffer_out(choices * 4), rows, tasks, T);
	kernel_moe_gate_up(k, mlp, H, W->gate_up_experts, W->gate_up_shared, tasks, rows, act, T);
	kernel_moe_down(k, mlp, act, W->down_experts, W->down_shared, tasks, rows, y, T);
	set_finish(k);
	return (struct mlp_run){read_elements(w, act, n * W->act_ld), read_floats(y, n * W->D),
				read_ints(rows, n), read_ints(ids, choices)};
}

static void experts(const struct way *w, struct kernels *k, uint32_t mlp, uint32_t T)
{
	const struct kernel_shape *s = kernels_shape(k);
	const struct kernel_mlp *m = &s->mlps[mlp];
	struct mlp_weights W = make_mlp(k, m);
	uint32_t E = kernel_mlp_router_ld(m), slots = kernel_mlp_slots(m), last = T - 1;
	float *router = case_matrix(T, E, E, -1, 1),
	      *h = case_matrix(T, s->hidden, W.D, -0.5f, 0.5f);
	double *want = CASE_DOUBLES(MAX(W.act_ld, W.D));
	struct mlp_run all = run_mlp(w, k, mlp, &W, router, h, T), one;

	for (uint32_t r = 0; r < T * slots; r++) {
		uint32_t at = (uint32_t)all.rows[r], token = at / slots, slot = at % slots;
		uint32_t e =
			slot < m->topk ? (uint32_t)all.ids[token * m->topk + slot] : m->experts;
		uint32_t size = KERNEL_LD(expert_size(m, e));
		float *act = all.act + (size_t)r * W.act_ld;

		reference_gate_up(s->gelu, h + token * W.D, gate_of(&W, W.gate, e),
				  gate_of(&W, W.up, e), size, W.D, W.D, want);
		near_elements(w, act, want, size, BOUND(W.D));
		reference_gemm(act, down_of(&W, e), W.D, size, size, want);
		near(all.y + (size_t)at * W.D, want, W.D, BOUND(size));
	}
	/* The last token alone; its slots lie in another order of rows, its outputs in the same places. */
	one = run_mlp(w, k, mlp, &W, router + last * E, h + last * W.D, 1);
	check(same_bits(one.y, all.y + (size_t)last * slots * W.D, slots * W.D));
	same_as_generic(w, "experts", m->experts * 1000 + T, all.y, (size_t)T * slots * W.D * 4);
	case_end();
}

static void test_products(const struct way *w, struct kernels *k, const struct product *p, size_t n)
{
	static const char *const names[] = {[STORE] = "gemm_store",
					    [ADD] = "gemm_add",
					    [ROUTER] = "the router's product",
					    [PROJECT_STORE] = "gemm_store, rows that generate too",
					    [PROJECT_ADD] = "gemm_add, rows that generate too"};
	unsigned hidden = kernels_shape(k)->hidden;

	for (int kind = STORE; kind < PRODUCT_KINDS; kind++) {
		/* Without tensor cores a projection is a product like the others. */
		bool few = kind >= PROJECT_STORE && w->variant != KERNELS_NVIDIA;

		for (size_t i = few ? n - 1 : 0; i < n; i++) {
			random_seed(i);
			product(w, k, &p[i], (enum product_kind)kind,
				(hidden * 10 + (unsigned)kind) * 100 + (unsigned)i);
		}
		ok_way(w, "%s, %zu shapes%s", names[kind], few ? 1 : n,
		       kernels_shape(k)->dump ? ", kept apart" : "");
	}
}

static void test_experts(const struct way *w, struct kernels *k, const uint32_t *tokens, size_t n)
{
	const struct kernel_shape *s = kernels_shape(k);

	for (uint32_t mlp = 0; mlp < s->n_mlps; mlp++) {
		for (size_t t = 0; t < n; t++) {
			random_seed(tokens[t]);
			experts(w, k, mlp, tokens[t]);
		}
		ok_way(w, "moe_gate_up and moe_down, %u experts", s->mlps[mlp].experts);
	}
}

/* On a CPU the router's product is gemm_store in float, in more blocks of rows than in `products`. A GPU's width has the
 * same program for all shapes and both types of elements, so where it is slow, one set of kernels is enough. */
static void test_router(const struct way *w, struct kernels *k)
{
	const bool gpu = w->width == KERNEL_WIDTH_GPU || w->variant == KERNELS_NVIDIA;
	const bool again = w->bf16 || kernels_shape(k)->hidden != common_shape().hidden;

	if (!gpu || (harness_emulates(w) && again))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(router_products); i++) {
		random_seed(i);
		product(w, k, &router_products[i], ROUTER,
			(kernels_shape(k)->hidden * 10 + ROUTER) * 100 + 90 + (unsigned)i);
	}
	ok_way(w, "the router's product of many rows, %zu shapes", ARRAY_SIZE(router_products));
}

static void test(const struct way *w, struct kernels *k)
{
	static const uint32_t many[] = {1, 5, 70, 200}, few[] = {2};

	if (harness_small()) {
		test_products(w, k, small_products, ARRAY_SIZE(small_products));
		test_experts(w, k, few, ARRAY_SIZE(few));
	} else {
		test_products(w, k, products, ARRAY_SIZE(products));
		test_router(w, k);
		test_experts(w, k, many, ARRAY_SIZE(many));
	}
}

/* Sizes of which kernels for many rows exist: multiples of 128, an MLP without experts whose sums are two chains. */
static void test_tensor_cores(const struct way *w)
{
	static const uint32_t tokens[] = {9, 40, 100, 300};
	struct kernel_shape s = common_shape();
	struct kernels *k;

	if (w->variant != KERNELS_NVIDIA || !w->bf16 || harness_small())
		return;
	s.hidden = 256;
	s.dump = false;
	s.mlps[0].expert_size = 128;
	s.mlps[0].shared_size = 384;
	s.mlps[1].shared_size = 2176;
	k = set_open(w, s);
	if (!k)
		return;
	test_products(w, k, tensor_products, ARRAY_SIZE(tensor_products));
	test_experts(w, k, tokens, ARRAY_SIZE(tokens));
	kernels_close(k);
}

/* Coded weights of many rows are decoded on a thread's stack (generic/gemm.clh). Those of the widest tiles and the longest
 * sums would not fit there. */
static void test_stack(const struct way *w)
{
	static const char text[] =
		"tigon tuning 1\n"
		"*\t*\t*\tx86\tbfloat16\tproduct\t*\t*\t*\ttile_blocks=8\tsame\t-\t-\n";
	static const struct product p = {40, 144, 272, 272, 144};
	struct kernel_shape s = common_shape();
	struct tuning_table *table = NULL;
	struct kernels *k;
	struct err e;

	/* The generic kernels have no such weights, and give the bits. */
	if (!w->bf16 || w->plain || harness_small() ||
	    (w->variant != KERNELS_X86 && w->width != KERNEL_WIDTH_CPU))
		return;
	s.hidden = p.K; /* the cuts of `product` are looked up for the head */
	s.vocab = p.N;
	s.dump = false;
	s.mlps[1].shared_size = 65536;
	check(tuning_parse("table", text, sizeof(text) - 1, &table, &e) == 0);
	k = set_open_tuned(w, s, "gemm.cl", table);
	tuning_free(table);
	if (!k)
		return;
	random_seed(1);
	product(w, k, &p, STORE, 1);
	ok_way(w, "gemm_store, the widest tiles in a model with sums of 65,536 terms");
	kernels_close(k);
}

static void test_way(const struct way *w)
{
	test_tensor_cores(w);
	test_stack(w);
}

const struct kernel_test kernel_test = {
	.programs = "gemm.cl gemm_parts.cl router.cl moe_gemm.cl moe_route.cl gemm_wide.cl",
	.way = test_way,
	.shape = test,
	.packings = true};
