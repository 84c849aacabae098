#include "engine/checkpoint/quantize.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/parallel.h"
#include "engine/checkpoint/converted.h"
#include "engine/checkpoint/formats/gguf_keys.h"
#include "engine/checkpoint/recipe.h"

/* Floats that are read at a time, but one row at least, and rows that a thread takes at a time. */
enum { PART_FLOATS = 4 << 20, SHARE_ROWS = 8 };

/* general.file_type is ggml's enum llama_ftype. */
static const struct {
	const char *name;
	uint32_t file_type;
} recipes[] = {
	{"F32", 0},   {"F16", 1},	 {"BF16", 32},	    {"Q8_0", 7},  {"Q6_K", 18},
	{"Q5_K", 16}, {"Q5_K_M", 17},	 {"Q5_0", 8},	    {"Q4_K", 14}, {"Q4_K_M", 15},
	{"Q4_0", 2},  {"UD-Q4_K_M", 15}, {"MXFP4_MOE", 38}, {"Q3_K", 11}, {"Q2_K", 10},
};

const char *quantize_recipes(void)
{
	return "F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_K_M, Q5_0, Q4_K, Q4_K_M, Q4_0, UD-Q4_K_M, "
	       "MXFP4_MOE, Q3_K and Q2_K";
}

struct writer {
	const struct quantize_options *o;
	struct conversion x;
	struct tensor *tensors; /* owned, [x.n]: as they are written */
	const char *path;
	uint64_t done, all; /* bytes */
	float *floats;	    /* owned: rows of a part, and a row of scratch for each of them */
	uint8_t *blocks;    /* owned: the same rows in their type */
	size_t n_floats, n_blocks; /* sizes of both */
	struct err *e;
};

/* ---- types ---- */

static int find_recipe(const struct writer *w, uint32_t *file_type)
{
	for (size_t i = 0; i < ARRAY_SIZE(recipes); i++)
		if (!strcmp(recipes[i].name, w->o->recipe)) {
			*file_type = recipes[i].file_type;
			return 0;
		}
	return err_set(w->e, EINVAL, "--type %s: there is no such recipe; there are %s",
		       w->o->recipe, quantize_recipes());
}

/* Returns the type of a matrix by the recipe. */
static const struct stored_type *by_recipe(const struct writer *w, const struct converted *t)
{
	const struct stored_type *plain = stored_type_find(w->o->recipe), *own = t->tensor.type;
	const struct quant_type *q = NULL;
	struct weight shape = *t->weight;

	if (plain)
		return plain;
	shape.cols = converted_cols(t);
	(void)recipe_type(w->o->recipe, &shape, w->x.c->n_layers, &q);
	if (q)
		return stored_type_named(q->name);
	/* Rows that fit no block stay as they are. */
	return own->elements == 1 ? own : stored_type_find("F32");
}

/* Reads PATTERN=TYPE. Returns the type; NULL: there is no such type, or it cannot be written. *len: the pattern's
 * length. */
static const struct stored_type *read_override(const char *text, size_t *len)
{
	const char *equals = strrchr(text, '=');
	const struct stored_type *t = equals ? stored_type_named(equals + 1) : NULL;

	*len = equals ? (size_t)(equals - text) : 0;
	return t && t->from_float && *len ? t : NULL;
}

/* Gives the matrices whose names match an option its type. */
static int override(struct writer *w, const char *text)
{
	size_t len, found = 0;
	const struct stored_type *type = read_override(text, &len);
	char *pattern;

	if (!type)
		return err_set(w->e, EINVAL,
			       "--tensor-type %s: it must be PATTERN=TYPE, where TYPE is F32, F16, "
			       "BF16, Q8_0, Q6_K, Q5_K, Q5_0, Q4_K, Q4_0, Q3_K, Q2_K or MXFP4",
			       text);
	pattern = strndup(text, len);
	if (!pattern)
		return err_no_memory(w->e);
	for (size_t i = 0; i < w->x.n; i++) {
		const struct converted *t = &w->x.list[i];
		uint64_t cols = converted_cols(t);

		if (!converted_is_matrix(t) || fnmatch(pattern, t->tensor.name, 0) != 0)
			continue;
		if (cols % type->elements) {
			free(pattern);
			return err_set(
				w->e, EINVAL,
				"--tensor-type %s: tensor %s has rows of %llu numbers, which "
				"are no whole blocks of %u",
				text, t->tensor.name, (unsigned long long)cols, type->elements);
		}
		w->tensors[i].type = type;
		found++;
	}
	free(pattern);
	return found ? 0
		     : err_set(w->e, EINVAL, "--tensor-type %s: no matrix has such a name", text);
}

static int choose_types(struct writer *w)
{
	int r = 0;

	w->tensors = calloc(w->x.n ? w->x.n : 1, sizeof(*w->tensors));
	if (!w->tensors)
		return err_no_memory(w->e);
	for (size_t i = 0; i < w->x.n; i++) {
		const struct converted *t = &w->x.list[i];

		w->tensors[i] = t->tensor;
		if (converted_is_matrix(t))
			w->tensors[i].type = by_recipe(w, t);
		else if (t->weight)
			w->tensors[i].type = stored_type_find("F32");
	}
	for (size_t i = 0; r == 0 && i < w->o->n_types; i++)
		r = override(w, w->o->types[i]);
	for (size_t i = 0; i < w->x.n; i++) {
		const struct converted *t = &w->x.list[i];

		w->tensors[i].bytes =
			stored_bytes(w->tensors[i].type, converted_rows(t) * converted_cols(t));
		w->all += w->tensors[i].bytes;
	}
	return r;
}

/* ---- keys ---- */

/* Adds the keys of a GGUF file, but those that speak of files. */
static int copy_keys(const struct writer *w, struct gguf_keys *out)
{
	static const char *const left_out[] = {
		"general.alignment", "general.file_type", "general.quantization_version",
		"split.no",	     "split.count",	  "split.tensors.count"};
	const struct gguf_file *f = checkpoint_gguf(w->x.k);

	for (size_t i = 0; i < f->n_keys; i++) {
		bool copied = true;

		for (size_t k = 0; k < ARRAY_SIZE(left_out); k++)
			copied &= strcmp(f->keys[i].name, left_out[k]) != 0;
		if (copied)
			gguf_add_copy(out, &f->keys[i]);
	}
	return 0;
}

static int make_keys(const struct writer *w, uint32_t file_type, struct gguf_keys *out,
		     bool *tokenizer)
{
	int r;

	if (checkpoint_names(w->x.k) == CHECKPOINT_GGUF) {
		*tokenizer = gguf_find(checkpoint_gguf(w->x.k), "tokenizer.ggml.tokens");
		r = copy_keys(w, out);
	} else {
		r = gguf_keys_of_config(w->x.k, w->x.c, w->o->name, out, w->e);
		if (r == 0)
			r = gguf_keys_of_tokenizer(w->x.k, w->x.c, out, w->e);
		*tokenizer = r == 0;
		r = r == -ENOENT ? 0 : r;
	}
	gguf_add_whole(out, "general.file_type", file_type);
	gguf_add_whole(out, "general.quantization_version", 2);
	return r;
}

/* ---- data ---- */

/* The rows of a part of a tensor. */
struct part {
	const struct writer *w;
	const struct converted *from;
	const struct stored_type *to;
	/* [experts][cols] of each expert's matrix, [1][cols] of one that belongs to none; NULL: none is known. An
	 * expert whose text had no rows has a negative number in front. */
	const float *importance;
	uint64_t first, n, cols, expert_rows;
	_Atomic(uint64_t) bad; /* 1 + a row with a number that is not finite; 0: none */
};

/* Returns the importance of a row's columns; NULL: it is not known. */
static const float *importance_at(const struct part *p, uint64_t row)
{
	const float *v = p->importance;

	v = v ? v + row / p->expert_rows * p->cols : NULL;
	return v && v[0] >= 0 ? v : NULL;
}

static void make_rows(void *arg, size_t share)
{
	struct part *p = arg;
	uint64_t end = MIN(p->n, (uint64_t)(share + 1) * SHARE_ROWS);
	uint64_t bytes = stored_bytes(p->to, p->cols);

	for (uint64_t i = (uint64_t)share * SHARE_ROWS; i < end; i++) {
		float *row = p->w->floats + 2 * i * p->cols, sum = 0;

		converted_row(&p->w->x, p->from, p->first + i, row, row + p->cols);
		for (uint64_t k = 0; k < p->cols; k++)
			sum += row[k] * 0; /* NaN if a number is not finite */
		if (sum != 0)
			p->bad = p->first + i + 1;
		else
			p->to->from_float(row, p->cols, importance_at(p, p->first + i),
					  p->w->blocks + i * bytes);
	}
}

/* Makes room for n rows. */
static int make_room(struct writer *w, uint64_t n, uint64_t cols, uint64_t bytes)
{
	if (2 * n * cols > w->n_floats) {
		free(w->floats);
		w->n_floats = 2 * n * cols;
		w->floats = calloc(w->n_floats, sizeof(*w->floats));
	}
	if (n * bytes > w->n_blocks) {
		free(w->blocks);
		w->n_blocks = n * bytes;
		w->blocks = malloc(w->n_blocks);
	}
	return w->floats && w->blocks ? 0 : err_set(w->e, ENOMEM, "%s: out of memory", w->path);
}

static void tell(struct writer *w, const char *name, uint64_t more)
{
	if (w->o->progress)
		w->o->progress(w->o->user, name, w->done, w->all);
	w->done += more;
}

/* Copies a tensor's data. They may be large, and on a terminal the bar has to move. */
static int copy_tensor(struct writer *w, const struct tensor *t, struct file_draft *to)
{
	const uint8_t *data = t->data;
	int r = 0;

	for (size_t at = 0, n; r == 0 && at < t->bytes; at += n) {
		n = MIN(t->bytes - at, (size_t)PART_FLOATS * sizeof(float));
		tell(w, t->name, n);
		r = file_draft_write(to, data + at, n, w->e);
	}
	return r;
}

/* Returns the tensor of the file of squares that is named after a matrix; NULL: there is none. */
static const struct tensor *find_squares(const struct writer *w, const struct converted *from,
					 const char *what)
{
	const struct gguf_file *f = w->o->squares;
	char name[512];

	snprintf(name, sizeof(name), "%s.%s", from->tensor.name, what);
	return tensor_find(f->tensors, f->n_tensors, name);
}

/* Refuses a file of squares of other matrices. */
static int check_squares(const struct writer *w)
{
	const struct stored_type *f32 = stored_type_find("F32");
	size_t found = 0;

	for (size_t i = 0; w->o->squares && i < w->x.n; i++) {
		const struct converted *t = &w->x.list[i];
		const struct tensor *sums = find_squares(w, t, "in_sum2");
		const struct tensor *counts = find_squares(w, t, "counts");
		uint64_t experts = t->tensor.n_dims == 3 ? t->tensor.shape[0] : 1;

		if (!sums || !converted_is_matrix(t))
			continue;
		if (!counts || sums->type != f32 || counts->type != f32 ||
		    sums->bytes != experts * converted_cols(t) * sizeof(float) ||
		    counts->bytes != experts * sizeof(float))
			return err_set(w->e, EINVAL,
				       "%s: tensor %s is not %llu x %llu numbers of type F32 with "
				       "as many counts",
				       w->o->squares->shown, sums->name,
				       (unsigned long long)experts,
				       (unsigned long long)converted_cols(t));
		found++;
	}
	return !w->o->squares || found
		       ? 0
		       : err_set(w->e, EINVAL, "%s: it has squares of none of the model's matrices",
				 w->o->squares->shown);
}

/* Writes the importance of one expert's matrix to out [cols]. False: none is known. */
static bool importance_of_matrix(const struct writer *w, const struct converted *from,
				 uint64_t expert, float *out, double *scratch)
{
	const struct weight *of = from->weight;
	uint64_t cols = converted_cols(from);
	const struct tensor *sums;
	float count;

	if (!w->o->squares) {
		if (!importance_of(w->o->importance, of->role, of->layer, (uint32_t)expert, cols,
				   out))
			return false;
		converted_columns(&w->x, from, out, (float *)(void *)scratch);
		return true;
	}
	sums = find_squares(w, from, "in_sum2");
	if (!sums)
		return false;
	memcpy(&count, (const float *)find_squares(w, from, "counts")->data + expert,
	       sizeof(count));
	memcpy(out, (const float *)sums->data + expert * cols, cols * sizeof(*out));
	for (uint64_t i = 0; i < cols; i++)
		scratch[i] = (double)out[i];
	return importance_means(scratch, (double)count, cols, out);
}

/* A head that is tied to the embedding has rows that are not multiplied as well, in which all columns count alike. */
static bool has_importance(const struct writer *w, const struct converted *from)
{
	return (w->o->importance || w->o->squares) && converted_is_matrix(from) &&
	       !(from->weight->role == WEIGHT_LM_HEAD && w->x.c->tie_word_embeddings);
}

/* Returns the importance of a tensor's columns, as struct part has it, new. NULL: none is known, or out of memory, which
 * sets *r. */
static float *importance_of_tensor(struct writer *w, const struct converted *from, uint64_t experts,
				   int *r)
{
	uint64_t cols = converted_cols(from);
	double *scratch;
	float *v;

	if (!has_importance(w, from))
		return NULL;
	v = calloc(experts * cols, sizeof(*v));
	scratch = calloc(cols, sizeof(*scratch));
	if (!v || !scratch)
		*r = err_set(w->e, ENOMEM, "%s: out of memory", w->path);
	for (uint64_t i = 0; *r == 0 && i < experts; i++)
		if (!importance_of_matrix(w, from, i, v + i * cols, scratch))
			v[i * cols] = -1;
	free(scratch);
	return v;
}

static int quantise_tensor(struct writer *w, const struct converted *from, const struct tensor *t,
			   struct file_draft *to)
{
	uint64_t rows = converted_rows(from), cols = converted_cols(from);
	uint64_t experts = t->n_dims == 3 ? t->shape[0] : 1, bytes = stored_bytes(t->type, cols);
	int r = 0;
	float *importance = importance_of_tensor(w, from, experts, &r);
	struct part p = {.w = w,
			 .from = from,
			 .to = t->type,
			 .importance = importance,
			 .cols = cols,
			 .expert_rows = rows / experts};

	for (; r == 0 && p.first < rows; p.first += p.n) {
		p.n = MIN(rows - p.first, MAX(PART_FLOATS / p.cols, UINT64_C(1)));
		tell(w, t->name, p.n * bytes);
		r = make_room(w, p.n, p.cols, bytes);
		if (r < 0)
			break;
		parallel_for(CEIL_DIV(p.n, (uint64_t)SHARE_ROWS), make_rows, &p);
		r = p.bad ? err_set(w->e, EINVAL, "%s: tensor %s has a number that is not finite",
				    checkpoint_path(w->x.k), converted_name(&w->x, from, p.bad - 1))
			  : file_draft_write(to, w->blocks, p.n * bytes, w->e);
	}
	free(importance);
	return r;
}

static int produce(size_t index, struct file_draft *to, void *user, struct err *e)
{
	struct writer *w = user;
	const struct converted *from = &w->x.list[index];
	const struct tensor *t = &w->tensors[index];
	int r;

	if (from->tensor.data && from->tensor.type == t->type)
		r = copy_tensor(w, &from->tensor, to);
	else
		r = quantise_tensor(w, from, t, to);
	converted_forget(&w->x, from);
	return r;
}

/* ---- the whole file ---- */

static int write_file(struct writer *w, struct quantize_result *ret)
{
	struct gguf_keys keys;
	uint32_t file_type = 0;
	int r = find_recipe(w, &file_type);

	gguf_keys_init(&keys);
	if (r == 0)
		r = check_squares(w);
	if (r == 0)
		r = choose_types(w);
	if (r == 0)
		r = make_keys(w, file_type, &keys, &ret->tokenizer);
	if (r == 0)
		r = gguf_write(w->path, &keys, w->tensors, w->x.n, produce, w, w->e);
	gguf_keys_release(&keys);
	ret->n_tensors = w->x.n;
	ret->bytes = w->all;
	for (size_t i = 0; i < w->x.n; i++)
		ret->elements += converted_rows(&w->x.list[i]) * converted_cols(&w->x.list[i]);
	return r;
}

int quantize(struct checkpoint *k, const struct model_config *c, const struct weight *table,
	     const struct quantize_options *o, const char *path, struct quantize_result *ret,
	     struct err *e)
{
	struct writer w = {.o = o, .path = path, .e = e};
	struct weights *weights = NULL;
	int r = weights_open(k, c, table, &weights, e);

	*ret = (struct quantize_result){0};
	if (r == 0)
		r = conversion_open(k, c, weights, &w.x, e);
	if (r == 0)
		r = write_file(&w, ret);
	conversion_release(&w.x);
	weights_close(weights);
	free(w.tensors);
	free(w.floats);
	free(w.blocks);
	return r;
}
