/* Rows of quantised weights as blocks of the types that kernels read (kernels/quant.h).
 *
 * A weight of a block is the float that the decoder makes (quantised_read), to the last bit:
 *
 *     INT     (code - 2^(bits - 1)) * scale, as in the decoder
 *     UINT    code * scale - zero * scale. A scale of f16 or bf16 has at most 11 bits, a code and a zero have 8, so
 *             that both products and their difference are floats exactly. Weights with other scales are read as floats.
 *     MXFP4   the table's numbers are doubled, and the scales are halved
 *     NVFP4   the same. Where the common scale divides, its reciprocal is the factor: unless it is a power of two,
 *             three roundings stand in place of two, and a weight differs by less than 5 / 2^24 of itself.
 *     E4M3    code * scale, as in the decoder. A code that is NaN has no such panels (quantised_blocks). */
#include "engine/checkpoint/quantised/format.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/quant.h"

/* ---- the type ---- */

/* Whether all zeros are in the middle of the codes: in every format the bytes of the tensor are then equal, and so are
 * the halves of a byte with two. */
static bool zeros_are_middle(const struct quantised *q)
{
	const uint8_t *z = q->zeros ? q->zeros->data : NULL;

	if (!z)
		return true;
	return q->format->zero(q, 0, 0) == 1u << (q->bits - 1) &&
	       (q->bits == 8 || (z[0] & 15) == z[0] >> 4) && !memcmp(z, z + 1, q->zeros->bytes - 1);
}

static const struct quant_type *type_of_whole(const struct quantised *q)
{
	bool wide = q->group_cols % 128 == 0, brief;

	if (q->group_cols % 32 || q->bits == 2)
		return NULL;
	if (zeros_are_middle(q))
		return quant_find(q->bits == 4 ? wide ? "INT4_128" : "INT4_32"
				  : wide       ? "INT8_128"
					       : "INT8_32");
	brief = tensor_is(q->scales, "F16") || tensor_is(q->scales, "BF16");
	if (!brief || q->common)
		return NULL;
	return quant_find(q->bits == 4 ? wide ? "UINT4_128" : "UINT4_32"
			  : wide       ? "UINT8_128"
				       : "UINT8_32");
}

static const struct quant_type *type_of_e2m1(const struct quantised *q)
{
	if (tensor_is(q->scales, "F8_E4M3"))
		return q->group_cols % 16 ? NULL : quant_find("NVFP4");
	if (tensor_is(q->scales, "F8_E8M0") || tensor_is(q->scales, "U8"))
		return q->group_cols % 32 || q->common ? NULL : quant_find("MXFP4");
	return NULL;
}

/* A scale is for 128 columns of a panel. Where a row has one scale, all of its columns have it. */
static const struct quant_type *type_of_e4m3(const struct quantised *q)
{
	return (q->groups == 1 || q->group_cols % 128 == 0) && !q->common ? quant_find("E4M3_128")
									  : NULL;
}

const struct quant_type *quantised_type(const struct quantised *q)
{
	const struct quant_type *t = NULL;

	if (!q->order && q->code == QUANTISED_WHOLE)
		t = type_of_whole(q);
	else if (!q->order && q->code == QUANTISED_E2M1)
		t = type_of_e2m1(q);
	else if (!q->order)
		t = type_of_e4m3(q);
	return t && q->cols % t->block == 0 ? t : NULL;
}

float quantised_factor(const struct quantised *q, uint64_t row)
{
	float common = quantised_common(q, row);

	return q->divides ? 1 / common : common;
}

/* ---- blocks ---- */

/* Writes n codes of 4 bits, those of the first half in the lower halves of n / 2 bytes. */
static void put_nibbles(const uint8_t *codes, uint32_t n, uint8_t *out)
{
	for (uint32_t i = 0; i < n / 2; i++)
		out[i] = (uint8_t)(codes[i] | codes[n / 2 + i] << 4);
}

static bool put_whole(const struct quantised *q, const struct quant_type *t, uint64_t row,
		      uint64_t col, const uint8_t *codes, uint8_t *out)
{
	float scale, min;
	uint8_t zero;

	quantised_scales(q, row, col / q->group_cols, 1, &scale, &zero);
	memcpy(out, &scale, 4);
	out += 4;
	if (t->min) {
		min = (float)zero * scale;
		memcpy(out, &min, 4);
		out += 4;
	}
	if (t->low == 4)
		put_nibbles(codes, t->block, out);
	else
		memcpy(out, codes, t->block);
	/* code * scale must not become infinite where the difference is not. */
	return isfinite(t->min ? 256 * scale : scale);
}

static uint8_t scale_byte(const struct quantised *q, uint64_t row, uint64_t col)
{
	return ((const uint8_t *)
			q->scales->data)[quantised_scale_place(q, row, col / q->group_cols)];
}

static bool put_e4m3(const struct quantised *q, uint64_t row, uint64_t col, const uint8_t *codes,
		     uint8_t *out)
{
	bool finite = true;
	float scale;

	quantised_scales(q, row, col / q->group_cols, 1, &scale, NULL);
	memcpy(out, &scale, 4);
	memcpy(out + 4, codes, 32);
	for (int i = 0; i < 32; i++)
		finite &= (codes[i] & 127) != 127;
	/* The largest number must not become infinite. */
	return finite && isfinite(448 * scale);
}

static bool put_mxfp4(const struct quantised *q, uint64_t row, uint64_t col, const uint8_t *codes,
		      uint8_t *out)
{
	out[0] = scale_byte(q, row, col);
	put_nibbles(codes, 32, out + 1);
	return out[0] != 0xff;
}

/* Kernels read scales without a sign, so that of a scale goes to its codes. */
static bool put_nvfp4(const struct quantised *q, uint64_t row, uint64_t col, uint8_t *codes,
		      uint8_t *out)
{
	bool finite = true;

	for (uint32_t s = 0; s < 4; s++, codes += 16) {
		uint8_t byte = scale_byte(q, row, col + 16 * s);

		for (int i = 0; i < 16; i++)
			codes[i] ^= byte >> 7 << 3;
		out[s] = byte & 0x7f;
		finite &= out[s] != 0x7f;
		put_nibbles(codes, 16, out + 4 + 8 * s);
	}
	return finite;
}

bool quantised_blocks(const struct quantised *q, const struct quant_type *t, uint64_t row,
		      uint64_t n, void *out)
{
	enum { STRIP = 16, TILE = 128 }; /* a multiple of every block here */
	uint64_t row_bytes = q->cols / t->block * t->bytes;
	uint8_t codes[STRIP][TILE];
	bool finite = true;

	for (uint64_t strip = 0; strip < n; strip += STRIP)
		for (uint64_t c = 0; c < q->cols; c += TILE) {
			uint64_t rows = MIN(n - strip, (uint64_t)STRIP);
			uint64_t cols = MIN(q->cols - c, (uint64_t)TILE);

			quantised_codes(q, row + strip, rows, c, cols, codes[0], TILE);
			for (uint64_t r = 0; r < rows; r++)
				for (uint64_t i = 0; i < cols; i += t->block) {
					uint64_t at = row + strip + r;
					uint8_t *to = (uint8_t *)out + (strip + r) * row_bytes +
						      (c + i) / t->block * t->bytes;

					if (t->table == QUANT_TABLE_E4M3)
						finite &= put_e4m3(q, at, c + i, codes[r] + i, to);
					else if (t->scale == QUANT_FLOAT)
						finite &= put_whole(q, t, at, c + i, codes[r] + i,
								    to);
					else if (t->scale == QUANT_E8M0)
						finite &= put_mxfp4(q, at, c + i, codes[r] + i, to);
					else
						finite &= put_nvfp4(q, at, c + i, codes[r] + i, to);
				}
		}
	return finite;
}
