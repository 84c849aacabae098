/* Shared by the files of this folder that read or write ggml's blocks. */
#pragma once

#include <stdint.h>

/* Defines the decoder of a type: `decode` decodes one block of `bytes` bytes to `elements` floats. Loops over a block
 * have constant lengths, because compilers vectorise such loops at -O2 too. */
#define DECODE_BLOCKS(name, elements, bytes, decode)                        \
	void name(const void *from, float *out, size_t n)                   \
	{                                                                   \
		const uint8_t *p = from;                                    \
                                                                            \
		for (; n; n -= (elements), p += (bytes), out += (elements)) \
			decode(p, out);                                     \
	}

/* Takes 32 codes of 4 bits apart: the lower halves of 16 bytes are the first 16 codes, the upper halves the others. */
static inline void split_nibbles(const uint8_t *p, uint8_t q[32])
{
	for (int i = 0; i < 16; i++) {
		q[i] = p[i] & 15;
		q[i + 16] = p[i] >> 4;
	}
}

/* The scales and minimums of the 8 sub-blocks in a block of Q4_K and Q5_K are 16 numbers of 6 bits in 12 bytes. Bytes
 * 0..3 have the scales of sub-blocks 0..3 in their lower 6 bits, bytes 4..7 the minimums of these. Byte 8 + j has the
 * lower 4 bits of the scale and of the minimum of sub-block 4 + j; their upper 2 bits are the upper bits of bytes j and
 * 4 + j. */
static inline void k_scales(const uint8_t *p, uint8_t scales[8], uint8_t minimums[8])
{
	for (int j = 0; j < 4; j++) {
		scales[j] = p[j] & 63;
		minimums[j] = p[4 + j] & 63;
		scales[4 + j] = (uint8_t)((p[8 + j] & 15) | p[j] >> 6 << 4);
		minimums[4 + j] = (uint8_t)(p[8 + j] >> 4 | p[4 + j] >> 6 << 4);
	}
}

static inline void k_scales_put(uint8_t *p, const uint8_t scales[8], const uint8_t minimums[8])
{
	for (int j = 0; j < 4; j++) {
		p[j] = (uint8_t)(scales[j] | scales[4 + j] >> 4 << 6);
		p[4 + j] = (uint8_t)(minimums[j] | minimums[4 + j] >> 4 << 6);
		p[8 + j] = (uint8_t)((scales[4 + j] & 15) | minimums[4 + j] << 4);
	}
}
