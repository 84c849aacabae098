/*
 * Rows of activations to int8 with a scale a group, symmetric: what the int8 products take.
 *
 *     quantize_rows         x [rows, ldx] elem_t
 *     quantize_float_rows   the same of floats, whatever the elements are
 *
 *     scale = amax / 127,   q[k] = rint(x[k] (127 / amax)),   amax = max |x[k]| over the group of GROUP values of k
 *
 * out [rows, ldq] words: for each group one word with the scale and then its values, four a word, each as q + 128
 * (int8.h). K is a multiple of 16, the last group is what is left; x is zero in padding, which gives zeros.
 *
 * A group whose amax is below INT8_TINY (2^-118), where 127 / amax would leave floats, is zero with scale 0. In one
 * with a NaN or an infinity the scale is NaN and values are zero: all results of such a row are NaN, and no other's.
 *
 * A division is the only operation here that a device may round in a way of its own (CPUs do not): then a value
 * halfway between two may become the other one.
 *
 * Global size: a group of lanes a row. Options: GROUP. Reference: reference_quantize, bit by bit.
 */
#include "common.clh"

#define INT8_TINY 0x1p-118f

#if VEC == 16
#define CONVERT_UCHARV convert_uchar16
#define CONVERT_INTV   convert_int16
#else
#define CONVERT_UCHARV convert_uchar
#define CONVERT_INTV   convert_int
#endif

/* |x|, but infinity for NaN, which fmax would pass over. */
static inline floatv magnitude(floatv x)
{
	return select((floatv)INFINITY, fabs(x), x == x);
}

#define QUANTIZE_ROW(LOAD)                                                                         \
	{                                                                                          \
		GROUP_SCRATCH(scratch);                                                            \
                                                                                                   \
		x += (ulong)GROUP_X * ldx;                                                         \
		q += (ulong)GROUP_X * ldq;                                                         \
		for (uint k = 0; k < K; k += GROUP) {                                              \
			const uint n = MIN_(K - k, (uint)GROUP);                                   \
			__global uchar *out = (__global uchar *)(q + 1);                           \
			floatv most = 0;                                                           \
			float amax, scale, inverse;                                                \
                                                                                                   \
			FOR_COLUMNS(c, n)                                                          \
				most = fmax(most, magnitude(LOAD(x + k + c)));                     \
			amax = group_max(v_max(most), scratch);                                    \
			scale = amax < INFINITY ? amax / 127.0f : NAN;                             \
			inverse = amax < INFINITY ? 127.0f / amax : 0;                             \
			if (amax < INT8_TINY)                                                      \
				scale = inverse = 0;                                               \
			if (LANE == 0)                                                             \
				*q = as_uint(scale);                                               \
			FOR_COLUMNS(c, n) {                                                        \
				floatv v = LOAD(x + k + c);                                        \
				intv i = CONVERT_INTV(rint(inverse > 0 ? v * inverse : (floatv)0)); \
                                                                                                   \
				V_STORE(CONVERT_UCHARV(i + 128), out + c);                         \
			}                                                                          \
			q += 1 + n / 4;                                                            \
		}                                                                                  \
	}

__kernel GROUP_SIZE void quantize_rows(__global const elem_t *restrict x, uint ldx, __global uint *restrict q, uint ldq,
				       uint K)
	QUANTIZE_ROW(EV_LOAD)

__kernel GROUP_SIZE void quantize_float_rows(__global const float *restrict x, uint ldx, __global uint *restrict q,
					     uint ldq, uint K)
	QUANTIZE_ROW(V_LOAD)
