/* synthesize.cl: synthetic weights, packed and in rows, equal those that the host makes. */
#include <string.h>

#include "kernels/generic/synthetic.clh"
#include "tests/kernels/harness.h"

static float element(uint64_t key, float scale, float offset, uint64_t index)
{
	uint32_t bits = synthetic_bf16(key, scale, offset, index) << 16;
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Checks a matrix of its own, or every stride-th panel, from `first` on, of a larger one. */
static void matrix(const struct way *w, struct kernels *k, uint32_t rows, uint32_t cols,
		   uint32_t first, uint32_t stride)
{
	uint32_t K = KERNEL_LD(cols), panels = CEIL_DIV(rows, 16),
		 all = first + (panels - 1) * stride + 2;
	uint64_t key = (uint64_t)rows << 40 ^ cols, n = (uint64_t)all * K * 16;
	float *weights = CASE_FLOATS((size_t)panels * 16 * K), *want, *got;
	cl_mem W = buffer_out_elements(w, n), packed;

	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t c = 0; c < cols; c++)
			weights[r * K + c] = element(key, 0x1.5p-17f, 0.5f, r * cols + c);
	packed = buffer_packed(k, w->bf16,
			       &(struct packed_part){weights, panels * 16, first, stride}, 1, all,
			       K);
	kernel_synthesize(k, W, first, stride, rows, cols, key, 0x1.5p-17f, 0.5f);
	set_finish(k);
	got = read_elements(w, W, n);
	want = read_elements(w, packed, n);
	for (uint32_t p = 0; p < all; p++) {
		const float *panel = got + (size_t)p * K * 16;

		if (p >= first && (p - first) % stride == 0 && (p - first) / stride < panels)
			check(same_bits(panel, want + (size_t)p * K * 16, K * 16));
		else
			for (uint32_t i = 0; i < K * 16 && !harness_small(); i++)
				check(is_poison(panel[i]));
	}
	case_end();
}

static void table(const struct way *w, struct kernels *k, uint32_t rows, uint32_t cols)
{
	uint32_t ld = KERNEL_LD(cols);
	cl_mem T = buffer_out_elements(w, (uint64_t)rows * ld);
	float *got;

	kernel_synthesize_rows(k, T, rows, cols, 42, 0x1.02p-15f, 0);
	set_finish(k);
	got = read_elements(w, T, (uint64_t)rows * ld);
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t c = 0; c < ld; c++)
			check(got[r * ld + c] ==
			      (c < cols ? element(42, 0x1.02p-15f, 0, (uint64_t)r * cols + c) : 0));
	case_end();
}

static void test(const struct way *w)
{
	struct kernels *k = set_open(w, common_shape());

	if (!k)
		return;
	/* The kernel writes PAIRS, as in the way with plain weights. */
	if (kernels_packing(k) == KERNEL_PACK_CODED) {
		kernels_close(k);
		return;
	}
	matrix(w, k, 1, 16, 0, 1);
	matrix(w, k, 40, 24, 3, 2);
	matrix(w, k, 33, 70, 1, 1);
	if (!harness_small())
		matrix(w, k, 512, 208, 0, 3);
	ok_way(w, "packed matrices");
	table(w, k, 3, 40);
	table(w, k, 70, 16);
	ok_way(w, "rows");
	kernels_close(k);
}

const struct kernel_test kernel_test = {.programs = "synthesize.cl", .way = test, .packings = true};
