/* ggml's formats whose codes of 4 bits stand for the numbers T of a table. d: half precision, unless said otherwise.
 *
 *     IQ4_NL   32 elements: d, nibbles [16]                           d T[q]
 *     IQ4_XS   256 elements: d, high [2], low [4], nibbles [128]      d (s - 32) T[q], s: 6 bits for 32 elements
 *     MXFP4    32 elements: e, nibbles [16]                           2^(e - 128) T[q]
 *     NVFP4    64 elements: d [4], nibbles [32]                       d / 2 T[q], d: e4m3 for 16 elements
 *
 * For each 32 elements (NVFP4: 16) the lower halves of the nibbles' bytes are the first codes, the upper halves the
 * others. The scale s of 32 elements j in IQ4_XS has its lower 4 bits in half j of the bytes `low`, its upper 2 bits in
 * `high` from bit 2 j on. The table of MXFP4 and NVFP4 is that of e2m1, doubled (hence the halves in their scales).
 * NVFP4 in a GGUF file has a further scale, in a tensor of its own. */
#include "engine/checkpoint/types/types.h"

#include "engine/checkpoint/types/blocks_internal.h"
#include "engine/checkpoint/types/float16.h"
#include "engine/checkpoint/types/float8.h"

static const int8_t iq4_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
				     1,	   13,	 25,  38,  53,	69,  89,  113};

static inline void look_up(float d, const int8_t table[16], const uint8_t q[32], float *out)
{
	int8_t found[32];

	for (int i = 0; i < 32; i++)
		found[i] = table[q[i]];
	for (int i = 0; i < 32; i++)
		out[i] = d * (float)found[i];
}

static inline void decode_iq4_nl(const uint8_t *p, float *out)
{
	uint8_t q[32];

	split_nibbles(p + 2, q);
	look_up(f16_at(p), iq4_table, q, out);
}

static inline void decode_iq4_xs(const uint8_t *p, float *out)
{
	const uint8_t *low = p + 4, *nibbles = p + 8;
	unsigned high = p[2] | (unsigned)p[3] << 8;
	float d = f16_at(p);

	for (int j = 0; j < 8; j++) {
		int s = (int)((low[j / 2] >> j % 2 * 4 & 15u) | (high >> 2 * j & 3) << 4);
		uint8_t q[32];

		split_nibbles(nibbles + 16 * j, q);
		look_up(d * (float)(s - 32), iq4_table, q, out + 32 * j);
	}
}

static inline void decode_mxfp4(const uint8_t *p, float *out)
{
	uint8_t q[32];

	split_nibbles(p + 1, q);
	look_up(ldexpf(1, p[0] - 128), e2m1_doubled, q, out);
}

static inline void decode_nvfp4(const uint8_t *p, float *out)
{
	for (int s = 0; s < 4; s++) {
		const uint8_t *q = p + 4 + 8 * s;
		/* The scale has no sign. ggml reads the code 0x7f, which is NaN, as 0, and 0xff as 480. */
		float d = (p[s] & 0x7f) != 0x7f ? float_of_e4m3(p[s] & 0x7f)
			  : p[s] == 0x7f	? 0
						: 480;

		for (int i = 0; i < 8; i++) {
			out[16 * s + i] = d * 0.5f * (float)e2m1_doubled[q[i] & 15];
			out[16 * s + 8 + i] = d * 0.5f * (float)e2m1_doubled[q[i] >> 4];
		}
	}
}

DECODE_BLOCKS(iq4_nl_to_float, 32, 18, decode_iq4_nl)
DECODE_BLOCKS(iq4_xs_to_float, 256, 136, decode_iq4_xs)
DECODE_BLOCKS(mxfp4_to_float, 32, 17, decode_mxfp4)
DECODE_BLOCKS(nvfp4_to_float, 64, 36, decode_nvfp4)
