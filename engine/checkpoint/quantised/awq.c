/* AWQ in the layout "gemm" of AutoAWQ: whole numbers of 4 bits, transposed.
 *
 *     qweight   int32 [cols, rows / 8]     a word has the codes of 8 rows
 *     qzeros    int32 [groups, rows / 8]   the same of zeros
 *     scales    f16 [groups, rows]
 *
 * Row 8 p + o is in the 4 bits number NIBBLE[o] of word p. */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>

static const uint8_t NIBBLE[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* GPTQ has the same names, but packs the other dimension. */
static bool has(const struct quantised_want *w)
{
	const struct tensor *t = want_tensor(w, ".qweight"), *s = want_tensor(w, ".scales");

	return t && s && t->n_dims == 2 && s->n_dims == 2 && t->shape[1] == s->shape[1] / 8;
}

static int open_awq(struct opening *o, struct quantised *q)
{
	const struct tensor *codes = open_tensor(o, ".qweight"), *scales, *zeros;
	int r;

	scales = codes ? open_tensor(o, ".scales") : NULL;
	zeros = scales ? open_tensor(o, ".qzeros") : NULL;
	if (!zeros)
		return -ENOENT;
	q->codes = codes;
	q->zeros = zeros;
	q->bits = 4;
	r = open_type(o, codes, "I32");
	if (r == 0)
		r = open_type(o, zeros, "I32");
	if (r == 0 && (q->rows % 8 || o->want->experts))
		return open_misshapen(o, codes, "8 rows of one matrix in each word");
	if (r == 0)
		r = open_shape(o, codes, q->cols, q->rows / 8);
	if (r == 0)
		r = open_transposed_scales(o, q, scales);
	if (r == 0 && !q->group_cols)
		r = open_misshapen(o, scales, "a number of groups that divides the columns evenly");
	return r < 0 ? r : open_shape(o, zeros, q->groups, q->rows / 8);
}

static void codes_of_awq(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
			 uint64_t n_cols, uint8_t *codes, uint64_t ld)
{
	uint64_t words = q->rows / 8;

	for (uint64_t c = 0; c < n_cols; c++) {
		uint32_t word = 0;

		for (uint64_t r = 0; r < n; r++) {
			if (!r || (row + r) % 8 == 0)
				word = tensor_word(q->codes, (col + c) * words + (row + r) / 8);
			codes[r * ld + c] = word >> 4 * NIBBLE[(row + r) % 8] & 15;
		}
	}
}

static uint8_t zero_of_awq(const struct quantised *q, uint64_t row, uint64_t group)
{
	return tensor_word(q->zeros, group * (q->rows / 8) + row / 8) >> 4 * NIBBLE[row % 8] & 15;
}

const struct quantised_format quantised_awq = {
	.name = "AWQ",
	.has = has,
	.open = open_awq,
	.codes = codes_of_awq,
	.zero = zero_of_awq,
	.transposed = true,
};
