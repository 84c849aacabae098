/* MXFP4: e2m1 with a power of two (e8m0) for 32 columns. Two codes are in a byte, the first in its lower half.
 *
 *     transformers (gpt-oss)   X_blocks U8 [rows, cols / 32, 16], X_scales U8 [rows, cols / 32]
 *     compressed-tensors       X_packed U8 [rows, cols / 2], X_scale U8 [rows, cols / 32] */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>
#include <string.h>

static bool has(const struct quantised_want *w)
{
	const struct tensor *t = want_tensor(w, "_packed");

	return want_tensor(w, "_blocks") ||
	       (t && tensor_is(t, "U8") && !want_tensor(w, "_global_scale"));
}

static int open_blocks(struct opening *o, struct quantised *q, const struct tensor *t)
{
	const uint64_t shape[4] = {o->want->experts, q->expert_rows, q->cols / 32, 16};
	uint32_t n = o->want->experts ? 4 : 3;
	int r = open_type(o, t, "U8");

	q->codes = t;
	if (r == 0 && (q->cols % 32 || t->n_dims != n ||
		       memcmp(t->shape, shape + 4 - n, n * sizeof(*shape)) != 0))
		return open_misshapen(o, t, "blocks of 32 columns, 16 bytes each");
	return r;
}

static int open_mxfp4(struct opening *o, struct quantised *q)
{
	bool blocks = want_tensor(o->want, "_blocks");
	const struct tensor *codes = open_tensor(o, blocks ? "_blocks" : "_packed");
	const struct tensor *scales = open_tensor(o, blocks ? "_scales" : "_scale");
	int r;

	if (!scales)
		return -ENOENT;
	q->code = QUANTISED_E2M1;
	q->bits = 4;
	r = blocks ? open_blocks(o, q, codes) : open_codes(o, q, codes, "U8", 8);
	if (r == 0 && !tensor_is(scales, "F8_E8M0"))
		r = open_type(o, scales, "U8");
	return r < 0 ? r : open_scales(o, q, scales);
}

const struct quantised_format quantised_mxfp4 = {
	.name = "MXFP4",
	.has = has,
	.open = open_mxfp4,
	.codes = codes_of_rows,
};
