/* Quantises rows of activations to int8 with a scale a group, symmetric: the input of the int8 products.
 *
 *     scale = amax / 127,   q[k] = rint(x[k] (127 / amax)),   amax = max |x[k]| over a group of GROUP values
 *
 *     x         [rows, ldx], elem_t for quantize_rows, float for quantize_float_rows; zero in padding; in
 *     q         [rows, ldq] words: for each group one word with the scale and then its values, four a word, each as
 *               q + 128 (kernels/int8.h); out
 *     K         values of a row, a multiple of 16; the last group has the remaining ones
 *
 * If amax is below INT8_TINY (2^-118), the scale could be subnormal; then the scale and all values of the group are
 * zero. In a group with a NaN or an infinity the scale is NaN and the values are zero: all results of this row of x are
 * NaN, and no other row is affected.
 *
 * Division is the only operation here that devices may round differently; CPUs round it correctly. On a device that
 * does not, a value halfway between two integers may be rounded to the other one.
 *
 * Whole groups and a shorter last one run through the same code. With two branches, which would have barriers in them,
 * PoCL 3.1 lets some lanes write past the row at a GPU's width.
 *
 * Global size: one work-group for each row. Options: GROUP. Reference: reference_quantize, bit by bit. */
#include "common.clh"

#define INT8_TINY 0x1p-118f

/* Stores the lowest byte of each element of v at p. The 16 bytes are stored as words, because PoCL stores bytes one by
 * one. */
#if VEC == 16
#define STORE_BYTES(v, p) vstore4(as_uint4(convert_uchar16(v)), 0, (__global uint *)(p))
#else
#define STORE_BYTES(v, p) (*(p) = convert_uchar(v))
#endif

/* The bits of |x|, whose order is that of the numbers; infinity and then NaN come above all finite numbers. */
#define MAGNITUDE(x)   (AS_UINTV(x) & 0x7fffffffu)
#define INFINITY_BITS  0x7f800000u

/* 1.5 times 2^23. A small number that is added to it is rounded to the nearest integer, ties to even, and this integer
 * is then in the lowest bits. */
#define ROUNDER	       0x1.8p23f

#define QUANTIZE_ROW(LOAD)                                                                         \
	{                                                                                          \
		GROUP_SCRATCH(scratch);                                                            \
                                                                                                   \
		x += (ulong)GROUP_X * ldx;                                                         \
		q += (ulong)GROUP_X * ldq;                                                         \
		for (uint k = 0; k < K; k += GROUP) {                                              \
			const uint n = MIN_(K - k, (uint)GROUP);                                   \
			__global uchar *out = (__global uchar *)(q + 1);                           \
			uintv most = 0;                                                            \
			float amax, scale, inverse;                                                \
			uint mask;                                                                 \
                                                                                                   \
			FOR_COLUMNS(c, n)                                                          \
				most = max(most, MAGNITUDE(LOAD(x + k + c)));                      \
			amax = group_max(v_max(AS_FLOATV(min(most, (uintv)INFINITY_BITS))), scratch); \
			scale = amax < INFINITY ? amax / 127.0f : NAN;                             \
			inverse = amax < INFINITY ? 127.0f / amax : 0;                             \
			if (amax < INT8_TINY)                                                      \
				scale = inverse = 0;                                               \
			mask = inverse > 0 ? 0xffu : 0; /* a NaN of x becomes zero too */          \
			if (LANE == 0)                                                             \
				*q = as_uint(scale);                                               \
			FOR_COLUMNS(c, n) {                                                        \
				uintv rounded = AS_UINTV(LOAD(x + k + c) * inverse + ROUNDER);     \
                                                                                                   \
				STORE_BYTES((rounded & mask) ^ 128u, out + c);                     \
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
