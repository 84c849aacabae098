/* ggml's K formats: blocks of 256 elements, divided into sub-blocks whose scales are whole numbers of few bits, times
 * the block's scale d (half precision). In Q2_K, Q4_K and Q5_K each sub-block has a minimum too, times dmin.
 *
 *     Q2_K   scales [16], quarters [64], d, dmin          d s q - dmin m: a byte of scales is s | m << 4
 *     Q3_K   bits [32], quarters [64], scales [12], d     d (s - 32) (q - 4): `bits` has bit 2 of q
 *     Q4_K   d, dmin, scales [12], nibbles [128]          d s q - dmin m (k_scales of blocks_internal.h)
 *     Q5_K   d, dmin, scales [12], bits [32], nibbles     the same: `bits` has bit 4 of q
 *     Q6_K   nibbles [128], quarters [64], int8 [16], d   d s (q - 32): `quarters` has bits 4 and 5 of q
 *
 * Sub-blocks have 32 elements in Q4_K and Q5_K, else 16. The block's elements are in runs of 32. quarters: bits 2 k and
 * 2 k + 1 of byte 32 h + l belong to element l of run 4 h + k. bits: bit k of byte l belongs to element l of run k.
 * nibbles of Q4_K and Q5_K: byte 32 h + l has element l of run 2 h in its lower half, and of run 2 h + 1 in the upper.
 * nibbles of Q6_K: byte 64 h + 32 k + l has element l of run 4 h + k in its lower half, of run 4 h + 2 + k in the
 * upper. */
#include "engine/checkpoint/types/types.h"

#include "engine/checkpoint/types/blocks_internal.h"
#include "engine/checkpoint/types/float16.h"

static inline void decode_q2_k(const uint8_t *p, float *out)
{
	const uint8_t *scales = p, *quarters = p + 16;
	float d = f16_at(p + 80), dmin = f16_at(p + 82);

	for (int i = 0; i < 256; i += 16, out += 16) {
		const uint8_t *q = quarters + i / 128 * 32 + i % 32;
		int shift = i % 128 / 32 * 2;
		float s = d * (float)(scales[i / 16] & 15);
		float m = dmin * (float)(scales[i / 16] >> 4);

		for (int l = 0; l < 16; l++)
			out[l] = s * (float)(q[l] >> shift & 3) - m;
	}
}

/* Writes the 16 scales of a block of Q3_K, times d. They are numbers of 6 bits: byte j % 8 has the lower 4 bits of scale
 * j (j < 8: in its lower half), and byte 8 + j % 4 the upper 2 bits, from bit j / 4 * 2 on. */
static inline void q3_k_scales(const uint8_t *p, float d, float out[16])
{
	for (int j = 0; j < 16; j++) {
		int low = p[j % 8] >> j / 8 * 4 & 15, high = p[8 + j % 4] >> j / 4 * 2 & 3;

		out[j] = d * (float)((low | high << 4) - 32);
	}
}

static inline void decode_q3_k(const uint8_t *p, float *out)
{
	const uint8_t *bits = p, *quarters = p + 32;
	float scales[16];

	q3_k_scales(p + 96, f16_at(p + 108), scales);
	for (int i = 0; i < 256; i += 16, out += 16) {
		const uint8_t *q = quarters + i / 128 * 32 + i % 32, *h = bits + i % 32;
		int shift = i % 128 / 32 * 2, run = i / 32;
		float s = scales[i / 16];

		for (int l = 0; l < 16; l++)
			out[l] = s * (float)((q[l] >> shift & 3) + (h[l] >> run & 1) * 4 - 4);
	}
}

static inline void decode_q4_k(const uint8_t *p, float *out)
{
	float d = f16_at(p), dmin = f16_at(p + 2);
	uint8_t scales[8], minimums[8];

	k_scales(p + 4, scales, minimums);
	for (int j = 0; j < 8; j++, out += 32) {
		const uint8_t *q = p + 16 + j / 2 * 32;
		float s = d * (float)scales[j], m = dmin * (float)minimums[j];
		int shift = j % 2 * 4;

		for (int l = 0; l < 32; l++)
			out[l] = s * (float)(q[l] >> shift & 15) - m;
	}
}

static inline void decode_q5_k(const uint8_t *p, float *out)
{
	float d = f16_at(p), dmin = f16_at(p + 2);
	uint8_t scales[8], minimums[8];
	const uint8_t *bits = p + 16;

	k_scales(p + 4, scales, minimums);
	for (int j = 0; j < 8; j++, out += 32) {
		const uint8_t *q = p + 48 + j / 2 * 32;
		float s = d * (float)scales[j], m = dmin * (float)minimums[j];
		int shift = j % 2 * 4;

		for (int l = 0; l < 32; l++)
			out[l] = s * (float)((q[l] >> shift & 15) + (bits[l] >> j & 1) * 16) - m;
	}
}

static inline void decode_q6_k(const uint8_t *p, float *out)
{
	const uint8_t *nibbles = p, *quarters = p + 128, *scales = p + 192;
	float d = f16_at(p + 208);

	for (int i = 0; i < 256; i += 16, out += 16) {
		const uint8_t *low = nibbles + i / 128 * 64 + i % 64;
		const uint8_t *high = quarters + i / 128 * 32 + i % 32;
		int shift = i % 128 / 64 * 4, high_shift = i % 128 / 32 * 2;
		float s = d * (float)(int8_t)scales[i / 16];

		for (int l = 0; l < 16; l++)
			out[l] = s * (float)((low[l] >> shift & 15) +
					     (high[l] >> high_shift & 3) * 16 - 32);
	}
}

DECODE_BLOCKS(q2_k_to_float, 256, 84, decode_q2_k)
DECODE_BLOCKS(q3_k_to_float, 256, 110, decode_q3_k)
DECODE_BLOCKS(q4_k_to_float, 256, 144, decode_q4_k)
DECODE_BLOCKS(q5_k_to_float, 256, 176, decode_q5_k)
DECODE_BLOCKS(q6_k_to_float, 256, 210, decode_q6_k)
