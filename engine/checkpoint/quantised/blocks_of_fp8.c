/* The method "fp8" of transformers (the official FP8 files of Qwen, DeepSeek and others): e4m3 with a scale for each
 * block, usually of 128 x 128.
 *
 *     X             F8_E4M3 [rows, cols]; or e2m1 as I8 [rows, cols / 2], the first code in a byte's lower half
 *     X_scale_inv   [rows / block, cols / block], or one; the name is wrong: it is the scale, not its inverse */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>

static bool has(const struct quantised_want *w)
{
	return want_tensor(w, "") && want_tensor(w, "_scale_inv");
}

static int open_blocks(struct opening *o, struct quantised *q)
{
	const struct tensor *codes = open_tensor(o, "");
	bool e2m1 = tensor_is(codes, "I8");
	int r;

	q->code = e2m1 ? QUANTISED_E2M1 : QUANTISED_E4M3;
	q->bits = e2m1 ? 4 : 8;
	r = open_codes(o, q, codes, e2m1 ? "I8" : "F8_E4M3", 8);
	return r < 0 ? r : open_scales(o, q, open_tensor(o, "_scale_inv"));
}

const struct quantised_format quantised_blocks_of_fp8 = {
	.name = "fp8",
	.has = has,
	.open = open_blocks,
	.codes = codes_of_rows,
};
