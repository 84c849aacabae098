/* Inputs of products with blocks of int8 (generic/input.clh): the numbers are those of a set without blocks, and the blocks
 * are the reference's, bit for bit. Only norms write them here; tests/test_invariance.c and the goldens see the other
 * writers. */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "kernels/quant.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

enum { TOKENS = 19 };

/* Reads rows of inputs and checks their blocks. Returns the numbers, as bits of elements [rows, D]. */
static const uint16_t *read_inputs(const struct kernels *k, cl_mem mem, uint32_t rows, uint32_t D)
{
	const struct kernel_shape *s = kernels_shape(k);
	uint64_t ld = kernels_input_ld(s, D), bytes = D / 2 * 7;
	const uint8_t *got = (const uint8_t *)read_ints(mem, rows * ld / 2);
	uint16_t *elements = case_alloc((size_t)rows * D, 2);
	uint8_t *want = case_alloc(ld, 2);

	for (uint32_t r = 0; r < rows; r++) {
		float *x = CASE_FLOATS(D);

		memcpy(elements + (size_t)r * D, got + r * ld * 2, D * 2);
		for (uint32_t i = 0; i < D; i++)
			x[i] = bits_float((uint32_t)elements[(size_t)r * D + i] << 16);
		if (!s->int8)
			continue;
		reference_input(x, D, true, true, want);
		for (uint64_t i = 0; i < bytes; i += 4) {
			float scale, wanted;

			memcpy(&scale, got + r * ld * 2 + i, 4);
			memcpy(&wanted, want + i, 4);
			check(float_bits(scale) == float_bits(wanted) ||
			      (i >= 2 * D && (i - 2 * D) % 48 / 8 == 4 && isnan(scale) &&
			       isnan(wanted)) ||
			      i < 2 * D);
		}
	}
	return elements;
}

/* Rows of very different size: zeros, the smallest numbers, one large number among small ones, a NaN, an infinity. */
static float *make_rows(uint32_t D)
{
	float *x = case_matrix(TOKENS, D, D, -1, 1);

	for (uint32_t t = 0; t < TOKENS; t++)
		for (uint32_t c = 0; c < D; c++)
			x[t * D + c] *= t % 5 == 1		? 0
					: t % 5 == 2 && c == 40 ? 1e4f
					: t % 5 == 3		? 1e-38f
								: 1;
	x[7 * D + 3] = NAN;
	x[8 * D + 33] = INFINITY;
	return x;
}

static const uint16_t *norm(struct kernels *k, const float *x, uint32_t D)
{
	int32_t step[1] = {0};
	float *ones = CASE_FLOATS(D);
	uint64_t bytes = TOKENS * kernels_input_ld(kernels_shape(k), D) * 2;
	cl_mem h = buffer_out(bytes), h32 = buffer_out((uint64_t)TOKENS * D * 4);

	for (uint32_t i = 0; i < D; i++)
		ones[i] = 1;
	kernel_rms_norm(k, buffer_ints(step, 1), -1, buffer_floats(x, (uint64_t)TOKENS * D),
			buffer_floats(ones, D), h, h32, TOKENS);
	set_finish(k);
	return read_inputs(k, h, TOKENS, D);
}

static void test(const struct way *w)
{
	static const uint32_t sizes[] = {32, 256, 224};

	if (!w->bf16 || w->variant == KERNELS_NVIDIA)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct kernel_shape s = common_shape();
		struct kernels *plain, *int8;
		const float *x;

		random_seed(i);
		s.hidden = sizes[i];
		plain = set_open(w, s);
		s.quant = 1u << QUANT_Q8_0;
		s.int8 = true;
		int8 = set_open(w, s);
		if (plain && int8) {
			x = make_rows(sizes[i]);
			check(!memcmp(norm(plain, x, sizes[i]), norm(int8, x, sizes[i]),
				      (size_t)TOKENS * sizes[i] * 2));
		}
		case_end();
		ok_way(w, "a norm's blocks of %u numbers", sizes[i]);
		kernels_close(plain);
		kernels_close(int8);
	}
}

const struct kernel_test kernel_test = {.programs = "norm.cl", .way = test};
