#include "kernels/int8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/macros.h"

bool int8_group_valid(uint32_t group)
{
	return group >= INT8_GROUP_MIN && group <= INT8_GROUP_MAX && group % 32 == 0;
}

uint32_t int8_groups(uint32_t K, uint32_t group)
{
	return (uint32_t)CEIL_DIV((uint64_t)K, group);
}

uint32_t int8_row_words(uint32_t K, uint32_t group)
{
	return (uint32_t)(ROUND_UP((uint64_t)K, 16) / 4) + int8_groups(K, group);
}

uint64_t int8_panel_words(uint32_t K, uint32_t group)
{
	return ROUND_UP((uint64_t)K, 16) * 4 + 32 * (uint64_t)int8_groups(K, group);
}

uint64_t int8_matrix_bytes(uint64_t rows, uint32_t K, uint32_t group)
{
	uint64_t panels = rows / 16 + (rows % 16 != 0), bytes;

	if (__builtin_mul_overflow(panels, int8_panel_words(K, group) * 4, &bytes) ||
	    bytes > INT64_MAX)
		return 0;
	return bytes;
}

/* Returns the largest magnitude of n numbers, or infinity if one of them is not finite. */
static float largest(const float *x, uint32_t n)
{
	float most = 0;

	for (uint32_t i = 0; i < n; i++) {
		float v = fabsf(x[i]);

		if (!(v < INFINITY))
			return INFINITY;
		most = v > most ? v : most;
	}
	return most;
}

void int8_quantize(const float *x, uint32_t K, uint32_t group, int8_t *q, float *scales)
{
	for (uint32_t k = 0; k < K; k += group) {
		uint32_t n = MIN(K - k, group);
		float amax = largest(x + k, n), inverse = 127.0f / amax;
		bool zero = amax < INT8_TINY || amax == INFINITY;

		*scales++ = amax == INFINITY ? NAN : zero ? 0 : amax / 127.0f;
		for (uint32_t i = k; i < k + n; i++)
			q[i] = zero ? 0 : (int8_t)rintf(x[i] * inverse);
	}
}

void int8_pack_panel(const int8_t *q, uint64_t ldq, const float *scales, uint64_t lds,
		     uint32_t rows, uint32_t K, uint32_t group, uint32_t *out)
{
	const uint32_t padded = (uint32_t)ROUND_UP((uint64_t)K, 16);

	assert(rows && rows <= 16 && int8_group_valid(group));
	memset(out, 0, int8_panel_words(K, group) * 4);
	for (uint32_t k = 0, g = 0; k < K; k += group, g++) {
		uint32_t n = MIN(K - k, group);

		for (uint32_t r = 0; r < rows; r++) {
			uint8_t *bytes = (uint8_t *)(out + 32);
			int32_t sum = 0;

			for (uint32_t i = 0; i < n; i++) {
				int8_t v = q[r * ldq + k + i];

				bytes[(i / 4 * 16 + r) * 4 + i % 4] = (uint8_t)v;
				sum += v;
			}
			out[r] = float_bits(scales[r * lds + g]);
			out[16 + r] = (uint32_t)(-128 * sum);
		}
		out += 32 + (uint64_t)MIN(padded - k, group) * 4;
	}
}
