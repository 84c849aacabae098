/* Whole numbers of 2, 4 or 8 bits as compressed-tensors packs them ("pack-quantized").
 *
 *     X_packed       int32 [rows, ceil(cols * bits / 32)]     plus 2^(bits - 1)
 *     X_scale        [rows, groups], or [rows, 1], or one
 *     X_zero_point   int32 [ceil(rows * bits / 32), groups]   plus 2^(bits - 1); missing: all are 0
 *     X_g_idx        int32 [cols]                             the group of each column; missing: neighbours
 *     X_shape        int64 [2]                                rows and columns
 *
 * A word has neighbouring columns (of zero points: rows), the first in its lowest bits. */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"

static bool has(const struct quantised_want *w)
{
	const struct tensor *t = want_tensor(w, "_packed");

	return t && !tensor_is(t, "U8");
}

/* Checks that the tensor "_shape", if it is there, has the weight's sizes (and before them, perhaps, that of experts). */
static int check_shape(struct opening *o, const struct quantised *q)
{
	const struct tensor *t = open_optional(o, "_shape");
	int64_t sizes[2];
	int r = t ? open_type(o, t, "I64") : 0;

	if (!t || r < 0)
		return r;
	if (t->n_dims != 1 || t->shape[0] != (o->want->experts ? 3 : 2))
		return open_misshapen(o, t, "the sizes of the weight");
	memcpy(sizes, (const uint8_t *)t->data + t->bytes - sizeof(sizes), sizeof(sizes));
	if (sizes[0] == (int64_t)q->expert_rows && sizes[1] == (int64_t)q->cols)
		return 0;
	return err_set(o->e, EINVAL,
		       "%s: tensor %s says [%lld, %lld], config.json makes the weight [%llu, %llu]",
		       t->file, t->name, (long long)sizes[0], (long long)sizes[1],
		       (unsigned long long)q->expert_rows, (unsigned long long)q->cols);
}

static int open_zeros(struct opening *o, struct quantised *q, const struct tensor *t)
{
	int r = open_type(o, t, "I32");

	q->zeros = t;
	if (r == 0 && q->group_rows != 1)
		return open_misshapen(o, t, "no shape, because the scales are not those of rows");
	return r < 0 ? r
		     : open_shape(o, t, CEIL_DIV(q->expert_rows * q->bits, (uint64_t)32),
				  q->groups);
}

static int open_packed(struct opening *o, struct quantised *q)
{
	const struct tensor *codes = open_tensor(o, "_packed"), *scales, *more;
	int r;

	scales = codes ? open_tensor(o, "_scale") : NULL;
	if (!scales)
		return -ENOENT;
	for (q->bits = 2; q->bits < 8; q->bits *= 2)
		if (codes->n_dims &&
		    codes->shape[codes->n_dims - 1] == CEIL_DIV(q->cols * q->bits, (uint64_t)32))
			break;
	q->zero = (uint8_t)(1u << (q->bits - 1));
	r = open_codes(o, q, codes, "I32", 32);
	if (r == 0)
		r = open_scales(o, q, scales);
	more = open_optional(o, "_zero_point");
	if (r == 0 && more)
		r = open_zeros(o, q, more);
	more = open_optional(o, "_g_idx");
	if (r == 0 && more)
		r = open_order(o, q, more);
	return r < 0 ? r : check_shape(o, q);
}

static uint8_t zero_of_packed(const struct quantised *q, uint64_t row, uint64_t group)
{
	const uint64_t per = 32 / q->bits, words = CEIL_DIV(q->expert_rows, per);
	uint64_t at = row / q->expert_rows * words + row % q->expert_rows / per;
	uint32_t word = tensor_word(q->zeros, at * q->groups + group);

	return (uint8_t)(word >> row % q->expert_rows % per * q->bits & ((1u << q->bits) - 1));
}

const struct quantised_format quantised_packed = {
	.name = "pack-quantized",
	.has = has,
	.open = open_packed,
	.codes = codes_of_rows,
	.zero = zero_of_packed,
};
