#include "kernels/quant.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/quant_block.h"

/* Weights and bytes of a block of each type in a file. */
enum {
	BLOCK_Q8_0 = 32,
	BYTES_Q8_0 = 34,
	BLOCK_Q4_0 = 32,
	BYTES_Q4_0 = 18,
	BLOCK_Q4_1 = 32,
	BYTES_Q4_1 = 20,
	BLOCK_Q5_0 = 32,
	BYTES_Q5_0 = 22,
	BLOCK_Q5_1 = 32,
	BYTES_Q5_1 = 24,
	BLOCK_Q2_K = 256,
	BYTES_Q2_K = 84,
	BLOCK_Q3_K = 256,
	BYTES_Q3_K = 110,
	BLOCK_Q4_K = 256,
	BYTES_Q4_K = 144,
	BLOCK_Q5_K = 256,
	BYTES_Q5_K = 176,
	BLOCK_Q6_K = 256,
	BYTES_Q6_K = 210,
	BLOCK_IQ4_NL = 32,
	BYTES_IQ4_NL = 18,
	BLOCK_IQ4_XS = 256,
	BYTES_IQ4_XS = 136,
	BLOCK_MXFP4 = 32,
	BYTES_MXFP4 = 17,
	BLOCK_NVFP4 = 64,
	BYTES_NVFP4 = 36,
	BLOCK_INT4_32 = 32,
	BYTES_INT4_32 = 20,
	BLOCK_INT4_128 = 128,
	BYTES_INT4_128 = 68,
	BLOCK_UINT4_32 = 32,
	BYTES_UINT4_32 = 24,
	BLOCK_UINT4_128 = 128,
	BYTES_UINT4_128 = 72,
	BLOCK_INT8_32 = 32,
	BYTES_INT8_32 = 36,
	BLOCK_INT8_128 = 128,
	BYTES_INT8_128 = 132,
	BLOCK_UINT8_32 = 32,
	BYTES_UINT8_32 = 40,
	BLOCK_UINT8_128 = 128,
	BYTES_UINT8_128 = 136,
	BLOCK_E4M3_128 = 32,
	BYTES_E4M3_128 = 36,
};

static const struct quant_type types[] = {
#define TYPE(name_, number_, chunk_, low_, high_, group_, scale_, min_, offset_, table_) \
	{.name = #name_,                                                                 \
	 .number = number_,                                                              \
	 .chunk = chunk_,                                                                \
	 .low = low_,                                                                    \
	 .high = high_,                                                                  \
	 .group = group_,                                                                \
	 .scale = scale_,                                                                \
	 .table = table_,                                                                \
	 .min = min_,                                                                    \
	 .offset = offset_,                                                              \
	 .block = BLOCK_##name_,                                                         \
	 .bytes = BYTES_##name_},
	QUANT_TYPES(TYPE)
#undef TYPE
};

const struct quant_type *quant_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

const struct quant_type *quant_of(uint32_t number)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].number == number)
			return &types[i];
	return NULL;
}

/* ---- blocks of a file ---- */

static uint16_t u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Codes of 4 bits: the lower halves of n bytes, and then the upper ones. */
static void nibbles(const uint8_t *qs, int n, uint8_t *code)
{
	for (int i = 0; i < n; i++) {
		code[i] = qs[i] & 15;
		code[n + i] = qs[i] >> 4;
	}
}

/* The scales and mins of Q4_K and Q5_K: 8 pairs of 6 bits in 12 bytes. */
static void pairs_of_6(const uint8_t *sc, struct quant_block *b)
{
	for (int j = 0; j < 4; j++) {
		b->s[j] = sc[j] & 63;
		b->mins[j] = sc[j + 4] & 63;
	}
	for (int j = 4; j < 8; j++) {
		b->s[j] = (uint8_t)((sc[j + 4] & 15) | sc[j - 4] >> 6 << 4);
		b->mins[j] = (uint8_t)(sc[j + 4] >> 4 | sc[j] >> 6 << 4);
	}
}

/* The 16 scales of 6 bits of Q3_K, in 12 bytes, as signed numbers. */
static void scales_of_q3(const uint8_t *sc, struct quant_block *b)
{
	for (int j = 0; j < 16; j++) {
		int low = j < 8 ? sc[j] & 15 : sc[j - 8] >> 4;

		b->s[j] = (uint8_t)((low | (sc[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32);
	}
}

static void read_whole_numbers(const struct quant_type *t, const uint8_t *p, struct quant_block *b)
{
	memcpy(&b->scale, p, 4);
	b->min = 0;
	if (t->min)
		memcpy(&b->min, p + 4, 4);
	p += t->min ? 8 : 4;
	if (t->low == 8)
		memcpy(b->code, p, t->block);
	else
		nibbles(p, (int)t->block / 2, b->code);
}

void quant_read_block(const struct quant_type *t, const uint8_t *p, struct quant_block *b)
{
	b->m = 0;
	switch (t->number) {
	case QUANT_Q8_0:
		b->d = u16(p);
		for (int i = 0; i < 32; i++)
			b->code[i] = p[2 + i] ^ 0x80;
		break;
	case QUANT_Q4_0:
	case QUANT_IQ4_NL:
		b->d = u16(p);
		nibbles(p + 2, 16, b->code);
		break;
	case QUANT_Q4_1:
		b->d = u16(p);
		b->m = u16(p + 2) ^ 0x8000; /* the file adds it */
		nibbles(p + 4, 16, b->code);
		break;
	case QUANT_Q5_0:
	case QUANT_Q5_1: {
		const uint8_t *qh = p + (t->min ? 4 : 2);

		b->d = u16(p);
		b->m = t->min ? u16(p + 2) ^ 0x8000 : 0;
		nibbles(qh + 4, 16, b->code);
		for (int i = 0; i < 32; i++)
			b->code[i] |= (uint8_t)((u32(qh) >> i & 1) << 4);
		break;
	}
	case QUANT_Q2_K:
		b->d = u16(p + 80);
		b->m = u16(p + 82);
		for (int j = 0; j < 16; j++) {
			b->s[j] = p[j] & 15;
			b->mins[j] = p[j] >> 4;
		}
		for (int i = 0; i < 256; i++)
			b->code[i] = p[16 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
		break;
	case QUANT_Q3_K:
		b->d = u16(p + 108);
		scales_of_q3(p + 96, b);
		for (int i = 0; i < 256; i++)
			b->code[i] =
				(uint8_t)((p[32 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) |
					  (p[i % 32] >> i / 32 & 1) << 2);
		break;
	case QUANT_Q4_K:
	case QUANT_Q5_K: {
		bool five = t->number == QUANT_Q5_K;

		b->d = u16(p);
		b->m = u16(p + 2);
		pairs_of_6(p + 4, b);
		for (int j = 0; j < 4; j++)
			nibbles(p + (five ? 48 : 16) + 32 * j, 32, b->code + 64 * j);
		for (int i = 0; five && i < 256; i++)
			b->code[i] |= (uint8_t)((p[16 + i % 32] >> i / 32 & 1) << 4);
		break;
	}
	case QUANT_Q6_K:
		b->d = u16(p + 208);
		memcpy(b->s, p + 192, 16);
		for (int i = 0; i < 256; i++) {
			int n = i / 128, k = i / 32 % 4, l = i % 32;
			int low = p[64 * n + 32 * (k & 1) + l] >> 4 * (k >> 1) & 15;
			int high = p[128 + 32 * n + l] >> 2 * k & 3;

			b->code[i] = (uint8_t)(low | high << 4);
		}
		break;
	case QUANT_IQ4_XS:
		b->d = u16(p);
		for (int j = 0; j < 8; j++) {
			int low = p[4 + j / 2] >> 4 * (j & 1) & 15;

			b->s[j] = (uint8_t)((low | (u16(p + 2) >> 2 * j & 3) << 4) - 32);
			nibbles(p + 8 + 16 * j, 16, b->code + 32 * j);
		}
		break;
	case QUANT_MXFP4:
		b->s[0] = p[0];
		nibbles(p + 1, 16, b->code);
		break;
	case QUANT_NVFP4:
		for (int s = 0; s < 4; s++) {
			b->s[s] = p[s];
			nibbles(p + 4 + 8 * s, 8, b->code + 16 * s);
		}
		break;
	default: read_whole_numbers(t, p, b);
	}
}

/* Returns a normal f16 number near v > 0. */
static uint16_t f16_near(double v)
{
	int e;
	double m = frexp(v, &e); /* 0.5 <= m < 1 */
	int exponent = e + 14;

	return (uint16_t)(MIN(MAX(exponent, 1), 30) << 10 | (int)((2 * m - 1) * 1024));
}

static void put_u16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

void quant_put_scales(const struct quant_type *t, double scale, double min, void *block)
{
	uint8_t *p = block;
	int e;

	switch (t->number) {
	case QUANT_Q8_0:
	case QUANT_Q4_0:
	case QUANT_IQ4_NL:
	case QUANT_Q5_0: put_u16(p, f16_near(scale)); break;
	case QUANT_Q4_1:
	case QUANT_Q5_1:
		put_u16(p, f16_near(scale));
		put_u16(p + 2, f16_near(min) | 0x8000);
		break;
	case QUANT_Q2_K: /* scales and mins of 4 bits: 15 */
		memset(p, 0xff, 16);
		put_u16(p + 80, f16_near(scale / 15));
		put_u16(p + 82, f16_near(min / 15));
		break;
	case QUANT_Q3_K: /* 63 - 32 */
		memset(p + 96, 0xff, 12);
		put_u16(p + 108, f16_near(scale / 31));
		break;
	case QUANT_Q4_K:
	case QUANT_Q5_K: /* 32 */
		put_u16(p, f16_near(scale / 32));
		put_u16(p + 2, f16_near(min / 32));
		memset(p + 4, 0xa0, 8);
		memset(p + 12, 0, 4);
		break;
	case QUANT_Q6_K:
		memset(p + 192, 32, 16);
		put_u16(p + 208, f16_near(scale / 32));
		break;
	case QUANT_IQ4_XS: /* 63 - 32 */
		put_u16(p, f16_near(scale / 31));
		memset(p + 2, 0xff, 6);
		break;
	case QUANT_MXFP4:
		frexp(scale, &e);
		p[0] = (uint8_t)(e + 127);
		break;
	case QUANT_NVFP4: /* the nearest power of two */
		frexp(2 * scale, &e);
		memset(p, MIN(MAX(e + 6, 0), 15) << 3, 4);
		break;
	default: { /* scales of FLOAT */
		const float of[2] = {(float)scale, (float)min};

		memcpy(p, of, t->min ? 8 : 4);
	}
	}
	for (uint32_t i = 0; t->table == QUANT_TABLE_E4M3 && i < t->block; i++)
		if ((p[4 + i] & 127) == 127) /* NaN */
			p[4 + i] ^= 1;
}

/* ---- packing ---- */

static bool f16_is_finite(uint16_t h)
{
	return (h & 0x7c00) != 0x7c00;
}

bool quant_block_is_finite(const struct quant_type *t, const struct quant_block *b)
{
	switch (t->scale) {
	case QUANT_FLOAT: return isfinite(b->scale) && isfinite(b->min);
	case QUANT_E8M0: return b->s[0] != 255;
	case QUANT_UE4M3: return true;
	default: return f16_is_finite(b->d) && f16_is_finite(b->m);
	}
}

/* Stores the scales of a block that begins at weight k of a chunk. */
static void put_scales(const struct quant_type *t, const struct quant_block *b, uint32_t k,
		       uint32_t row, uint8_t *chunk)
{
	uint32_t groups = t->chunk / t->group, n = MAX(t->block / t->group, 1u), g = k / t->group;
	uint16_t *half = (uint16_t *)chunk;
	uint8_t *bytes = t->scale == QUANT_SUPER ? chunk + 64 : chunk;
	float *whole = (float *)(void *)chunk;

	if (t->scale == QUANT_FLOAT) {
		whole[g * 16 + row] = b->scale;
		if (t->min)
			whole[(groups + g) * 16 + row] = b->min;
		return;
	}
	if (t->scale == QUANT_HALF) {
		half[g * 16 + row] = b->d;
		if (t->min)
			half[(groups + g) * 16 + row] = b->m;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		bytes[(g + i) * 16 + row] = b->s[i];
		if (t->min)
			bytes[(groups + g + i) * 16 + row] = b->mins[i];
	}
	if (t->scale == QUANT_SUPER) {
		half[row] = b->d;
		half[16 + row] = t->min ? b->m : 0;
	}
}

/* Stores `bits` bits, from bit `from` on, of the codes of a whole chunk's row into a plane. */
static void put_plane(const uint8_t *code, uint32_t n, uint32_t bits, uint32_t from, uint32_t row,
		      uint8_t *plane)
{
	uint32_t quads = 8 / bits, mask = ((1u << bits) - 1) * 0x01010101u;
	uint32_t *to = (uint32_t *)plane + row;

	for (uint32_t q = 0; q < n / 4; q += quads, to += 16) {
		uint32_t word = 0;

		for (uint32_t j = 0; j < quads && q + j < n / 4; j++) {
			uint32_t four;

			memcpy(&four, code + 4 * (q + j), 4);
			word |= (four >> from & mask) << bits * j;
		}
		*to = word;
	}
}

static uint32_t scale_bytes(const struct quant_type *t)
{
	return QUANT_SCALES(t->chunk, t->group, t->scale, t->min);
}

static uint32_t chunk_bytes(const struct quant_type *t)
{
	return QUANT_CHUNK(t->chunk, t->low, t->high, t->group, t->scale, t->min);
}

uint64_t quant_panel_bytes(const struct quant_type *t, uint64_t K)
{
	return QUANT_HEADER + CEIL_DIV(K, (uint64_t)t->chunk) * chunk_bytes(t);
}

bool quant_pack(const struct quant_type *t, const void *const rows[16], uint64_t K, float factor,
		void *out)
{
	uint32_t number = t->number;
	uint8_t *chunk = (uint8_t *)out + QUANT_HEADER, code[256];
	bool finite = isfinite(factor);

	memset(out, 0, quant_panel_bytes(t, K));
	memcpy(out, &number, 4);
	memcpy((uint8_t *)out + 4, &factor, 4);
	for (uint64_t k = 0; k < K; k += t->chunk, chunk += chunk_bytes(t))
		for (uint32_t row = 0; row < 16; row++) {
			uint32_t n = (uint32_t)MIN(K - k, (uint64_t)t->chunk);

			if (!rows[row])
				continue;
			for (uint32_t i = 0; i < n; i += t->block) {
				struct quant_block b;

				quant_read_block(t,
						 (const uint8_t *)rows[row] +
							 (k + i) / t->block * t->bytes,
						 &b);
				finite &= quant_block_is_finite(t, &b);
				put_scales(t, &b, i, row, chunk);
				memcpy(code + i, b.code, t->block);
			}
			put_plane(code, n, t->low, 0, row, chunk + scale_bytes(t));
			if (t->high)
				put_plane(code, n, t->high, t->low, row,
					  chunk + scale_bytes(t) + t->chunk * 2 * t->low);
		}
	return finite;
}

/* ---- reading a panel, for references ---- */

static float float_of_f16(uint16_t h)
{
	int e = h >> 10 & 31;
	float f = ldexpf((float)((h & 1023) | (e ? 1024 : 0)), MAX(e, 1) - 25);

	return h & 0x8000 ? -f : f;
}

static float float_of_ue4m3(uint8_t v)
{
	int e = v >> 3 & 15;

	if (v == 0 || v == 127)
		return 0;
	return e ? ldexpf((float)(8 + (v & 7)), e - 10) : ldexpf((float)(v & 7), -9);
}

static float float_of_e4m3(int code)
{
	int e = code >> 3 & 15;
	float f = ldexpf((float)((code & 7) | (e ? 8 : 0)), MAX(e, 1) - 10);

	return code & 128 ? -f : f;
}

static float table_value(const struct quant_type *t, int code)
{
	static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
				       1,    13,   25,	38,  53,  69,  89,  113};
	static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

	if (t->table == QUANT_TABLE_NONE)
		return (float)code;
	if (t->table == QUANT_TABLE_E4M3)
		return float_of_e4m3(code);
	return (float)(t->offset + (t->table == QUANT_TABLE_IQ4 ? iq4 : e2m1)[code]);
}

static int take_bits(const uint8_t *plane, uint32_t bits, uint32_t row, uint32_t k)
{
	uint32_t quads = 8 / bits, q = k / 4;

	return plane[(q / quads * 16 + row) * 4 + k % 4] >> q % quads * bits & ((1 << bits) - 1);
}

struct quant_weight quant_weight(const struct quant_type *t, const void *panel, uint32_t row,
				 uint64_t k)
{
	const uint8_t *chunk =
		(const uint8_t *)panel + QUANT_HEADER + k / t->chunk * chunk_bytes(t);
	const uint16_t *half = (const uint16_t *)chunk;
	const float *whole = (const float *)(const void *)chunk;
	const uint8_t *bytes = t->scale == QUANT_SUPER ? chunk + 64 : chunk;
	const uint8_t *low = chunk + scale_bytes(t);
	uint32_t i = (uint32_t)(k % t->chunk), g = i / t->group, groups = t->chunk / t->group;
	struct quant_weight w = {0};
	float factor;
	int code;

	memcpy(&factor, (const uint8_t *)panel + 4, 4);
	code = take_bits(low, t->low, row, i);
	if (t->high)
		code |= take_bits(low + t->chunk * 2 * t->low, t->high, row, i) << t->low;
	w.code = table_value(t, code);
	switch (t->scale) {
	case QUANT_FLOAT:
		w.scale = whole[g * 16 + row];
		w.min = t->min ? whole[(groups + g) * 16 + row] : 0;
		break;
	case QUANT_HALF:
		w.scale = float_of_f16(half[g * 16 + row]);
		w.min = t->min ? float_of_f16(half[(groups + g) * 16 + row]) : 0;
		break;
	case QUANT_SUPER:
		w.scale = float_of_f16(half[row]) * (float)(int8_t)bytes[g * 16 + row];
		w.min = t->min ? float_of_f16(half[16 + row]) *
					 (float)bytes[(groups + g) * 16 + row]
			       : 0;
		break;
	case QUANT_E8M0: w.scale = ldexpf(1, bytes[g * 16 + row] - 128); break;
	case QUANT_UE4M3: w.scale = 0.5f * float_of_ue4m3(bytes[g * 16 + row]) * factor; break;
	}
	return w;
}
