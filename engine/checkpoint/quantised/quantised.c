/* The table of formats, and what they share: finding tensors, checking shapes, the decoder. */
#include "engine/checkpoint/quantised/format.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/stored_type.h"
#include "engine/checkpoint/types/float16.h"
#include "engine/checkpoint/types/float8.h"

enum {
	STRIP = 16,  /* rows that are decoded together */
	TILE = 256,  /* and columns */
	STRIDE = 16, /* of loops of constant length, which compilers vectorise at -O2 too */
	/* The most groups of columns of a weight with an order: a row's scales are on the stack. */
	GROUPS_MAX = 4096,
};

/* The first that has a weight's tensors decides. */
static const struct quantised_format *const formats[] = {
	&quantised_awq,	  &quantised_gptq,	    &quantised_packed, &quantised_nvfp4,
	&quantised_mxfp4, &quantised_blocks_of_fp8, &quantised_scaled,
};

/* ---- tensors by name ---- */

const struct tensor *want_tensor(const struct quantised_want *w, const char *suffix)
{
	char name[TENSOR_NAME_MAX + 1];
	size_t n = strlen(w->name);

	if (suffix[0] == '.' && !name_ends_in(w->name, ".weight"))
		return NULL;
	if (suffix[0] == '.')
		n -= strlen(".weight");
	if ((size_t)snprintf(name, sizeof(name), "%.*s%s", (int)n, w->name, suffix) >= sizeof(name))
		return NULL;
	return tensor_find(w->list, w->n, name);
}

const struct tensor *open_optional(struct opening *o, const char *suffix)
{
	const struct tensor *t = want_tensor(o->want, suffix);

	if (t)
		o->used[t - o->want->list] = true;
	return t;
}

const struct tensor *open_tensor(struct opening *o, const char *suffix)
{
	const struct quantised_want *w = o->want;
	const struct tensor *t = open_optional(o, suffix);
	size_t n = strlen(w->name) - (suffix[0] == '.' ? strlen(".weight") : 0);

	if (!t)
		err_set(o->e, ENOENT, "%s: tensor %.*s%s is missing", w->path, (int)n, w->name,
			suffix);
	return t;
}

bool tensor_is(const struct tensor *t, const char *type)
{
	return !strcmp(t->type->name, type);
}

static bool ends_in_one_of(const char *name, const char *const *ends, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (name_ends_in(name, ends[i]))
			return true;
	return false;
}

const char *quantised_unserved(const char *name)
{
	static const struct {
		const char *end, *method;
	} ends[] = {
		{".absmax", "bitsandbytes"},
		{".quant_map", "bitsandbytes"},
		{".nested_absmax", "bitsandbytes"},
		{".SCB", "bitsandbytes"},
		{".weight._data", "quanto"},
		{".bitmask", "sparse compressed-tensors"},
		{".codebooks", "AQLM"},
		{".pre_quant_scale", "AWQ of ModelOpt"},
		{".q_weight", "EXL2"},
		{".trellis", "EXL3"},
		{".W_q", "HQQ"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (name_ends_in(name, ends[i].end))
			return ends[i].method;
	return NULL;
}

bool quantised_ignored(const char *name)
{
	static const char *const ends[] = {
		".input_scale",	     ".input_global_scale",
		".input_zero_point", ".output_scale",
		".q_scale",	     ".k_scale",
		".v_scale",
	};

	return ends_in_one_of(name, ends, ARRAY_SIZE(ends));
}

/* ---- opening ---- */

const struct quantised_format *quantised_find(const struct tensor *list, size_t n, const char *name)
{
	const struct quantised_want w = {.list = list, .n = n, .name = name};

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (formats[i]->has(&w))
			return formats[i];
	return NULL;
}

int quantised_open(const struct quantised_format *f, const struct quantised_want *want, bool *used,
		   struct quantised *ret, struct err *e)
{
	struct opening o = {want, used, e};

	*ret = (struct quantised){
		.format = f,
		.cols = want->cols,
		.rows = want->experts ? want->experts * want->rows : want->rows,
		.expert_rows = want->rows,
	};
	return f->open(&o, ret);
}

int open_type(struct opening *o, const struct tensor *t, const char *type)
{
	if (tensor_is(t, type))
		return 0;
	return err_set(o->e, EINVAL, "%s: tensor %s has dtype %s, must have %s", t->file, t->name,
		       t->type->name, type);
}

int open_misshapen(struct opening *o, const struct tensor *t, const char *wants)
{
	char has[192];

	tensor_print_shape(has, sizeof(has), t->shape, t->n_dims);
	return err_set(o->e, EINVAL, "%s: tensor %s has shape [%s], must have %s", t->file, t->name,
		       has, wants);
}

int open_shape(struct opening *o, const struct tensor *t, uint64_t rows, uint64_t cols)
{
	uint64_t shape[3] = {o->want->experts, rows, cols}, *from = shape + !o->want->experts;
	uint32_t n = o->want->experts ? 3 : 2;
	char wants[192], text[208];

	if (t->n_dims == n && !memcmp(t->shape, from, n * sizeof(*shape)))
		return 0;
	tensor_print_shape(wants, sizeof(wants), from, n);
	snprintf(text, sizeof(text), "[%s]", wants);
	return open_misshapen(o, t, text);
}

int open_codes(struct opening *o, struct quantised *q, const struct tensor *t, const char *type,
	       uint32_t type_bits)
{
	int r = open_type(o, t, type);

	q->codes = t;
	return r < 0 ? r : open_shape(o, t, q->expert_rows, CEIL_DIV(q->cols * q->bits, type_bits));
}

/* Returns into how many of `size` rows or columns n parts divide them: `block` if that makes n parts and is not 0, else
 * what divides them evenly. 0: nothing. */
static uint64_t part_of(uint64_t size, uint64_t n, uint64_t block)
{
	if (block && CEIL_DIV(size, block) == n)
		return block;
	return n && size % n == 0 ? size / n : 0;
}

/* Finds the groups of scales in the shape [rows, cols] of an expert's scales. */
static bool find_groups(const struct quantised_config *c, struct quantised *q, uint64_t rows,
			uint64_t cols)
{
	bool blocks = c->block_rows && CEIL_DIV(q->expert_rows, (uint64_t)c->block_rows) == rows &&
		      CEIL_DIV(q->cols, (uint64_t)c->block_cols) == cols;

	q->group_rows = part_of(q->expert_rows, rows, blocks ? c->block_rows : 0);
	q->group_cols = part_of(q->cols, cols, blocks ? c->block_cols : 0);
	q->groups = cols;
	q->scale_group = 1;
	q->scale_row = cols;
	return q->group_rows && q->group_cols;
}

static float float_at(const struct tensor *t, uint64_t i)
{
	float f;

	t->type->to_float((const uint8_t *)t->data + t->type->bytes * i, &f, 1);
	return f;
}

static float e4m3_at(const struct tensor *t, uint64_t i)
{
	return float_of_e4m3(((const uint8_t *)t->data)[i]);
}

static float e8m0_at(const struct tensor *t, uint64_t i)
{
	return float_of_e8m0(((const uint8_t *)t->data)[i]);
}

/* Takes the tensor of the scales, whatever their places. */
static int take_scales(struct opening *o, struct quantised *q, const struct tensor *t)
{
	q->scales = t;
	/* U8 is e8m0, as in files that are older than that type. */
	if (tensor_is(t, "F8_E8M0") || tensor_is(t, "U8"))
		q->scale_at = e8m0_at;
	else if (tensor_is(t, "F8_E4M3"))
		q->scale_at = e4m3_at;
	else if (t->type->to_float)
		q->scale_at = float_at;
	else
		return err_set(o->e, ENOTSUP,
			       "%s: tensor %s has dtype %s, which scales cannot have", t->file,
			       t->name, t->type->name);
	return 0;
}

int open_transposed_scales(struct opening *o, struct quantised *q, const struct tensor *t)
{
	int r = take_scales(o, q, t);

	if (r < 0)
		return r;
	if (t->n_dims != 2 || !t->shape[0] || t->shape[0] > q->cols || t->shape[1] != q->rows)
		return open_misshapen(o, t, "a number for each group and row of the weight");
	q->group_rows = 1;
	q->groups = t->shape[0];
	q->group_cols = q->cols % q->groups ? 0 : q->cols / q->groups;
	q->scale_row = 1;
	q->scale_group = q->rows;
	return 0;
}

int open_scales(struct opening *o, struct quantised *q, const struct tensor *t)
{
	uint64_t experts = o->want->experts, inner[TENSOR_DIMS_MAX] = {1, 1};
	int r = take_scales(o, q, t);
	uint32_t n = 0;

	if (r < 0)
		return r;
	/* `inner` becomes the shape of an expert's scales. */
	for (uint32_t i = experts ? 1 : 0; i < t->n_dims; i++)
		inner[n++] = t->shape[i];
	if ((!experts || (t->n_dims && t->shape[0] == experts)) && n <= 2 &&
	    find_groups(o->want->config, q, inner[0], inner[1]))
		return 0;
	return open_misshapen(o, t, "a scale for each row, group or block");
}

int open_common(struct opening *o, struct quantised *q, const struct tensor *t, bool divides)
{
	uint64_t n = 1;
	int r = open_type(o, t, "F32");

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < t->n_dims; i++)
		n *= t->shape[i];
	q->common = t;
	q->divides = divides;
	return n == MAX(o->want->experts, (uint64_t)1) ? 0 : open_misshapen(o, t, "one number");
}

int open_order(struct opening *o, struct quantised *q, const struct tensor *t)
{
	bool plain = true, unset = true;
	int r = open_type(o, t, "I32");

	if (r < 0)
		return r;
	if (t->n_dims != 1 || t->shape[0] != q->cols)
		return open_misshapen(o, t, "a number for each column of the weight");
	if (q->groups > GROUPS_MAX)
		return err_set(o->e, ENOTSUP, "%s: tensor %s orders more than %d groups of columns",
			       t->file, t->name, GROUPS_MAX);
	for (uint64_t c = 0; c < q->cols; c++)
		unset &= tensor_word(t, c) == UINT32_MAX;
	if (unset)
		return 0;
	for (uint64_t c = 0; c < q->cols; c++) {
		if (tensor_word(t, c) >= q->groups)
			return err_set(
				o->e, EINVAL,
				"%s: tensor %s has %d at place %llu, but the weight has %llu "
				"groups of columns",
				t->file, t->name, (int)tensor_word(t, c), (unsigned long long)c,
				(unsigned long long)q->groups);
		plain &= q->group_cols && tensor_word(t, c) == c / q->group_cols;
	}
	q->order = plain ? NULL : t;
	return 0;
}

/* ---- reading ---- */

uint32_t tensor_word(const struct tensor *t, uint64_t i)
{
	uint32_t word;

	memcpy(&word, (const uint8_t *)t->data + 4 * i, sizeof(word));
	return word;
}

/* Takes n codes of `bits` bits apart. */
static inline void unpack(const uint8_t *p, unsigned bits, uint64_t n, uint8_t *codes)
{
	const unsigned per = 8 / bits, mask = (1u << bits) - 1;
	uint64_t i = 0;

	for (; n - i >= STRIDE; i += STRIDE, p += STRIDE / per)
		for (unsigned k = 0; k < STRIDE; k++)
			codes[i + k] = (uint8_t)(p[k / per] >> k % per * bits & mask);
	for (unsigned k = 0; i + k < n; k++)
		codes[i + k] = (uint8_t)(p[k / per] >> k % per * bits & mask);
}

void codes_of_rows(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
		   uint64_t n_cols, uint8_t *codes, uint64_t ld)
{
	uint64_t bytes = q->codes->bytes / q->rows;
	const uint8_t *p = (const uint8_t *)q->codes->data + row * bytes + col * q->bits / 8;

	assert(col % 16 == 0);
	for (; n; n--, p += bytes, codes += ld)
		switch (q->bits) {
		case 2: unpack(p, 2, n_cols, codes); break;
		case 4: unpack(p, 4, n_cols, codes); break;
		default: memcpy(codes, p, n_cols);
		}
}

void quantised_codes(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
		     uint64_t n_cols, uint8_t *codes, uint64_t ld)
{
	q->format->codes(q, row, n, col, n_cols, codes, ld);
}

uint64_t quantised_group(const struct quantised *q, uint64_t col)
{
	return q->order ? tensor_word(q->order, col) : col / q->group_cols;
}

uint64_t quantised_scale_place(const struct quantised *q, uint64_t row, uint64_t group)
{
	uint64_t blocks = CEIL_DIV(q->expert_rows, q->group_rows); /* of rows, of an expert */
	uint64_t block = row / q->expert_rows * blocks + row % q->expert_rows / q->group_rows;

	return block * q->scale_row + group * q->scale_group;
}

float quantised_common(const struct quantised *q, uint64_t row)
{
	return q->common ? float_at(q->common, row / q->expert_rows) : 1;
}

void quantised_scales(const struct quantised *q, uint64_t row, uint64_t group, uint64_t n,
		      float *scales, uint8_t *zeros)
{
	float common = quantised_common(q, row);
	uint64_t at = quantised_scale_place(q, row, group);

	for (uint64_t g = 0; g < n; g++, at += q->scale_group) {
		float s = q->scale_at(q->scales, at);

		scales[g] = q->divides ? s / common : s * common;
	}
	for (uint64_t g = 0; zeros && g < n; g++)
		zeros[g] = q->zeros ? q->format->zero(q, row, group + g) : q->zero;
}

void quantised_span(const struct quantised *q, uint64_t row, uint64_t n, const void **data,
		    size_t *bytes)
{
	size_t row_bytes = q->codes->bytes / q->rows;

	*data = q->codes->data;
	if (q->format->transposed) {
		*bytes = row + n == q->rows ? q->codes->bytes : 0;
	} else {
		*data = (const uint8_t *)q->codes->data + row * row_bytes;
		*bytes = n * row_bytes;
	}
}

/* ---- the decoder ---- */

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,	 4.0f,	6.0f,
			       -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

static inline float value_of(enum quantised_code kind, uint8_t code, int zero)
{
	if (kind == QUANTISED_E4M3)
		return float_of_e4m3(code);
	return kind == QUANTISED_E2M1 ? e2m1[code] : (float)(code - zero);
}

static inline void decode_kind(enum quantised_code kind, const uint8_t *codes, uint64_t n,
			       float scale, int zero, float *out)
{
	uint8_t part
		[STRIDE]; /* `codes` itself might overlap with `out`, as far as the compiler knows */
	uint64_t i = 0;

	for (; n - i >= STRIDE; i += STRIDE) {
		memcpy(part, codes + i, STRIDE);
		for (int k = 0; k < STRIDE; k++)
			out[i + k] = value_of(kind, part[k], zero) * scale;
	}
	for (; i < n; i++)
		out[i] = value_of(kind, codes[i], zero) * scale;
}

static void decode(enum quantised_code kind, const uint8_t *codes, uint64_t n, float scale,
		   int zero, float *out)
{
	switch (kind) {
	case QUANTISED_WHOLE: decode_kind(QUANTISED_WHOLE, codes, n, scale, zero, out); break;
	case QUANTISED_E4M3: decode_kind(QUANTISED_E4M3, codes, n, scale, zero, out); break;
	case QUANTISED_E2M1: decode_kind(QUANTISED_E2M1, codes, n, scale, zero, out); break;
	}
}

/* Decodes the columns col .. col + n - 1, n <= TILE, of a row, whose codes are there. */
static void decode_groups(const struct quantised *q, uint64_t row, uint64_t col, uint64_t n,
			  const uint8_t *codes, float *out)
{
	for (uint64_t i = 0, k; i < n; i += k) {
		uint64_t group = (col + i) / q->group_cols;
		uint8_t zero;
		float scale;

		quantised_scales(q, row, group, 1, &scale, &zero);
		k = MIN(n - i, (group + 1) * q->group_cols - (col + i));
		decode(q->code, codes + i, k, scale, zero, out + i);
	}
}

/* The same for a weight with an order of columns. */
static void decode_ordered(const struct quantised *q, uint64_t row, uint64_t col, uint64_t n,
			   const uint8_t *codes, float *out)
{
	uint8_t zeros[GROUPS_MAX];
	float scales[GROUPS_MAX];

	quantised_scales(q, row, 0, q->groups, scales, zeros);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t group = tensor_word(q->order, col + i);

		decode(q->code, codes + i, 1, scales[group], zeros[group], out + i);
	}
}

void quantised_read(const struct quantised *q, uint64_t row, uint64_t n, bool bf16, void *out,
		    uint64_t ld)
{
	uint8_t codes[STRIP][TILE];
	float floats[TILE];

	for (uint64_t strip = 0; strip < n; strip += STRIP) {
		uint64_t rows = MIN(n - strip, (uint64_t)STRIP);

		for (uint64_t c = 0; c < q->cols; c += TILE) {
			uint64_t cols = MIN(q->cols - c, (uint64_t)TILE);

			q->format->codes(q, row + strip, rows, c, cols, codes[0], TILE);
			for (uint64_t r = strip; r < strip + rows; r++) {
				float *to = bf16 ? floats : (float *)out + r * ld + c;

				(q->order ? decode_ordered : decode_groups)(q, row + r, c, cols,
									    codes[r - strip], to);
				if (bf16)
					stored_narrow(floats, cols, (uint16_t *)out + r * ld + c);
			}
		}
	}
}
