/* ggml's formats with a scale for 32 elements. d, m: half precision.
 *
 *     Q4_0   d, nibbles [16]              d (q - 8)
 *     Q4_1   d, m, nibbles [16]           d q + m
 *     Q5_0   d, bits [4], nibbles [16]    d (q - 16): bit i of `bits` is bit 4 of code i
 *     Q5_1   d, m, bits [4], nibbles      d q + m
 *     Q8_0   d, int8 [32]                 d q
 *
 * The lower halves of the nibbles' bytes are codes 0..15, the upper halves codes 16..31. */
#include "engine/checkpoint/types/types.h"

#include "engine/checkpoint/types/blocks_internal.h"
#include "engine/checkpoint/types/float16.h"

/* Takes 32 codes of 5 bits apart. */
static inline void split_fives(const uint8_t *bits, const uint8_t *nibbles, uint8_t q[32])
{
	split_nibbles(nibbles, q);
	for (int b = 0; b < 4; b++)
		for (int i = 0; i < 8; i++)
			q[8 * b + i] |= (uint8_t)((bits[b] >> i & 1) << 4);
}

static inline void scale(float d, const uint8_t q[32], int zero, float *out)
{
	for (int i = 0; i < 32; i++)
		out[i] = d * (float)(q[i] - zero);
}

static inline void scale_add(float d, float m, const uint8_t q[32], float *out)
{
	for (int i = 0; i < 32; i++)
		out[i] = d * (float)q[i] + m;
}

static inline void decode_q4_0(const uint8_t *p, float *out)
{
	uint8_t q[32];

	split_nibbles(p + 2, q);
	scale(f16_at(p), q, 8, out);
}

static inline void decode_q4_1(const uint8_t *p, float *out)
{
	uint8_t q[32];

	split_nibbles(p + 4, q);
	scale_add(f16_at(p), f16_at(p + 2), q, out);
}

static inline void decode_q5_0(const uint8_t *p, float *out)
{
	uint8_t q[32];

	split_fives(p + 2, p + 6, q);
	scale(f16_at(p), q, 16, out);
}

static inline void decode_q5_1(const uint8_t *p, float *out)
{
	uint8_t q[32];

	split_fives(p + 4, p + 8, q);
	scale_add(f16_at(p), f16_at(p + 2), q, out);
}

static inline void decode_q8_0(const uint8_t *p, float *out)
{
	int8_t q[32];
	float d = f16_at(p);

	memcpy(q, p + 2, sizeof(q));
	for (int i = 0; i < 32; i++)
		out[i] = d * (float)q[i];
}

DECODE_BLOCKS(q4_0_to_float, 32, 18, decode_q4_0)
DECODE_BLOCKS(q4_1_to_float, 32, 20, decode_q4_1)
DECODE_BLOCKS(q5_0_to_float, 32, 22, decode_q5_0)
DECODE_BLOCKS(q5_1_to_float, 32, 24, decode_q5_1)
DECODE_BLOCKS(q8_0_to_float, 32, 34, decode_q8_0)
