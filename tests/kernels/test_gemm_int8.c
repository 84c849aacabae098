/* gemm_int8.cl: every tile and remainder of a tile; the reference's bits, for any numbers. */
#include <errno.h>
#include <math.h>

#include "base/bits.h"
#include "kernels/int8.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

/* Kinds of numbers: any int8; only the outermost; zeros; huge and tiny scales; a NaN scale. */
enum kind { ANY, OUTERMOST, ZERO, HUGE_SCALES, TINY_SCALES, NOT_A_NUMBER, KINDS };

struct product {
	uint32_t M, N, K; /* not padded */
};

static const struct product products[] = {{1, 16, 16},	  {2, 37, 40},	 {3, 100, 203},
					  {4, 144, 48},	  {5, 272, 64},	 {7, 128, 208},
					  {8, 112, 128},  {9, 390, 300}, {12, 64, 128},
					  {13, 64, 1},	  {16, 500, 97}, {33, 32, 512},
					  {63, 80, 1000}, {64, 144, 33}, {65, 208, 48},
					  {70, 272, 96},  {200, 48, 160}};
static const struct product small_products[] = {{1, 37, 40}, {3, 16, 70}, {9, 16, 16}};

static float scale_of(enum kind kind)
{
	float u = random_uniform(0.5f, 2);

	switch (kind) {
	case HUGE_SCALES: return u * 1e18f;
	case TINY_SCALES: return u * (random_below(2) ? 1e-19f : 1e-17f);
	default: return u;
	}
}

static int8_t number(enum kind kind)
{
	static const int8_t outermost[] = {-128, 127, -127};

	switch (kind) {
	case ZERO: return 0;
	case OUTERMOST: return outermost[random_below(3)];
	default: return (int8_t)random_below(256);
	}
}

/* Rows of int8 and their scales, [rows, K] and [rows, groups]. */
struct numbers {
	int8_t *q;
	float *scales;
};

static struct numbers make(enum kind kind, uint32_t rows, uint32_t K, uint32_t groups)
{
	struct numbers v = {case_alloc((size_t)rows * K, 1), CASE_FLOATS((size_t)rows * groups)};
	bool constant = kind == OUTERMOST && random_below(2);

	for (size_t i = 0; i < (size_t)rows * K; i++)
		v.q[i] = constant && i ? v.q[0] : number(kind);
	for (size_t i = 0; i < (size_t)rows * groups; i++)
		v.scales[i] = scale_of(kind);
	return v;
}

static cl_mem buffer_weights(const struct numbers *v, uint32_t N, uint32_t K, uint32_t group)
{
	const uint64_t bytes = int8_matrix_bytes(N, K, group), words = int8_panel_words(K, group);
	const uint32_t groups = int8_groups(K, group);
	int32_t *packed = case_alloc(bytes, 1);

	for (uint32_t n = 0; n < N; n += 16)
		int8_pack_panel(v->q + (size_t)n * K, K, v->scales + (size_t)n * groups, groups,
				MIN(N - n, 16u), K, group, (uint32_t *)packed + n / 16 * words);
	return buffer_ints(packed, bytes / 4);
}

/* Activations as quantize.cl would write them, lda words apart. */
static cl_mem buffer_rows(const struct numbers *v, uint32_t M, uint32_t K, uint32_t group,
			  uint32_t lda)
{
	const uint32_t padded = KERNEL_LD(K), groups = int8_groups(K, group);
	int32_t *rows = CASE_INTS((size_t)M * lda);

	for (uint32_t m = 0; m < M; m++) {
		int32_t *at = rows + (size_t)m * lda;

		for (uint32_t k = 0; k < padded; k++) {
			int q = k < K ? v->q[(size_t)m * K + k] : 0;

			if (k % group == 0)
				*at++ = (int32_t)float_bits(v->scales[m * groups + k / group]);
			*at = (int32_t)((uint32_t)*at | (uint32_t)(q + 128) << 8 * (k % 4));
			at += k % 4 == 3;
		}
	}
	return buffer_ints(rows, (uint64_t)M * lda);
}

static bool same_number(float a, float b)
{
	return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b));
}

/* Checks one product, stored and added. */
static void product(struct kernels *k, uint32_t group, const struct product *p, enum kind kind)
{
	const uint32_t M = p->M, K = p->K, N = KERNEL_LD(p->N), ldc = N + 16;
	const uint32_t groups = int8_groups(K, group), lda = int8_row_words(K, group) + 1;
	const uint64_t size = (uint64_t)M * ldc;
	const bool keeps = kernels_shape(k)->dump;
	struct numbers a = make(kind, M, K, groups), w = make(kind, p->N, K, groups);
	float *start = case_matrix(M, ldc, ldc, -10, 10), *want = CASE_FLOATS(p->N), *c, *added,
	      *kept;
	cl_mem A, W, C, D, dump = buffer_out(size * 4);

	if (kind == NOT_A_NUMBER)
		a.scales[M / 2 * groups + groups / 2] = NAN;
	A = buffer_rows(&a, M, K, group, lda);
	W = buffer_weights(&w, p->N, K, group);
	C = buffer_out(size * 4);
	D = buffer_floats(start, size);
	kernel_gemm_int8_store(k, A, lda, W, C, ldc, M, N, KERNEL_LD(K));
	kernel_gemm_int8_add(k, A, lda, W, D, ldc, M, N, KERNEL_LD(K), dump);
	set_finish(k);
	c = read_floats(C, size);
	added = read_floats(D, size);
	kept = keeps ? read_floats(dump, size) : c;
	for (uint32_t m = 0; m < M; m++) {
		const float *row = c + (size_t)m * ldc, *sums = added + (size_t)m * ldc;

		reference_gemm_int8(a.q + (size_t)m * K, a.scales + (size_t)m * groups, w.q,
				    w.scales, p->N, K, group, want);
		for (uint32_t n = 0; n < p->N; n++) {
			check(same_number(row[n], want[n]));
			check(same_number(kept[(size_t)m * ldc + n], want[n]));
			check(same_number(sums[n], start[(size_t)m * ldc + n] + want[n]));
			check(isnan(row[n]) == (kind == NOT_A_NUMBER && m == M / 2));
		}
		/* Padding rows of weights give 0, or NaN in the row of NaN; padding between the rows is left alone. */
		for (uint32_t n = p->N; n < N; n++)
			check(row[n] == 0 || (kind == NOT_A_NUMBER && m == M / 2));
		for (uint32_t n = N; n < ldc && !harness_small(); n++)
			check(is_poison(row[n]) && sums[n] == start[(size_t)m * ldc + n]);
	}
	case_end();
}

/* A row has the same bits however many rows come behind it. */
static void counts(struct kernels *k, uint32_t group, uint32_t most)
{
	const uint32_t N = 160, K = 272, lda = int8_row_words(K, group);
	const uint32_t groups = int8_groups(K, group);
	struct numbers a = make(ANY, most, K, groups), w = make(ANY, N, K, groups);
	cl_mem A = buffer_rows(&a, most, K, group, lda), W = buffer_weights(&w, N, K, group);
	cl_mem C = buffer_out((uint64_t)most * N * 4);
	float *all, *some;

	kernel_gemm_int8_store(k, A, lda, W, C, N, most, N, K);
	set_finish(k);
	all = read_floats(C, (uint64_t)most * N);
	for (uint32_t M = 1; M < most; M++) {
		kernel_gemm_int8_store(k, A, lda, W, C, N, M, N, K);
		set_finish(k);
		some = read_floats(C, (uint64_t)M * N);
		check(same_bits(some, all, (size_t)M * N));
	}
	case_end();
}

/* From floats to floats: quantised on both sides, and near to the product of the floats. */
static void floats(const struct way *way, struct kernels *k, uint32_t group)
{
	const uint32_t M = 9, N = harness_small() ? 16 : 48, K = harness_small() ? 128 : 512;
	const uint32_t words = int8_row_words(K, group), groups = int8_groups(K, group);
	float *x = case_matrix(M, K, K, -1, 1), *v = case_matrix(N, K, K, -1, 1), *c;
	float *want = CASE_FLOATS(N), *scales = CASE_FLOATS(groups);
	double *exact = CASE_DOUBLES(N);
	int8_t *q = case_alloc(K, 1);
	struct numbers w = {case_alloc((size_t)N * K, 1), CASE_FLOATS((size_t)N * groups)};
	cl_mem X = buffer_elements(way, x, (uint64_t)M * K),
	       Q = buffer_out((uint64_t)M * words * 4);
	cl_mem C = buffer_out((uint64_t)M * N * 4);

	for (uint32_t n = 0; n < N; n++)
		int8_quantize(v + (size_t)n * K, K, group, w.q + (size_t)n * K,
			      w.scales + (size_t)n * groups);
	kernel_quantize_rows(k, false, X, K, Q, words, M, K);
	kernel_gemm_int8_store(k, Q, words, buffer_weights(&w, N, K, group), C, N, M, N, K);
	set_finish(k);
	c = read_floats(C, (uint64_t)M * N);
	for (uint32_t m = 0; m < M; m++) {
		reference_quantize(x + (size_t)m * K, K, group, q, scales);
		reference_gemm_int8(q, scales, w.q, w.scales, N, K, group, want);
		check(same_bits(c + (size_t)m * N, want, N));
		reference_gemm(x + (size_t)m * K, v, N, K, K, exact);
		near(c + (size_t)m * N, exact, N, 0.02);
	}
	case_end();
}

static void test_set(const struct way *w, struct kernels *k, uint32_t group)
{
	const struct product *p = harness_small() ? small_products : products;
	const size_t n = harness_small() ? ARRAY_SIZE(small_products) : ARRAY_SIZE(products);

	for (enum kind kind = ANY; kind < KINDS; kind++)
		for (size_t i = 0; i < n; i++) {
			random_seed(kind * 100 + i);
			product(k, group, &p[i], kind);
		}
	ok_way(w, "gemm_int8_store and gemm_int8_add, groups of %u, %zu shapes%s", group, n,
	       kernels_shape(k)->dump ? ", kept apart" : "");
	random_seed(group);
	counts(k, group, harness_small() ? 3 : 200);
	ok_way(w, "groups of %u: rows do not depend on their number", group);
	floats(w, k, group);
	ok_way(w, "groups of %u: from floats to floats", group);
}

static unsigned kernel_countdown; /* the kernel that is not made: 1 is the next; 0: none */
static unsigned released[2];	  /* kernels, programs */

/* The program is linked with -Wl,--wrap (tests/meson.build): a call of NAME becomes one of __wrap_NAME, and __real_NAME
 * is the function of OpenCL. */
cl_kernel __real_clCreateKernel(cl_program program, const char *name, cl_int *code);
cl_int __real_clReleaseKernel(cl_kernel kernel);
cl_int __real_clReleaseProgram(cl_program program);
cl_kernel __wrap_clCreateKernel(cl_program program, const char *name, cl_int *code);
cl_int __wrap_clReleaseKernel(cl_kernel kernel);
cl_int __wrap_clReleaseProgram(cl_program program);

cl_kernel __wrap_clCreateKernel(cl_program program, const char *name, cl_int *code)
{
	if (!kernel_countdown || --kernel_countdown)
		return __real_clCreateKernel(program, name, code);
	*code = CL_OUT_OF_HOST_MEMORY;
	return NULL;
}

cl_int __wrap_clReleaseKernel(cl_kernel kernel)
{
	released[0]++;
	return __real_clReleaseKernel(kernel);
}

cl_int __wrap_clReleaseProgram(cl_program program)
{
	released[1]++;
	return __real_clReleaseProgram(program);
}

/* Opens the int8 products while the second kernel of the second program cannot be made. */
static void test_partial(const struct way *w, struct kernels *k)
{
	struct err e = {0};

	memset(released, 0, sizeof(released));
	kernel_countdown = 4;
	check(kernels_open_int8(k, NULL, 32, &e) < 0 && kernel_countdown == 0);
	check(released[0] == 3 && released[1] == 2);
	ok_way(w, "what fails in the middle leaves no kernels and programs");
}

static void test(const struct way *w)
{
	static const uint32_t groups[] = {32, 128, 96, INT8_GROUP_MAX};
	const size_t n = harness_small() ? 1 : ARRAY_SIZE(groups);

	for (size_t i = 0; i < n; i++) {
		const struct kernel_shape shape = {.hidden = 16,
						   .vocab = 16,
						   .eps = 1e-6f,
						   .dump = i == 0};
		struct kernels *k = set_open(w, shape);
		struct err e = {0};

		if (!k)
			return;
		check(kernels_open_int8(k, NULL, 100, &e) == -EINVAL);
		if (i == 0)
			test_partial(w, k);
		if (kernels_open_int8(k, NULL, groups[i], &e) == 0) {
			check(kernels_open_int8(k, NULL, groups[i], &e) == 0);
			check(kernels_open_int8(k, NULL, 64, &e) == -EINVAL);
			test_set(w, k, groups[i]);
		} else
			failed("%s", e.text);
		ok_way(w, "int8 opens for groups of %u, of 100 it does not", groups[i]);
		kernels_close(k);
	}
}

const struct kernel_test kernel_test = {.programs = "quantize.cl gemm_int8.cl", .way = test};
