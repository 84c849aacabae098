/* A tensor of numbers of 8 bits with scales beside it: "float-quantized", "int-quantized", "naive-quantized" and
 * "mxfp8-quantized" of compressed-tensors, FP8 of ModelOpt.
 *
 *     X              F8_E4M3 or I8 [rows, cols]
 *     X_scale        one, [rows, 1], [rows, groups], or blocks of rows and columns
 *     X_zero_point   I8, as many as scales; missing: all are 0 */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>
#include <string.h>

static bool has(const struct quantised_want *w)
{
	const struct tensor *t = want_tensor(w, "");

	return t && (tensor_is(t, "F8_E4M3") || tensor_is(t, "I8")) && want_tensor(w, "_scale");
}

/* As whole numbers I8 counts from -128 on. */
static int open_zeros(struct opening *o, struct quantised *q, const struct tensor *t)
{
	int r = open_type(o, t, "I8");

	if (r == 0 && (q->code != QUANTISED_WHOLE || t->n_dims != q->scales->n_dims ||
		       memcmp(t->shape, q->scales->shape, t->n_dims * sizeof(*t->shape)) != 0))
		return open_misshapen(o, t, "the shape of scales of whole numbers");
	q->zeros = t;
	return r;
}

static int open_scaled(struct opening *o, struct quantised *q)
{
	const struct tensor *codes = open_tensor(o, ""), *zeros = open_optional(o, "_zero_point");
	int r;

	q->code = tensor_is(codes, "I8") ? QUANTISED_WHOLE : QUANTISED_E4M3;
	q->bits = 8;
	q->zero = 128;
	r = open_codes(o, q, codes, codes->type->name, 8);
	if (r == 0)
		r = open_scales(o, q, open_tensor(o, "_scale"));
	return r == 0 && zeros ? open_zeros(o, q, zeros) : r;
}

static void codes_of_scaled(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
			    uint64_t n_cols, uint8_t *codes, uint64_t ld)
{
	codes_of_rows(q, row, n, col, n_cols, codes, ld);
	for (; n && q->code == QUANTISED_WHOLE; n--, codes += ld)
		for (uint64_t c = 0; c < n_cols; c++)
			codes[c] ^= 128;
}

static uint8_t zero_of_scaled(const struct quantised *q, uint64_t row, uint64_t group)
{
	return ((const uint8_t *)q->zeros->data)[quantised_scale_place(q, row, group)] ^ 128;
}

const struct quantised_format quantised_scaled = {
	.name = "8 bits with scales",
	.has = has,
	.open = open_scaled,
	.codes = codes_of_scaled,
	.zero = zero_of_scaled,
};
