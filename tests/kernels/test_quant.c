/* Quantised weights (kernels/quant.h) in products (gemm.cl, gemm_wide.cl) and as embedding (embed.cl): every type,
 * every tile and remainder of a tile. The bits are the reference's; on tensor cores those of plain panels with the same
 * numbers. */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "kernels/quant_stages.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

struct product {
	uint32_t M, N, K;
};

/* K is a multiple of 256 for types of such blocks: it is rounded up to a multiple of the block. */
static const struct product products[] = {{1, 16, 32},	 {1, 144, 512},	 {3, 80, 256},
					  {5, 32, 544},	 {9, 48, 320},	 {26, 48, 96},
					  {65, 16, 288}, {66, 272, 128}, {34, 48, 1152}};
static const struct product small_products[] = {{1, 16, 32}, {3, 32, 64}, {9, 16, 32}};

/* Random blocks of a type, of rows x K weights. The halves among the bytes are finite, and small enough. */
static uint8_t *random_blocks(const struct quant_type *t, uint32_t rows, uint32_t K)
{
	static const struct {
		const char *name;
		int halves[3]; /* where a block has halves; -1: end */
	} places[] = {
		{"Q8_0", {0, -1}},   {"Q4_0", {0, -1}},	   {"Q4_1", {0, 2, -1}},
		{"Q5_0", {0, -1}},   {"Q5_1", {0, 2, -1}}, {"Q2_K", {80, 82, -1}},
		{"Q3_K", {108, -1}}, {"Q4_K", {0, 2, -1}}, {"Q5_K", {0, 2, -1}},
		{"Q6_K", {208, -1}}, {"IQ4_NL", {0, -1}},  {"IQ4_XS", {0, -1}},
	};
	uint64_t n = (uint64_t)rows * K / t->block;
	uint8_t *b = case_alloc(n * t->bytes, 1);

	for (uint64_t i = 0; i < n * t->bytes; i++)
		b[i] = (uint8_t)random_below(256);
	for (uint64_t i = 0; i < n; i++) {
		uint8_t *block = b + i * t->bytes;

		for (size_t p = 0; p < ARRAY_SIZE(places); p++)
			for (int j = 0;
			     !strcmp(places[p].name, t->name) && places[p].halves[j] >= 0; j++) {
				/* of both signs, also subnormal: exponents 0 to 19 of 31 */
				uint16_t h =
					(uint16_t)(random_below(2) << 15 | random_below(20) << 10 |
						   random_below(1024));

				memcpy(block + places[p].halves[j], &h, 2);
			}
		for (int j = 0; t->scale == QUANT_FLOAT && j < (t->min ? 2 : 1); j++) {
			float f =
				ldexpf((float)random_below(1 << 24), -24 - (int)random_below(12)) *
				(random_below(2) ? 1 : -1);

			memcpy(block + 4 * j, &f, 4);
		}
		for (uint32_t j = 4; t->table == QUANT_TABLE_E4M3 && j < t->bytes; j++)
			if ((block[j] & 127) == 127) /* NaN */
				block[j] ^= 64;
		if (t->scale == QUANT_E8M0)
			block[0] = (uint8_t)(100 + random_below(40));
	}
	return b;
}

/* A matrix [N, K] of panels of several types, as rows and packed. */
struct matrix {
	const struct quant_type **types; /* of each panel; NULL: plain */
	struct quant_weight *weights;	 /* [N, K], of quantised panels */
	float *plain; /* [N, K]; with stages the decoded numbers of quantised panels too */
	cl_mem packed;
	cl_mem decoded; /* with stages: the same numbers in plain panels alone */
};

static bool in_stages(const struct kernels *k)
{
	return kernels_packing(k) == KERNEL_PACK_STAGES;
}

static uint64_t panel_bytes(const struct way *w, const struct kernels *k,
			    const struct quant_type *t, uint32_t K)
{
	if (in_stages(k))
		return quant_stages_bytes(t, K);
	return t ? quant_panel_bytes(t, K) : QUANT_HEADER + 16ull * K * (w->bf16 ? 2 : 4);
}

static void pack_plain(const struct way *w, const struct kernels *k, float *rows, uint32_t K,
		       uint8_t *out)
{
	struct packed_part part = {rows, 16, 0, 1};

	if (in_stages(k))
		quant_plain_begin(out, K);
	harness_pack(kernels_plain_packing(k), w->bf16, &part, K, out + QUANT_HEADER);
}

/* Packs the numbers of a matrix that is not plain in plain panels. */
static cl_mem pack_decoded(const struct way *w, const struct kernels *k, float *plain, uint32_t n,
			   uint32_t K)
{
	uint64_t at = ROUND_UP((n + 1) * 4ull, 64), bytes = panel_bytes(w, k, NULL, K);
	uint8_t *out = case_alloc(at + n * bytes, 1);

	for (uint32_t p = 0; p <= n; p++)
		((uint32_t *)(void *)out)[p] = (uint32_t)((at + p * bytes) / 64);
	for (uint32_t p = 0; p < n; p++)
		pack_plain(w, k, plain + (size_t)p * 16 * K, K, out + at + p * bytes);
	return buffer_ints((int32_t *)(void *)out, (at + n * bytes) / 4);
}

/* Packs 16 random rows of a type to out and sets their weights. With stages sets their numbers. */
static void pack_random(const struct kernels *k, const struct quant_type *t, uint32_t K,
			struct quant_weight *weights, uint8_t *out, float *plain)
{
	const float factor = t->scale == QUANT_UE4M3 ? 0.75f : 1;
	const uint8_t *blocks = random_blocks(t, 16, K);
	uint8_t *panel = case_alloc(quant_panel_bytes(t, K), 1);
	const void *rows[16];

	for (int r = 0; r < 16; r++)
		rows[r] = blocks + (uint64_t)r * K / t->block * t->bytes;
	check(quant_pack(t, rows, K, factor, panel));
	for (uint32_t i = 0; i < 16 * K; i++)
		weights[i] = quant_weight(t, panel, i / K, i % K);
	if (!in_stages(k)) {
		memcpy(out, panel, quant_panel_bytes(t, K));
		return;
	}
	check(quant_pack_stages(t, rows, K, factor, out));
	for (uint32_t i = 0; i < 16 * K; i++)
		plain[i] = reference_decoded(t, &weights[i]);
}

static struct matrix make_matrix(const struct way *w, const struct kernels *k,
				 const struct quant_type *const *choice, uint32_t n_choice,
				 uint32_t N, uint32_t K)
{
	uint32_t n = N / 16;
	uint64_t at = ROUND_UP((n + 1) * 4ull, 64), all = at;
	struct matrix m = {.types = case_alloc(n, sizeof(*m.types)),
			   .weights = case_alloc((uint64_t)N * K, sizeof(*m.weights)),
			   .plain = case_alloc((uint64_t)N * K, sizeof(float))};
	uint8_t *out;
	uint32_t *table;

	for (uint32_t p = 0; p < n; p++) {
		m.types[p] = choice[n_choice == 1 ? 0 : random_below(n_choice)];
		all += panel_bytes(w, k, m.types[p], K);
	}
	memcpy(m.plain, case_matrix(N, K, K, -1, 1), (size_t)N * K * sizeof(float));
	out = case_alloc(all, 1);
	table = (uint32_t *)(void *)out;
	for (uint32_t p = 0; p < n; p++) {
		const struct quant_type *t = m.types[p];
		float *plain = m.plain + (size_t)p * 16 * K;

		table[p] = (uint32_t)(at / 64);
		if (t)
			pack_random(k, t, K, m.weights + (size_t)p * 16 * K, out + at, plain);
		else
			pack_plain(w, k, plain, K, out + at);
		at += panel_bytes(w, k, t, K);
	}
	table[n] = (uint32_t)(at / 64);
	m.packed = buffer_ints((int32_t *)(void *)out, all / 4);
	m.decoded = in_stages(k) ? pack_decoded(w, k, m.plain, n, K) : NULL;
	return m;
}

/* Rows of inputs (generic/input.clh) of x [M, K], elements already. */
static cl_mem make_inputs(const struct way *w, const struct kernels *k, const float *x, uint32_t M,
			  uint32_t K)
{
	uint64_t ld = kernels_input_ld(kernels_shape(k), K), size = w->bf16 ? 2 : 4;
	uint8_t *out = case_alloc(M * ld * size + 4, 1);

	for (uint32_t m = 0; m < M; m++)
		reference_input(x + (size_t)m * K, K, w->bf16, kernels_shape(k)->int8,
				out + m * ld * size);
	return buffer_ints((int32_t *)(void *)out, M * ld * size / 4);
}

static float want_of(const struct way *w, const struct kernels *k, const struct matrix *m,
		     const float *x, uint32_t n, uint32_t K, double *ret_exact)
{
	const struct quant_type *t = m->types[n / 16];
	const struct quant_weight *q = m->weights + (size_t)n * K;
	double exact = 0;

	for (uint32_t i = 0; i < K; i++) {
		double v = m->plain[(size_t)n * K + i];

		if (t && !m->decoded)
			v = (double)(q[i].code - (float)t->offset) * q[i].scale - q[i].min;
		exact += v * x[i];
	}
	*ret_exact = exact;
	if (!t || m->decoded)
		return NAN;
	if (w->bf16 && t->table == QUANT_TABLE_E4M3)
		return reference_quant_e4m3(q, x, K);
	return kernels_shape(k)->int8 ? reference_quant_int8(t, q, x, K)
				      : reference_quant_float(t, q, x, K);
}

static void product(const struct way *w, struct kernels *k, const struct quant_type *const *choice,
		    uint32_t n_choice, const struct product *p)
{
	uint32_t block = 32, M = p->M, N = p->N, K, ldc = N + 16;
	float *x, *start = case_matrix(M, ldc, ldc, -10, 10), *c, *added, *decoded;
	struct matrix m;
	cl_mem A, C, D, E = buffer_out((uint64_t)M * ldc * 4),
			dump = buffer_out((uint64_t)M * ldc * 4);

	for (uint32_t i = 0; i < n_choice; i++)
		block = choice[i] ? MAX(block, choice[i]->block) : block;
	K = ROUND_UP(p->K, block);
	x = case_matrix(M, K, K, -2, 2);
	for (size_t i = 0; i < (size_t)M * K; i++)
		x[i] = w->bf16 ? bf16_rounded(x[i]) : x[i];
	m = make_matrix(w, k, choice, n_choice, N, K);
	A = make_inputs(w, k, x, M, K);
	C = buffer_out((uint64_t)M * ldc * 4);
	D = buffer_floats(start, (uint64_t)M * ldc);
	kernel_gemm_store(k, false, A, (uint32_t)kernels_input_ld(kernels_shape(k), K), m.packed, C,
			  ldc, M, N, K);
	kernel_gemm_add(k, A, (uint32_t)kernels_input_ld(kernels_shape(k), K), m.packed, D, ldc, M,
			N, K, dump);
	if (m.decoded)
		kernel_gemm_store(k, false, A, (uint32_t)kernels_input_ld(kernels_shape(k), K),
				  m.decoded, E, ldc, M, N, K);
	set_finish(k);
	decoded = m.decoded ? read_floats(E, (uint64_t)M * ldc) : NULL;
	c = read_floats(C, (uint64_t)M * ldc);
	added = read_floats(D, (uint64_t)M * ldc);
	for (uint32_t r = 0; r < M; r++)
		for (uint32_t n = 0; n < N; n++) {
			float got = c[(size_t)r * ldc + n], want;
			double exact;

			want = want_of(w, k, &m, x + (size_t)r * K, n, K, &exact);
			if (decoded)
				check(float_bits(got) == float_bits(decoded[(size_t)r * ldc + n]));
			if (m.types[n / 16] && !decoded)
				check(float_bits(got) == float_bits(want) ||
				      (got == 0 && want == 0));
			else
				check(fabs(got - exact) < 1e-3 * (1 + fabs(exact)));
			check(float_bits(added[(size_t)r * ldc + n]) ==
			      float_bits(start[(size_t)r * ldc + n] + got));
		}
	case_end();
}

static void products_of(const struct way *w, struct kernels *k, const char *name,
			const struct quant_type *const *choice, uint32_t n)
{
	const struct product *p = harness_small() ? small_products : products;
	size_t n_products = harness_small() ? ARRAY_SIZE(small_products) : ARRAY_SIZE(products);

	if (harness_emulates(w))
		n_products = MIN(n_products, 4u);
	else if (n == 1)
		n_products -= MIN(n_products, 2u); /* the last ones are for panels of all types */
	for (size_t i = 0; i < n_products; i++) {
		random_seed(i);
		product(w, k, choice, n, &p[i]);
	}
	ok_way(w, "%s, %s inputs", name, kernels_shape(k)->int8 ? "int8" : "float");
}

/* Embeds each row of a table once, whose panels have the types of a list. */
static void embed(const struct way *w, struct kernels *k, const struct quant_type *const *choice,
		  uint32_t n_choice)
{
	enum { ROWS = 16 * 40 };
	const struct kernel_shape *s = kernels_shape(k);
	const uint32_t D = s->hidden;
	int32_t *step = CASE_INTS(2 * ROWS);
	struct matrix m;
	cl_mem X = buffer_out((uint64_t)ROWS * D * 4);
	float *x;

	random_seed(1);
	m = make_matrix(w, k, choice, n_choice, ROWS, D);
	for (int32_t i = 0; i < ROWS; i++) {
		step[i] = ROWS - 1 - i;
		step[ROWS + i] = i;
	}
	kernel_embed(k, buffer_ints(step, 2 * ROWS), 0, ROWS, buffer_out(4), m.packed,
		     buffer_floats(CASE_FLOATS(s->rotary_dim), s->rotary_dim), X,
		     buffer_out((uint64_t)ROWS * s->rotary_dim * 4), ROWS);
	set_finish(k);
	x = read_floats(X, (uint64_t)ROWS * D);
	for (uint32_t r = 0; r < ROWS; r++)
		for (uint32_t i = 0; i < D; i++) {
			uint32_t row = ROWS - 1 - r;
			const struct quant_type *t = m.types[row / 16];
			struct quant_weight q = m.weights[row * D + i];
			float v = (q.code - (float)t->offset) * q.scale;

			check(x[r * D + i] == (t->min ? v - q.min : v));
		}
	case_end();
	ok_way(w, "embedding of quantised rows");
}

/* Whether a way has this type. Compilers take most of this test's time, about as much for each type. So the narrow CPU's
 * way, and a GPU's on a CPU, have a few types, which together have each way to store a code and a scale. */
static bool has_type(const struct way *w, const struct quant_type *t)
{
	static const char *const few[] = {"Q5_1",  "Q3_K",  "Q4_K",	 "Q6_K",    "IQ4_XS",
					  "MXFP4", "NVFP4", "UINT8_128", "E4M3_128"};
	bool some = w->width != KERNEL_WIDTH_NARROW && !harness_emulates(w);

	for (size_t i = 0; i < ARRAY_SIZE(few); i++)
		some |= !strcmp(few[i], t->name);
	return some;
}

static void test(const struct way *w)
{
	const struct quant_type *all[32] = {NULL};
	struct kernel_shape s = common_shape();
	uint32_t n = 1;

	s.hidden = 256;
	s.quant = 1;
	s.quant_embed = true;
	for (uint32_t i = 1; i < 32; i++)
		if (quant_of(i) && has_type(w, quant_of(i))) {
			all[n++] = quant_of(i);
			s.quant |= 1u << i;
		}
	/* The nvidia variant in bf16 has no int8 inputs. */
	for (int int8 = 0; int8 <= (w->bf16 && w->variant != KERNELS_NVIDIA); int8++) {
		struct kernels *k;

		s.int8 = int8;
		k = set_open(w, s);
		if (!k)
			return;
		for (uint32_t i = 1; i < n && !harness_emulates(w) && !harness_small(); i++)
			products_of(w, k, all[i]->name, &all[i], 1);
		products_of(w, k, "panels of all types", all, n);
		embed(w, k, all + 1, n - 1);
		kernels_close(k);
	}
}

const struct kernel_test kernel_test = {.programs = "gemm.cl gemm_wide.cl embed.cl", .way = test};
