/* quantize.cl: rows to int8, the reference's bits in every kind of row. */
#include <math.h>

#include "base/bits.h"
#include "kernels/int8.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

enum kind { UNIFORM, OUTLIER, HUGE, TINY, SUBNORMAL, ZERO, TIES, NOT_FINITE, KINDS };

static float value(enum kind kind, uint32_t row, uint32_t k)
{
	float u = random_uniform(-1, 1);

	switch (kind) {
	case UNIFORM: return u;
	case OUTLIER: return k % 77 == 5 ? 1000 * u : u;
	case HUGE: return u * 3.3e38f;
	case TINY: return u * (k < 64 ? 0x1p-117f : 0x1p-119f);
	case SUBNORMAL: return u * 1e-39f;
	case ZERO: return k % 2 ? -0.0f : 0.0f;
	case TIES: return k % 25 == 3 ? -127 : (float)(k % 9) / 2 - 2;
	case NOT_FINITE: return k == row % 7 ? NAN : k == 40 ? INFINITY : k == 75 ? -INFINITY : u;
	case KINDS: break;
	}
	return 0;
}

static bool same_scale(float a, float b)
{
	return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b));
}

static void rows(const struct way *w, struct kernels *k, uint32_t group, bool floats, uint32_t M,
		 uint32_t K, enum kind kind)
{
	static const struct way float_way = {.bf16 = false};
	const struct way *type = floats ? &float_way : w;
	const uint32_t padded = KERNEL_LD(K), ldx = padded + 16, words = int8_row_words(K, group);
	const uint32_t ldq = words + 3;
	float *x = CASE_FLOATS((size_t)M * ldx), *scales = CASE_FLOATS(int8_groups(K, group));
	int8_t *want = case_alloc(padded, 1);
	cl_mem X, Q = buffer_out((uint64_t)M * ldq * 4);
	const int32_t *q;

	random_seed(kind + 1);
	for (uint32_t m = 0; m < M; m++)
		for (uint32_t i = 0; i < K; i++)
			x[(size_t)m * ldx + i] = value(kind, m, i);
	X = buffer_elements(type, x, (uint64_t)M * ldx);
	kernel_quantize_rows(k, floats, X, ldx, Q, ldq, M, padded);
	set_finish(k);
	q = read_ints(Q, (uint64_t)M * ldq);
	for (uint32_t m = 0; m < M; m++) {
		const uint32_t *at = (const uint32_t *)q + (size_t)m * ldq;

		reference_quantize(x + (size_t)m * ldx, padded, group, want, scales);
		for (uint32_t i = 0, g = 0; i < padded; g++) {
			uint32_t end = MIN(i + group, padded);

			check(same_scale(bits_float(*at++), scales[g]));
			for (; i < end; i += 4, at++)
				for (uint32_t b = 0; b < 4; b++)
					check((int)(*at >> 8 * b & 0xff) - 128 == want[i + b]);
		}
		/* Padding between the rows is left alone. */
		for (uint32_t i = 0; i < ldq - words && !harness_small(); i++)
			check(is_poison(bits_float(at[i])));
	}
	case_end();
}

static void test(const struct way *w)
{
	static const uint32_t groups[] = {32, 96, 128, INT8_GROUP_MAX};
	static const uint32_t sizes[] = {1, 16, 100, 128, 203, 1024};
	const struct kernel_shape shape = {.hidden = 16, .vocab = 16, .eps = 1e-6f};
	size_t n_groups = harness_small() ? 2 : ARRAY_SIZE(groups);
	size_t n_sizes = harness_small() ? 3 : ARRAY_SIZE(sizes);

	for (size_t g = 0; g < n_groups; g++) {
		struct kernels *k = set_open(w, shape);
		struct err e = {0};

		if (!k)
			return;
		if (kernels_open_int8(k, NULL, groups[g], &e) < 0)
			failed("%s", e.text);
		else
			for (size_t s = 0; s < n_sizes; s++)
				for (enum kind kind = UNIFORM; kind < KINDS; kind++)
					for (int floats = 0; floats < 2; floats++)
						rows(w, k, groups[g], floats, s ? 3 : 1, sizes[s],
						     kind);
		ok_way(w, "quantize_rows and quantize_float_rows, groups of %u", groups[g]);
		kernels_close(k);
	}
}

const struct kernel_test kernel_test = {.programs = "quantize.cl", .way = test};
