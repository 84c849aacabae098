/* GPTQ in the layouts of AutoGPTQ and GPTQModel: whole numbers of 2, 4 or 8 bits, transposed.
 *
 *     qweight   int32 [cols * bits / 32, rows]     a word has the codes of neighbouring columns, the first lowest
 *     qzeros    int32 [groups, rows * bits / 32]   a word has the zeros of neighbouring rows
 *     scales    f16 [groups, rows]
 *     g_idx     int32 [cols]                       the group of each column (may be missing: neighbours are a group)
 *
 * Zeros are stored less one, modulo 2^bits, unless the checkpoint's format is gptq_v2. */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>

static bool has(const struct quantised_want *w)
{
	return want_tensor(w, ".qweight");
}

/* Finds how many bits a code has: words of cols codes and of rows zeros are as many as the shapes say. */
static uint32_t bits_of(const struct quantised *q, const struct tensor *codes)
{
	for (uint32_t bits = 2; bits <= 8; bits *= 2)
		if (codes->n_dims == 2 && q->cols * bits % 32 == 0 && q->rows * bits % 32 == 0 &&
		    codes->shape[0] == q->cols * bits / 32)
			return bits;
	return 0;
}

static int open_gptq(struct opening *o, struct quantised *q)
{
	const struct tensor *codes = open_tensor(o, ".qweight"), *scales, *zeros, *order;
	int r;

	scales = codes ? open_tensor(o, ".scales") : NULL;
	zeros = scales ? open_tensor(o, ".qzeros") : NULL;
	if (!zeros)
		return -ENOENT;
	q->codes = codes;
	q->zeros = zeros;
	q->zeros_less_one = !o->want->config->gptq_v2;
	r = open_type(o, codes, "I32");
	if (r == 0)
		r = open_type(o, zeros, "I32");
	if (r < 0)
		return r;
	q->bits = bits_of(q, codes);
	if (!q->bits || o->want->experts)
		return open_misshapen(o, codes, "codes of 2, 4 or 8 bits of the weight's columns");
	r = open_shape(o, codes, q->cols * q->bits / 32, q->rows);
	if (r == 0)
		r = open_transposed_scales(o, q, scales);
	if (r == 0)
		r = open_shape(o, zeros, q->groups, q->rows * q->bits / 32);
	order = open_optional(o, ".g_idx");
	if (r == 0 && order)
		r = open_order(o, q, order);
	if (r == 0 && !q->order && !q->group_cols)
		r = open_misshapen(o, scales, "a number of groups that divides the columns evenly");
	return r;
}

static void codes_of_gptq(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
			  uint64_t n_cols, uint8_t *codes, uint64_t ld)
{
	const uint64_t per = 32 / q->bits;
	const uint32_t mask = (1u << q->bits) - 1;

	for (uint64_t c = 0; c < n_cols; c += per)
		for (uint64_t r = 0; r < n; r++) {
			uint32_t word = tensor_word(q->codes, (col + c) / per * q->rows + row + r);

			for (uint64_t k = c; k < c + per && k < n_cols; k++, word >>= q->bits)
				codes[r * ld + k] = (uint8_t)(word & mask);
		}
}

static uint8_t zero_of_gptq(const struct quantised *q, uint64_t row, uint64_t group)
{
	const uint64_t per = 32 / q->bits;
	uint32_t word = tensor_word(q->zeros, group * (q->rows / per) + row / per);

	return (uint8_t)(((word >> row % per * q->bits) + q->zeros_less_one) &
			 ((1u << q->bits) - 1));
}

const struct quantised_format quantised_gptq = {
	.name = "GPTQ",
	.has = has,
	.open = open_gptq,
	.codes = codes_of_gptq,
	.zero = zero_of_gptq,
	.transposed = true,
};
