/* Int8 weights and activations: their layouts, and the packing of weights by the host. No model uses them yet, only
 * `tigon bench kernels --int8` and tests.
 *
 * A row of K values is cut into groups of equal size; the last group has the remaining values. A value is q * scale: q
 * is an int8, and scale is a float that all values of the group share. A product of a row of activations (a) and one of
 * weights (w) is
 *
 *     sum over groups  scale_a scale_w  sum over k in the group  q_a q_w
 *
 * whose inner sum is exact in int32. vpdpbusd adds four products of an unsigned with a signed byte to an int32.
 * Activations are its unsigned side, as q + 128. So the sum is too large by 128 times the sum of the group's weights,
 * which is known when the weights are packed.
 *
 * Packed weights are panels of 16 rows of the weights, which are 16 columns of a product. A panel is words of 4 bytes.
 * For each group of n values it has:
 *
 *     [16] float scales | [16] int32: -128 times a row's sum of q | [n/4][16] words of four q, k ascending
 *
 * One register of 64 bytes is 16 rows x 4 k, and a panel is read from beginning to end.
 *
 * Quantised activations are rows. A row has, for each group of n values:
 *
 *     one float scale | [n/4] words of four bytes q + 128
 *
 * K is padded to a multiple of 16 (KERNEL_LD); q is 0 in the padding. A group is a multiple of 32 values and at most
 * INT8_GROUP_MAX. With a group of K or more, a row has one scale.
 *
 * The usual group is 128, as in quantised checkpoints (compressed-tensors, AWQ, GPTQ), whose scales can then be used
 * unchanged. A packed weight then takes 8.5 bits (groups of 64: 9; of 32, the group of ggml's Q8_0: 10). Each group
 * ends in a conversion, a multiplication and a fused addition in float, so small groups cost speed: products of 64 rows
 * reach 84 % of vpdpbusd's peak on a core of Zen 5 (groups of 64: 76 %, of 32: 68 %). A group of 128 loses little
 * precision: the largest magnitude of 128 normal numbers is some 2.8 deviations, of 32 it is 2.3, and the rounding
 * error grows in proportion to it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum {
	INT8_GROUP_MIN = 32,
	INT8_GROUP_MAX = 65536, /* 255 * 128 * 65536 fits into an int32 */
};

/* A group whose largest magnitude is below this is stored as zeros: its scale, a 127th of the magnitude, could be
 * subnormal, and some devices take subnormal numbers for zero. */
#define INT8_TINY 0x1p-118f

/* Returns whether groups of so many values are allowed. */
bool int8_group_valid(uint32_t group);

/* Returns the number of groups of a row of K values. */
uint32_t int8_groups(uint32_t K, uint32_t group);

/* Return the number of words of 4 bytes of a quantised row of activations, and of a panel of packed weights. Both pad
 * K. */
uint32_t int8_row_words(uint32_t K, uint32_t group);
uint64_t int8_panel_words(uint32_t K, uint32_t group);

/* Returns the bytes of a packed matrix of so many rows, or 0 if they are 2^63 or more. */
uint64_t int8_matrix_bytes(uint64_t rows, uint32_t K, uint32_t group);

/* Quantises one row of K floats to q [K] and scales [int8_groups], like quantize.cl: the scale is a 127th of the
 * group's largest magnitude, and q is rounded to the nearest integer, ties to even. A group whose largest magnitude is
 * below INT8_TINY gets scale 0 and zeros; a group with a NaN or an infinity gets the scale NaN and zeros. */
void int8_quantize(const float *x, uint32_t K, uint32_t group, int8_t *q, float *scales);

/* Packs one panel: `rows` (1 .. 16) rows of K int8 at q, ldq apart, with their scales, lds apart. The values and scales
 * come from a checkpoint or from int8_quantize; any int8 may occur. The rows that a panel of 16 lacks, and the values
 * between K and the padded K, become zeros. Every word of out [int8_panel_words] is written. */
void int8_pack_panel(const int8_t *q, uint64_t ldq, const float *scales, uint64_t lds,
		     uint32_t rows, uint32_t K, uint32_t group, uint32_t *out);
