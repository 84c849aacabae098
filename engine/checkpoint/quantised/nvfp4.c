/* NVFP4: e2m1 with a scale of e4m3 for 16 columns, and a common scale. Two codes are in a byte, the first in its lower
 * half.
 *
 *     compressed-tensors   X_packed U8 [rows, cols / 2], X_scale [rows, groups], X_global_scale, which divides
 *     ModelOpt             X U8 [rows, cols / 2], X_scale [rows, groups], X_scale_2, which multiplies */
#include "engine/checkpoint/quantised/format.h"

#include <errno.h>

static bool is_packed(const struct quantised_want *w)
{
	const struct tensor *t = want_tensor(w, "_packed");

	return t && tensor_is(t, "U8");
}

static bool has(const struct quantised_want *w)
{
	const struct tensor *t = want_tensor(w, "");

	return is_packed(w) ? want_tensor(w, "_global_scale") != NULL
			    : t && tensor_is(t, "U8") && want_tensor(w, "_scale_2");
}

static int open_nvfp4(struct opening *o, struct quantised *q)
{
	bool packed = is_packed(o->want);
	const struct tensor *codes = open_tensor(o, packed ? "_packed" : "");
	const struct tensor *scales = open_tensor(o, "_scale");
	const struct tensor *common = open_tensor(o, packed ? "_global_scale" : "_scale_2");
	int r;

	if (!scales)
		return -ENOENT;
	q->code = QUANTISED_E2M1;
	q->bits = 4;
	r = open_codes(o, q, codes, "U8", 8);
	if (r == 0)
		r = open_type(o, scales, "F8_E4M3");
	if (r == 0)
		r = open_scales(o, q, scales);
	return r < 0 ? r : open_common(o, q, common, packed);
}

const struct quantised_format quantised_nvfp4 = {
	.name = "NVFP4",
	.has = has,
	.open = open_nvfp4,
	.codes = codes_of_rows,
};
