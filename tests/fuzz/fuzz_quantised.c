/* Bytes as tensors of one quantised weight: names, types and shapes of some tensors, and the sizes of the weight. A weight
 * that opens can be read: every tensor has exactly the bytes of its shape, so that AddressSanitizer finds what is read
 * beyond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/quantised/quantised.h"
#include "kernels/quant.h"
#include "tests/fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TENSORS = 6, BYTES_MAX = 1 << 16 };

static const char *const suffixes[] = {
	".weight",	   ".weight_scale_inv",
	".weight_packed",  ".weight_scale",
	".weight_shape",   ".weight_zero_point",
	".weight_g_idx",   ".weight_global_scale",
	".weight_scale_2", ".weight_blocks",
	".weight_scales",  ".qweight",
	".qzeros",	   ".scales",
	".g_idx",
};

static const char *const types[] = {"I32",  "U8",  "I8",      "F8_E4M3", "F16",
				    "BF16", "F32", "F8_E8M0", "I64",	 "F4"};

struct input {
	const uint8_t *at, *end;
};

static unsigned take(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Makes a tensor with random sizes, many of them those that the weight needs. False: it would be too large. */
static bool make_tensor(struct input *in, const uint64_t sizes[6], char name[32], struct tensor *t)
{
	uint64_t n = 1;
	uint8_t *p;

	snprintf(name, 32, "w%s", suffixes[take(in) % ARRAY_SIZE(suffixes)]);
	*t = (struct tensor){.name = name,
			     .file = "file",
			     .n_dims = take(in) % 5,
			     .type = stored_type_find(types[take(in) % ARRAY_SIZE(types)])};
	for (uint32_t i = 0; i < t->n_dims; i++) {
		unsigned v = take(in);

		t->shape[i] = v < 128 ? v : sizes[v % 6] >> (v >> 3 & 3);
		n *= t->shape[i];
	}
	if (n > BYTES_MAX || n % t->type->elements)
		return false;
	t->bytes = stored_bytes(t->type, n);
	p = malloc(t->bytes ? t->bytes : 1);
	for (size_t i = 0; i < t->bytes; i++)
		p[i] = (uint8_t)(i % 4 && take(in) % 2 ? 0 : take(in));
	t->data = p;
	return true;
}

/* Panels have the numbers of rows, as far as these are finite. */
static void read_panels(const struct quantised *q, const float *rows)
{
	const struct quant_type *t = quantised_type(q);
	uint8_t *blocks, *panel;

	if (!t)
		return;
	blocks = malloc(q->cols / t->block * t->bytes);
	panel = malloc(quant_panel_bytes(t, q->cols));
	for (uint64_t r = 0; r < q->rows; r++, rows += q->cols) {
		const void *of[16] = {blocks};
		bool finite = quantised_blocks(q, t, r, 1, blocks);

		finite &= quant_pack(t, of, q->cols, quantised_factor(q, r), panel);
		for (uint64_t c = 0; finite && c < q->cols; c++) {
			struct quant_weight w = quant_weight(t, panel, 0, c);
			float v = (w.code - (float)t->offset) * w.scale;

			/* Common scales round NVFP4 in another way. */
			CHECK(t->scale == QUANT_UE4M3 || (t->min ? v - w.min : v) == rows[c]);
		}
	}
	free(blocks);
	free(panel);
}

static void read_all(const struct quantised *q)
{
	uint8_t *codes = malloc(q->rows * q->cols), *zeros = malloc(q->groups);
	float *rows = malloc(q->rows * q->cols * sizeof(*rows));
	float *scales = malloc(q->groups * sizeof(*scales));
	const void *span;
	size_t bytes;

	quantised_read(q, 0, q->rows, false, rows, q->cols);
	read_panels(q, rows);
	quantised_read(q, 0, q->rows, true, rows, q->cols);
	quantised_codes(q, 0, q->rows, 0, q->cols, codes, q->cols);
	for (uint64_t i = 0; i < q->rows * q->cols; i++)
		CHECK(q->bits == 8 || codes[i] < 1u << q->bits);
	for (uint64_t r = 0; r < q->rows; r++)
		quantised_scales(q, r, 0, q->groups, scales, zeros);
	for (uint64_t c = 0; c < q->cols; c++)
		CHECK(quantised_group(q, c) < q->groups);
	quantised_span(q, 0, q->rows, &span, &bytes);
	CHECK(span == q->codes->data && bytes == q->codes->bytes);
	free(codes);
	free(zeros);
	free(rows);
	free(scales);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint32_t block_rows = take(&in) % 64, block_cols = 1 + take(&in) % 63;
	struct quantised_config config = {block_rows, block_rows ? block_cols : 0, take(&in) % 2};
	uint64_t experts = take(&in) % 3;
	uint64_t rows = take(&in) % 4 ? 16 * (1u + take(&in) % 8) : 1 + take(&in);
	uint64_t cols = take(&in) % 4 ? 32 * (1u + take(&in) % 8) : 1 + take(&in);
	const uint64_t sizes[6] = {experts, rows, cols, CEIL_DIV(rows, 8u), CEIL_DIV(cols, 8u), 16};
	struct tensor list[TENSORS];
	char names[TENSORS][32];
	bool used[TENSORS] = {false};
	struct quantised_want want = {"model", list, 0, "w.weight", experts, rows, cols, &config};
	const struct quantised_format *f;
	struct quantised q;
	struct err e = {0};
	int r;

	for (unsigned i = 0; i < TENSORS && in.at < in.end; i++)
		want.n += make_tensor(&in, sizes, names[i], &list[want.n]);
	qsort(list, want.n, sizeof(*list), by_name);
	f = quantised_find(list, want.n, want.name);
	if (f) {
		r = quantised_open(f, &want, used, &q, &e);
		CHECK(r == 0 || (r == -e.code && e.text[0]));
		if (r == 0)
			read_all(&q);
	}
	for (size_t i = 0; i < want.n; i++)
		free((void *)(uintptr_t)list[i].data);
	return 0;
}
