/* engine/checkpoint/quantised: weights are what the libraries of the formats make of the same tensors, to the last bit
 * (tests/golden/quantised.py); codes and scales make the same weights; tensors that are missing or misshapen are refused
 * with one sentence; config.json's part. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mix.h"
#include "engine/checkpoint/config_source.h"
#include "engine/checkpoint/quantised/quantised.h"
#include "engine/checkpoint/stored_type.h"
#include "engine/checkpoint/types/float8.h"
#include "kernels/quant.h"
#include "tests/golden/quantised.h"
#include "tests/quoted.h"
#include "tests/tap.h"

enum { PARTS = 4 };

/* ---- tensors of a case ---- */

struct weight_files {
	struct tensor list[PARTS + 1]; /* sorted by name */
	char names[PARTS + 1][64];
	size_t n;
	struct quantised_config config;
	struct quantised_want want;
};

static void fill(const char *how, uint8_t *p, size_t n)
{
	unsigned below = (unsigned)strtoul(how, NULL, 10);

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(how, "half"))
			p[i] &= i % 2 == 1 ? 0xbf : 0xff;
		else if (!strcmp(how, "single"))
			p[i] &= i % 4 == 3 ? 0xbf : 0xff;
		else if (!strcmp(how, "e4m3"))
			p[i] &= 0xf7;
		else if (!strcmp(how, "e8m0"))
			p[i] = (uint8_t)((p[i] & 31) + 112);
	}
	for (size_t i = 0; below && i < n; i += 4) {
		uint32_t v;

		memcpy(&v, p + i, 4);
		v %= below;
		memcpy(p + i, &v, 4);
	}
}

static size_t bytes_of(const struct tensor *t)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < t->n_dims; i++)
		n *= t->shape[i];
	return stored_bytes(t->type, n);
}

/* Gives the tensor exactly the bytes of its shape, so that a sanitizer finds what is read beyond. */
static void give_data(struct tensor *t, uint64_t seed, const char *how)
{
	uint8_t *p;

	t->bytes = bytes_of(t);
	p = malloc(t->bytes ? t->bytes : 1);
	for (size_t i = 0; i < t->bytes; i += 8) {
		uint64_t v = mix_next(&seed);

		memcpy(p + i, &v, MIN(t->bytes - i, (size_t)8));
	}
	fill(how, p, t->bytes);
	free((void *)(uintptr_t)t->data);
	t->data = p;
}

static int by_name(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void make(size_t number, struct weight_files *ret)
{
	const struct golden_case *c = &golden_quantised[number];

	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < PARTS && c->tensors[i].suffix; i++) {
		struct tensor *t = &ret->list[ret->n++];

		snprintf(ret->names[i], sizeof(ret->names[i]), "w%s%s",
			 c->tensors[i].suffix[0] == '.' ? "" : ".weight", c->tensors[i].suffix);
		*t = (struct tensor){.name = ret->names[i],
				     .file = "file",
				     .n_dims = c->tensors[i].n_dims,
				     .type = stored_type_find(c->tensors[i].dtype)};
		memcpy(t->shape, c->tensors[i].shape, sizeof(c->tensors[i].shape));
		give_data(t, 100 * number + i, c->tensors[i].fill);
	}
	qsort(ret->list, ret->n, sizeof(*ret->list), by_name);
	ret->config = (struct quantised_config){c->block_rows, c->block_cols, c->gptq_v2};
	ret->want = (struct quantised_want){.path = "model",
					    .list = ret->list,
					    .n = ret->n,
					    .name = "w.weight",
					    .experts = c->experts,
					    .rows = c->rows,
					    .cols = c->cols,
					    .config = &ret->config};
}

static void release(struct weight_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free((void *)(uintptr_t)f->list[i].data);
}

static int open_files(const struct weight_files *f, struct quantised *q, struct err *e)
{
	const struct quantised_format *format = quantised_find(f->list, f->n, f->want.name);
	bool used[PARTS + 1] = {false};
	int r;

	*e = (struct err){0};
	if (!format)
		return -ENODATA;
	r = quantised_open(format, &f->want, used, q, e);
	for (size_t i = 0; r == 0 && i < f->n; i++)
		check(used[i]);
	return r;
}

/* ---- numbers ---- */

static float number(const struct quantised *q, uint8_t code, uint8_t zero)
{
	if (q->code == QUANTISED_E4M3)
		return float_of_e4m3(code);
	if (q->code == QUANTISED_E2M1)
		return copysignf((float)abs(e2m1_doubled[code]) / 2, code & 8 ? -1 : 1);
	return (float)code - (float)zero;
}

/* Compares rows with what their codes and scales say. */
static void check_codes(const struct quantised *q, const float *rows)
{
	uint8_t *codes = malloc(q->rows * q->cols), *zeros = malloc(q->groups);
	float *scales = malloc(q->groups * sizeof(*scales));

	quantised_codes(q, 0, q->rows, 0, q->cols, codes, q->cols);
	for (uint64_t r = 0; r < q->rows; r++) {
		quantised_scales(q, r, 0, q->groups, scales, zeros);
		for (uint64_t c = 0; c < q->cols; c++) {
			uint64_t g = quantised_group(q, c);
			float v = number(q, codes[r * q->cols + c], zeros[g]) * scales[g];

			check(g < q->groups);
			check(!memcmp(&v, &rows[r * q->cols + c], sizeof(v)));
		}
	}
	free(codes);
	free(zeros);
	free(scales);
}

/* Reads all rows, n at a time, and compares them. */
static void check_strips(const struct quantised *q, const float *rows, uint64_t n)
{
	float *strip = malloc(n * (q->cols + 3) * sizeof(*strip));
	uint16_t *narrow = malloc(n * q->cols * sizeof(*narrow));

	for (uint64_t r = 0; r < q->rows; r += n) {
		uint64_t k = MIN(n, q->rows - r);

		quantised_read(q, r, k, false, strip, q->cols + 3);
		quantised_read(q, r, k, true, narrow, q->cols);
		for (uint64_t i = 0; i < k; i++) {
			check(!memcmp(strip + i * (q->cols + 3), rows + (r + i) * q->cols,
				      q->cols * sizeof(*strip)));
			for (uint64_t c = 0; c < q->cols; c++)
				check(narrow[i * q->cols + c] ==
				      bf16_of_float(rows[(r + i) * q->cols + c]));
		}
	}
	free(strip);
	free(narrow);
}

static uint64_t hash_words(const float *x, size_t n)
{
	uint64_t h = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, &x[i], sizeof(u));
		h = mix_add(h, u);
	}
	return h;
}

TEST(numbers)
{
	for (size_t i = 0; i < ARRAY_SIZE(golden_quantised); i++) {
		const char *name = golden_quantised[i].name;
		struct weight_files f;
		struct quantised q;
		struct err e;
		float *rows;

		make(i, &f);
		if (!ok(open_files(&f, &q, &e) == 0, "%s opens %s", name, e.text)) {
			release(&f);
			continue;
		}
		rows = malloc(q.rows * q.cols * sizeof(*rows));
		quantised_read(&q, 0, q.rows, false, rows, q.cols);
		ok(hash_words(rows, q.rows * q.cols) == golden_quantised[i].hash,
		   "%s: the numbers of its library", name);
		check_codes(&q, rows);
		ok_all("%s: codes, scales and zeros make them", name);
		check_strips(&q, rows, 1);
		check_strips(&q, rows, 7);
		ok_all("%s: the same in strips, also as bf16", name);
		free(rows);
		release(&f);
	}
}

static size_t find_part(const struct weight_files *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->list[i].name, name))
			return i;
	printf("Bail out! no %s\n", name);
	exit(1);
}

static size_t case_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(golden_quantised); i++)
		if (!strcmp(golden_quantised[i].name, name))
			return i;
	printf("Bail out! no case %s\n", name);
	exit(1);
}

/* ---- blocks ---- */

/* Compares the panels of all rows with the rows: `ulps` is the most that they may be apart, in units of 2^-24. */
static void check_panels(const struct quantised *q, const struct quant_type *t, const float *rows,
			 double ulps)
{
	uint64_t row_bytes = q->cols / t->block * t->bytes;
	uint8_t *blocks = malloc(16 * row_bytes),
		*panel = aligned_alloc(64, quant_panel_bytes(t, q->cols));

	for (uint64_t first = 0; first < q->rows; first += 16) {
		const void *of[16] = {NULL};
		uint64_t n = MIN(q->rows - first, (uint64_t)16);

		/* A panel has the rows of one expert. */
		n = MIN(n, q->expert_rows - first % q->expert_rows);
		for (uint64_t r = 0; r < n; r++)
			of[r] = blocks + r * row_bytes;
		check(quantised_blocks(q, t, first, n, blocks));
		check(quant_pack(t, of, q->cols, quantised_factor(q, first), panel));
		for (uint64_t r = 0; r < n; r++)
			for (uint64_t c = 0; c < q->cols; c++) {
				struct quant_weight w = quant_weight(t, panel, (uint32_t)r, c);
				float v = (w.code - (float)t->offset) * w.scale,
				      x = rows[(first + r) * q->cols + c];

				if (t->min)
					v -= w.min;
				check(fabs((double)v - (double)x) <=
				      ulps * 0x1p-24 * fabs((double)x));
			}
		first -= 16 - n;
	}
	free(blocks);
	free(panel);
}

/* The panels that kernels read have the numbers of the decoder. */
TEST(panels)
{
	static const struct {
		const char *name, *type; /* NULL: it is read as floats */
		double ulps;
	} rows[] = {
		{"fp8 blocks", "E4M3_128", 0},
		{"fp8 blocks, bf16 scales", "E4M3_128", 0},
		{"fp8 blocks, e8m0 scales", NULL, 0}, /* blocks of 32 columns */
		{"fp8 experts", "E4M3_128", 0},
		{"e2m1 of fp8", "MXFP4", 0},
		{"pack-quantized, groups", "INT4_32", 0},
		{"pack-quantized, zero points", "UINT4_128", 0},
		{"pack-quantized, 8 bits of channels", NULL, 0}, /* 250 columns */
		{"pack-quantized, 2 bits", NULL, 0},
		{"pack-quantized, order", NULL, 0},
		{"float-quantized, channels", "E4M3_128", 0},
		{"float-quantized, tensor", "E4M3_128", 0},
		{"float-quantized, ragged blocks", NULL, 0}, /* 300 columns */
		{"mxfp8", NULL, 0},
		{"int-quantized, channels", "INT8_32", 0},
		{"int-quantized, zero points", NULL, 0}, /* scales of f32 */
		{"nvfp4 of compressed-tensors", "NVFP4", 5},
		{"nvfp4 of modelopt", "NVFP4", 0},
		{"mxfp4 of gpt-oss", "MXFP4", 0},
		{"awq", "UINT4_128", 0},
		{"gptq, order", NULL, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct quant_type *t;
		struct weight_files f;
		struct quantised q;
		struct err e;
		float *floats;

		make(case_of(rows[i].name), &f);
		if (!ok(open_files(&f, &q, &e) == 0, "%s opens %s", rows[i].name, e.text)) {
			release(&f);
			continue;
		}
		t = quantised_type(&q);
		is_str(t ? t->name : "floats", rows[i].type ? rows[i].type : "floats",
		       "%s: the type", rows[i].name);
		if (t) {
			floats = malloc(q.rows * q.cols * sizeof(*floats));
			quantised_read(&q, 0, q.rows, false, floats, q.cols);
			check_panels(&q, t, floats, rows[i].ulps);
			ok_all("%s: panels of %s have its numbers", rows[i].name, t->name);
			free(floats);
		}
		release(&f);
	}
}

/* Zeros that are all in the middle are none, whatever the scales are. Zeros that differ need scales of few bits. */
TEST(zeros_in_the_middle)
{
	struct weight_files f;
	struct quantised q;
	struct tensor *zeros, *scales;
	float *floats = malloc(48 * 256 * sizeof(*floats));
	struct err e;

	make(case_of("gptq, 8 bits"), &f);
	memset((uint8_t *)(uintptr_t)f.list[find_part(&f, "w.g_idx")].data, 0xff, 4 * 256);
	zeros = &f.list[find_part(&f, "w.qzeros")];
	scales = &f.list[find_part(&f, "w.scales")];
	is_int(open_files(&f, &q, &e), 0, "opens %s", e.text);
	is_str(quantised_type(&q)->name, "UINT8_128", "zeros of 8 bits that differ");
	quantised_read(&q, 0, q.rows, false, floats, q.cols);
	check_panels(&q, quantised_type(&q), floats, 0);
	ok_all("panels have the numbers");

	memset((uint8_t *)(uintptr_t)zeros->data, 127, zeros->bytes); /* less one */
	is_str(quantised_type(&q)->name, "INT8_128", "zeros in the middle");
	quantised_read(&q, 0, q.rows, false, floats, q.cols);
	check_panels(&q, quantised_type(&q), floats, 0);
	ok_all("panels have the numbers");
	((uint8_t *)(uintptr_t)zeros->data)[zeros->bytes - 1] = 126;
	is_str(quantised_type(&q)->name, "UINT8_128", "one of them is not");

	scales->type = stored_type_find("F32");
	give_data(scales, 1, "single");
	is_int(open_files(&f, &q, &e), 0, "opens %s", e.text);
	ok(!quantised_type(&q), "scales of f32 with such zeros are read as floats");
	memset((uint8_t *)(uintptr_t)zeros->data, 127, zeros->bytes);
	is_str(quantised_type(&q)->name, "INT8_128", "with zeros in the middle they are not");
	quantised_read(&q, 0, q.rows, false, floats, q.cols);
	check_panels(&q, quantised_type(&q), floats, 0);
	ok_all("panels have the numbers");
	release(&f);
	free(floats);
}

/* A scale or a code that is not finite is told. */
TEST(not_finite)
{
	static const struct {
		const char *name, *part;
		size_t size;
		uint8_t bytes[4];
	} rows[] = {
		{"awq", "w.scales", 2, {0x00, 0x7c}},
		{"mxfp4 of compressed-tensors", "w.weight_scale", 1, {0xff}},
		{"nvfp4 of modelopt", "w.weight_scale", 1, {0x7f}},
		{"nvfp4 of modelopt", "w.weight_scale", 1, {0xff}},
		{"fp8 blocks", "w.weight", 1, {0x7f}},
		{"fp8 blocks", "w.weight", 1, {0xff}},
		{"fp8 blocks", "w.weight_scale_inv", 4, {0, 0, 0x80, 0x7f}},
		{"fp8 blocks",
		 "w.weight_scale_inv",
		 4,
		 {0, 0, 0x40, 0x7f}}, /* finite, times 448 not */
		{"float-quantized, channels", "w.weight_scale", 2, {0xc0, 0x7f}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint8_t *blocks = malloc(128 * 1024);
		struct weight_files f;
		struct quantised q;
		struct tensor *t;
		struct err e;

		make(case_of(rows[i].name), &f);
		t = &f.list[find_part(&f, rows[i].part)];
		is_int(open_files(&f, &q, &e), 0, "opens %s", e.text);
		ok(quantised_blocks(&q, quantised_type(&q), 0, q.rows, blocks), "%s: finite",
		   rows[i].name);
		memcpy((uint8_t *)(uintptr_t)t->data + t->bytes - rows[i].size, rows[i].bytes,
		       rows[i].size);
		ok(!quantised_blocks(&q, quantised_type(&q), 0, q.rows, blocks),
		   "%s: the last of %s is not", rows[i].name, rows[i].part);
		release(&f);
		free(blocks);
	}
}

/* ---- refusals ---- */

static void remove_part(struct weight_files *f, size_t i)
{
	free((void *)(uintptr_t)f->list[i].data);
	f->n--;
	memmove(&f->list[i], &f->list[i + 1], (f->n - i) * sizeof(*f->list));
	f->want.n = f->n;
}

static void expect_refused(const char *name, const struct weight_files *f, int error,
			   const char *sentence, const char *what)
{
	struct quantised q;
	struct err e;

	is_int(open_files(f, &q, &e), error, "%s: refused: %s", name, what);
	is_str(e.text, sentence, "says so");
}

TEST(missing)
{
	static const struct {
		const char *name, *without, *sentence;
	} rows[] = {
		{"awq", "w.qzeros", "model: tensor w.qzeros is missing"},
		{"awq", "w.scales", "model: tensor w.scales is missing"},
		{"gptq, order", "w.scales", "model: tensor w.scales is missing"},
		{"gptq, order", "w.qzeros", "model: tensor w.qzeros is missing"},
		{"pack-quantized, groups", "w.weight_scale",
		 "model: tensor w.weight_scale is missing"},
		{"nvfp4 of compressed-tensors", "w.weight_scale",
		 "model: tensor w.weight_scale is missing"},
		{"nvfp4 of modelopt", "w.weight_scale", "model: tensor w.weight_scale is missing"},
		{"mxfp4 of gpt-oss", "w.weight_scales", "model: tensor w.weight_scales is missing"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct weight_files f;

		make(case_of(rows[i].name), &f);
		remove_part(&f, find_part(&f, rows[i].without));
		expect_refused(rows[i].name, &f, -ENOENT, rows[i].sentence, rows[i].without);
		release(&f);
	}
}

TEST(misshapen)
{
	static const struct {
		const char *name, *tensor;
		uint32_t n_dims;
		uint64_t shape[4];
		const char *sentence;
	} rows[] = {
		{"fp8 blocks",
		 "w.weight",
		 2,
		 {256, 385},
		 "file: tensor w.weight has shape [256, 385], must have [256, 384]"},
		{"fp8 blocks",
		 "w.weight_scale_inv",
		 2,
		 {3, 3},
		 "file: tensor w.weight_scale_inv has shape [3, 3], must have a scale for each row, "
		 "group or block"},
		{"fp8 blocks",
		 "w.weight_scale_inv",
		 3,
		 {1, 2, 3},
		 "file: tensor w.weight_scale_inv has shape [1, 2, 3], must have a scale for each "
		 "row, group or block"},
		{"fp8 experts",
		 "w.weight_scale_inv",
		 3,
		 {2, 2, 2},
		 "file: tensor w.weight_scale_inv has shape [2, 2, 2], must have a scale for each "
		 "row, group or block"},
		{"pack-quantized, groups",
		 "w.weight_packed",
		 2,
		 {48, 31},
		 "file: tensor w.weight_packed has shape [48, 31], must have [48, 64]"},
		{"pack-quantized, zero points",
		 "w.weight_zero_point",
		 2,
		 {5, 4},
		 "file: tensor w.weight_zero_point has shape [5, 4], must have [6, 4]"},
		{"pack-quantized, order",
		 "w.weight_g_idx",
		 1,
		 {255},
		 "file: tensor w.weight_g_idx has shape [255], must have a number for each column "
		 "of the weight"},
		{"int-quantized, zero points",
		 "w.weight_zero_point",
		 1,
		 {32},
		 "file: tensor w.weight_zero_point has shape [32], must have the shape of scales of "
		 "whole numbers"},
		{"nvfp4 of modelopt",
		 "w.weight_scale_2",
		 1,
		 {2},
		 "file: tensor w.weight_scale_2 has shape [2], must have one number"},
		{"mxfp4 of gpt-oss",
		 "w.weight_blocks",
		 4,
		 {3, 40, 4, 15},
		 "file: tensor w.weight_blocks has shape [3, 40, 4, 15], must have blocks of 32 "
		 "columns, 16 bytes each"},
		{"mxfp4 of gpt-oss",
		 "w.weight_blocks",
		 3,
		 {3, 40, 16},
		 "file: tensor w.weight_blocks has shape [3, 40, 16], must have blocks of 32 "
		 "columns, 16 bytes each"},
		{"awq",
		 "w.qweight",
		 2,
		 {255, 8},
		 "file: tensor w.qweight has shape [255, 8], must have [256, 8]"},
		{"awq",
		 "w.scales",
		 2,
		 {3, 64},
		 "file: tensor w.scales has shape [3, 64], must have a number of groups that "
		 "divides the columns evenly"},
		{"awq",
		 "w.qzeros",
		 2,
		 {1, 8},
		 "file: tensor w.qzeros has shape [1, 8], must have [2, 8]"},
		{"gptq, order",
		 "w.qweight",
		 2,
		 {31, 48},
		 "file: tensor w.qweight has shape [31, 48], must have codes of 2, 4 or 8 bits of "
		 "the weight's columns"},
		{"gptq, order",
		 "w.scales",
		 2,
		 {0, 48},
		 "file: tensor w.scales has shape [0, 48], must have a number for each group and "
		 "row of the weight"},
		{"gptq, order",
		 "w.qzeros",
		 2,
		 {4, 5},
		 "file: tensor w.qzeros has shape [4, 5], must have [4, 6]"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct weight_files f;
		struct tensor *t;

		make(case_of(rows[i].name), &f);
		t = &f.list[find_part(&f, rows[i].tensor)];
		t->n_dims = rows[i].n_dims;
		memcpy(t->shape, rows[i].shape, sizeof(rows[i].shape));
		give_data(t, 1, "");
		expect_refused(rows[i].name, &f, -EINVAL, rows[i].sentence, rows[i].tensor);
		release(&f);
	}
}

TEST(contents)
{
	struct weight_files f;
	struct tensor *t;
	int32_t far = 4, unset = -1;

	make(case_of("gptq, order"), &f);
	t = &f.list[find_part(&f, "w.g_idx")];
	memcpy((uint8_t *)(uintptr_t)t->data + 4 * 200, &far, sizeof(far));
	expect_refused("gptq", &f, -EINVAL,
		       "file: tensor w.g_idx has 4 at place 200, but the weight has 4 groups of "
		       "columns",
		       "a group that is none");
	memcpy((uint8_t *)(uintptr_t)t->data + 4 * 200, &unset, sizeof(unset));
	expect_refused("gptq", &f, -EINVAL,
		       "file: tensor w.g_idx has -1 at place 200, but the weight has 4 groups of "
		       "columns",
		       "a negative group");
	release(&f);

	make(case_of("awq"), &f);
	f.list[find_part(&f, "w.qweight")].type = stored_type_find("F32");
	expect_refused("awq", &f, -EINVAL, "file: tensor w.qweight has dtype F32, must have I32",
		       "codes that are floats");
	release(&f);
	make(case_of("awq"), &f);
	f.list[find_part(&f, "w.scales")].type = stored_type_find("I16");
	expect_refused("awq", &f, -ENOTSUP,
		       "file: tensor w.scales has dtype I16, which scales cannot have",
		       "scales that are whole numbers");
	release(&f);
}

/* The tensor that says the sizes of a packed weight. */
TEST(shape_tensor)
{
	static const int64_t good[] = {48, 256}, bad[] = {48, 255};
	struct quantised q;
	struct weight_files f;
	struct err e;

	make(case_of("pack-quantized, groups"), &f);
	f.list[f.n++] = (struct tensor){.name = "w.weight_shape",
					.file = "file",
					.data = good,
					.bytes = sizeof(good),
					.shape = {2},
					.n_dims = 1,
					.type = stored_type_find("I64")};
	f.want.n = f.n;
	is_int(open_files(&f, &q, &e), 0, "sizes that agree");
	ok_all("all tensors are used");
	f.list[f.n - 1].data = bad;
	expect_refused("pack-quantized", &f, -EINVAL,
		       "file: tensor w.weight_shape says [48, 255], config.json makes the weight "
		       "[48, 256]",
		       "sizes that differ");
	f.n--;
	release(&f);
}

/* An order of columns that is unset, or that says what neighbours say, is none. */
TEST(plain_orders)
{
	struct weight_files f;
	struct quantised q;
	struct tensor *t;
	struct err e;
	int32_t *g;

	make(case_of("pack-quantized, order"), &f);
	t = &f.list[find_part(&f, "w.weight_g_idx")];
	g = (int32_t *)(uintptr_t)t->data;
	is_int(open_files(&f, &q, &e), 0, "opens %s", e.text);
	ok(q.order == t, "a random order is one");
	for (int i = 0; i < 256; i++)
		g[i] = i / 32;
	is_int(open_files(&f, &q, &e), 0, "opens %s", e.text);
	ok(!q.order && q.group_cols == 32, "that of neighbours is none");
	memset(g, 0xff, 4 * 256);
	is_int(open_files(&f, &q, &e), 0, "opens %s", e.text);
	ok(!q.order, "-1 everywhere is none");
	release(&f);
}

/* Every size of every tensor one more, one less, doubled, halved, 0: it is refused with a sentence, or what is read lies
 * in the tensors (a sanitizer sees it) and is finite or not. */
TEST(other_sizes)
{
	size_t opened = 0, refused = 0;

	for (size_t i = 0; i < ARRAY_SIZE(golden_quantised); i++) {
		for (int change = 0; change < PARTS * 4 * 5; change++) {
			uint64_t *size;
			struct weight_files f;
			struct quantised q;
			struct err e;
			struct tensor *t;
			float *rows;
			int r;

			make(i, &f);
			t = change / 20 < (int)f.n ? &f.list[change / 20] : NULL;
			if (!t || (uint32_t)change / 5 % 4 >= t->n_dims) {
				release(&f);
				continue;
			}
			size = &t->shape[change / 5 % 4];
			*size = change % 5 == 0	  ? *size + 1
				: change % 5 == 1 ? *size - 1
				: change % 5 == 2 ? *size * 2
				: change % 5 == 3 ? *size / 2
						  : 0;
			give_data(t, 1, "");
			r = open_files(&f, &q, &e);
			check(r == 0 || (e.code == -r && e.text[0]) || r == -ENODATA);
			refused += r < 0;
			if (r == 0) {
				rows = malloc(q.rows * q.cols * sizeof(*rows));
				quantised_read(&q, 0, q.rows, false, rows, q.cols);
				free(rows);
				if (quantised_type(&q)) {
					rows = malloc(q.rows * q.cols * sizeof(*rows));
					quantised_blocks(&q, quantised_type(&q), 0, q.rows, rows);
					free(rows);
				}
				opened++;
			}
			release(&f);
		}
	}
	ok_all("shapes that do not agree are refused, or harmless");
	ok(refused > 400 && opened > 30, "%zu are refused, %zu make other groups", refused, opened);
}

TEST(names)
{
	is_str(quantised_unserved("model.layers.0.mlp.up_proj.weight.absmax"), "bitsandbytes",
	       "nf4 of bitsandbytes");
	is_str(quantised_unserved("model.layers.0.mlp.up_proj.SCB"), "bitsandbytes", "its int8");
	ok(!quantised_unserved("model.layers.0.mlp.up_proj.weight_scale"), "scales are served");
	ok(quantised_ignored("model.layers.0.mlp.up_proj.input_scale") &&
		   quantised_ignored("model.layers.0.self_attn.k_scale") &&
		   !quantised_ignored("model.layers.0.mlp.up_proj.weight_scale"),
	   "scales of activations are ignored");
}

/* ---- config.json ---- */

TEST(config)
{
	static const struct {
		const char *json, *sentence; /* "": it is read */
		struct quantised_config want;
	} rows[] = {
		{"{}", "", {0}},
		{"{'quantization_config':null}", "", {0}},
		{"{'quantization_config':{'quant_method':'fp8','weight_block_size':[128,64]}}",
		 "",
		 {128, 64, false}},
		{"{'quantization_config':{'quant_method':'fp8','fmt':'e5m2'}}",
		 "c: quantization_config.fmt is \"e5m2\", but must be e4m3",
		 {0}},
		{"{'quantization_config':{'quant_method':'fp8','weight_block_size':[128]}}",
		 "c: quantization_config.weight_block_size must be two sizes from 1 to 65536",
		 {0}},
		{"{'quantization_config':{'quant_method':'bitsandbytes'}}",
		 "c: quantization_config.quant_method is \"bitsandbytes\", which is not supported: "
		 "fp8, compressed-tensors, awq, gptq, auto-round, modelopt and mxfp4 are",
		 {0}},
		{"{'quantization_config':{}}",
		 "c: quantization_config.quant_method is missing",
		 {0}},
		{"{'quantization_config':[]}", "c: quantization_config must be an object", {0}},
		{"{'quantization_config':{'quant_method':'awq','version':'gemm','bits':4}}",
		 "",
		 {0}},
		{"{'quantization_config':{'quant_method':'awq','version':'gemv'}}",
		 "c: quantization_config.version is \"gemv\", but must be one of gemm, GEMM",
		 {0}},
		{"{'quantization_config':{'quant_method':'awq','bits':3}}",
		 "c: quantization_config.bits must be 4",
		 {0}},
		{"{'quantization_config':{'quant_method':'gptq','bits':4}}", "", {0}},
		{"{'quantization_config':{'quant_method':'gptq','checkpoint_format':'gptq'}}",
		 "",
		 {0}},
		{"{'quantization_config':{'quant_method':'gptq','checkpoint_format':'gptq_v2'}}",
		 "",
		 {0, 0, true}},
		{"{'quantization_config':{'quant_method':'gptq','checkpoint_format':'marlin'}}",
		 "c: quantization_config.checkpoint_format is \"marlin\", but must be one of gptq, gptq_v2",
		 {0}},
		{"{'quantization_config':{'quant_method':'gptq','checkpoint_format':2}}",
		 "c: quantization_config.checkpoint_format must be a text",
		 {0}},
		{"{'quantization_config':{'quant_method':'auto-round','packing_format':"
		 "'auto_round:auto_gptq'}}",
		 "",
		 {0}},
		{"{'quantization_config':{'quant_method':'auto-round','packing_format':"
		 "'auto_round'}}",
		 "",
		 {0, 0, true}},
		{"{'compression_config':{'quant_method':'compressed-tensors','format':"
		 "'pack-quantized'}}",
		 "",
		 {0}},
		{"{'quantization_config':{'quant_method':'compressed-tensors','format':'marlin-24'}}",
		 "c: quantization_config.format is \"marlin-24\", but must be one of dense, "
		 "pack-quantized, int-quantized, float-quantized, naive-quantized, "
		 "nvfp4-pack-quantized, mxfp4-pack-quantized, mxfp8-quantized, mixed-precision",
		 {0}},
		{"{'quantization_config':{'quant_method':'compressed-tensors','config_groups':{"
		 "'a':{'format':'float-quantized','weights':{'block_structure':[64,32]}},"
		 "'b':{'weights':null}}}}",
		 "",
		 {64, 32, false}},
		{"{'quantization_config':{'quant_method':'compressed-tensors','config_groups':{"
		 "'a':{'weights':{'block_structure':[0,32]}}}}}",
		 "c: quantization_config.config_groups.a.weights.block_structure must be two sizes "
		 "from 1 to 65536",
		 {0}},
		{"{'quantization_config':{'quant_method':'compressed-tensors','sparsity_config':{"
		 "'format':'sparse-24-bitmask'}}}",
		 "c: quantization_config.sparsity_config.format is \"sparse-24-bitmask\", but must be "
		 "dense",
		 {0}},
		{"{'quantization_config':{'quant_method':'compressed-tensors','transform_config':{"
		 "'config_groups':{'u':{}}}}}",
		 "c: quantization_config.transform_config has transforms of activations, which are "
		 "not supported",
		 {0}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		json_t *top = json_loads(quoted(rows[i].json), 0, NULL);
		struct err e = {0};
		struct config_source s = {.file = "c", .path = "", .object = top, .e = &e};
		struct quantised_config got = {0};

		quantised_config_read(&s, &got);
		is_str(e.text, rows[i].sentence, "%s", rows[i].json);
		if (!rows[i].sentence[0])
			ok(got.block_rows == rows[i].want.block_rows &&
				   got.block_cols == rows[i].want.block_cols &&
				   got.gptq_v2 == rows[i].want.gptq_v2,
			   "is read");
		json_decref(top);
	}
}

TEST_MAIN()
