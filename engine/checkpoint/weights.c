/* Weights by role. weights_open lets resolve.c find the tensors of all rows, so a row is later found by a lookup in a
 * table. */
#include "engine/checkpoint/weights.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "engine/checkpoint/recipe.h"
#include "engine/checkpoint/resolve.h"
#include "engine/checkpoint/synthetic.h"
#include "kernels/quant.h"

#define PARTS_MAX ((size_t)1 << 30) /* the most bytes that struct weight_rows may take in all */

struct weights {
	struct weight *table; /* owned, [n_layers][WEIGHT_ROLES] */
	size_t n_table;	      /* n_layers * WEIGHT_ROLES */
	/* owned, [n_layers][WEIGHT_ROLES] too; NULL: weights are synthetic */
	struct weight_source *sources;
	const struct checkpoint *checkpoint; /* borrowed; NULL: weights are synthetic */
	struct arena arena;		     /* the stretches of the sources */
	uint64_t seed;
	bool tied; /* the head is the embedding, also with synthetic weights */
};

static int new_weights(const struct model_config *c, const struct weight *table,
		       struct weights **ret)
{
	size_t n = (size_t)c->n_layers * WEIGHT_ROLES;
	struct weights *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	arena_init(&w->arena, PARTS_MAX);
	w->table = calloc(n, sizeof(*w->table));
	if (!w->table) {
		weights_close(w);
		return -ENOMEM;
	}
	memcpy(w->table, table, n * sizeof(*table));
	w->n_table = n;
	w->tied = c->tie_word_embeddings;
	*ret = w;
	return 0;
}

static bool is_matrix(const struct weight *w)
{
	return w->form == PACK_STACKED || w->form == PACK_TURNS || w->form == PACK_LOOKUP;
}

/* Returns the type of a stretch's rows on the device; NULL: they are plain there. */
static const struct quant_type *type_of(const struct weight_rows *part)
{
	return part->quantised ? quantised_type(part->quantised)
			       : quant_find(part->tensor->type->name);
}

/* Returns whether panels of 16 rows can have this type: the rows of a panel have one factor, so that tensors with factors
 * must not share a panel. Each expert has panels of its own. */
static bool fits_panels(const struct quant_type *t, const struct weight *w,
			const struct weight_source *s)
{
	for (uint32_t k = 1; t->scale == QUANT_UE4M3 && w->experts == 1 && k < s->n_parts; k++)
		if (s->parts[k].start % 16)
			return false;
	return true;
}

/* Sets the types of all matrices. A matrix whose tensors have different types is plain. */
static void note_types(struct weights *w)
{
	for (size_t i = 0; i < w->n_table; i++) {
		const struct weight_source *s = &w->sources[i];
		const struct quant_type *t;

		if (!w->table[i].rows || !is_matrix(&w->table[i]) || !s->n_parts)
			continue;
		t = type_of(&s->parts[0]);
		for (size_t k = 1; t && k < s->n_parts; k++)
			if (type_of(&s->parts[k]) != t)
				t = NULL;
		if (t && !fits_panels(t, &w->table[i], s))
			t = NULL;
		w->table[i].quant = t ? t->number : QUANT_PLAIN;
	}
}

/* Whether a safetensors file holds rows of a weight as codes with scales. */
static bool has_codes(const struct weight_source *s)
{
	for (uint32_t k = 0; k < s->n_parts; k++)
		if (s->parts[k].quantised)
			return true;
	return false;
}

void weights_count_codes(const struct weights *w, uint32_t *ret_kept, uint32_t *ret_floats)
{
	*ret_kept = *ret_floats = 0;
	for (size_t i = 0; w->sources && i < w->n_table; i++)
		if (has_codes(&w->sources[i]))
			++*(w->table[i].quant ? ret_kept : ret_floats);
}

int weights_open(struct checkpoint *k, const struct model_config *c, const struct weight *table,
		 struct weights **ret, struct err *e)
{
	struct weights *w;
	int r = new_weights(c, table, &w);

	if (r < 0)
		return err_set(e, -r, "%s: out of memory for the table of weights",
			       checkpoint_path(k));
	w->checkpoint = k;
	w->sources = calloc((size_t)c->n_layers * WEIGHT_ROLES, sizeof(*w->sources));
	if (!w->sources)
		r = err_set(e, ENOMEM, "%s: out of memory for the table of weights",
			    checkpoint_path(k));
	if (r == 0)
		r = resolve_weights(k, c, w->table, &w->arena, w->sources, e);
	if (r < 0) {
		weights_close(w);
		return r;
	}
	note_types(w);
	*ret = w;
	return 0;
}

int weights_synthetic(uint64_t seed, const char *recipe, const struct model_config *c,
		      const struct weight *table, struct weights **ret)
{
	int r = new_weights(c, table, ret);

	if (r < 0)
		return r;
	(*ret)->seed = seed;
	for (size_t i = 0; recipe && i < (size_t)c->n_layers * WEIGHT_ROLES; i++) {
		struct weight *w = &(*ret)->table[i];
		const struct quant_type *t = NULL;

		if (!w->rows || !is_matrix(w))
			continue;
		if (!recipe_type(recipe, w, c->n_layers, &t)) {
			weights_close(*ret);
			*ret = NULL;
			return -EINVAL;
		}
		w->quant = t ? t->number : QUANT_PLAIN;
	}
	if (c->tie_word_embeddings)
		(*ret)->table[WEIGHT_EMBED].quant = (*ret)->table[WEIGHT_LM_HEAD].quant;
	return 0;
}

uint32_t weights_quant(const struct weights *w)
{
	uint32_t mask = 0;

	for (size_t i = 0; i < w->n_table; i++)
		if (w->table[i].rows && is_matrix(&w->table[i]) &&
		    (w->table[i].quant || w->table[i].form != PACK_LOOKUP))
			mask |= 1u << w->table[i].quant;
	return mask;
}

void weights_close(struct weights *w)
{
	if (!w)
		return;
	arena_release(&w->arena);
	free(w->sources);
	free(w->table);
	free(w);
}

const struct weight *weights_all(const struct weights *w)
{
	return w->table;
}

const struct weight *weights_find(const struct weights *w, enum weight_role role, uint32_t layer)
{
	const struct weight *found = &w->table[(size_t)layer * WEIGHT_ROLES + role];

	return found->rows ? found : NULL;
}

bool weights_synthesis(const struct weights *w, enum weight_role role, uint32_t layer,
		       uint32_t expert, struct weight_synthesis *ret)
{
	if (w->sources)
		return false;
	if (role == WEIGHT_LM_HEAD && w->tied)
		role = WEIGHT_EMBED;
	synthetic_weight(w->seed, weights_find(w, role, layer), expert, ret);
	return true;
}

/* Returns the stretch that has a row. *row becomes the number of this row in the tensor. */
static const struct weight_rows *find_rows(const struct weights *w, enum weight_role role,
					   uint32_t layer, uint32_t expert, uint64_t *row)
{
	const struct weight *found = weights_find(w, role, layer);
	const struct weight_source *s = &w->sources[(size_t)layer * WEIGHT_ROLES + role];
	const struct weight_rows *part = s->parts;

	assert(found && *row < found->rows && expert < found->experts);
	if (found->experts > 1)
		part += expert;
	else
		while (part + 1 < s->parts + s->n_parts && *row >= part[1].start)
			part++;
	*row -= part->start;
	if (part->pairs)
		*row = *row / (2 * part->pairs) * (2 * part->pairs) + *row % part->pairs * 2 +
		       *row / part->pairs % 2;
	*row = part->first + *row / part->group * part->stride + *row % part->group;
	return part;
}

/* Returns how many of n rows from `row` on follow each other in one stretch. */
static uint64_t run_of(const struct weights *w, enum weight_role role, uint32_t layer,
		       uint32_t expert, uint64_t row, uint64_t n)
{
	uint64_t first = row, next, k;
	const struct weight_rows *part = find_rows(w, role, layer, expert, &first);

	for (k = 1; k < n; k++) {
		next = row + k;
		if (find_rows(w, role, layer, expert, &next) != part || next != first + k)
			break;
	}
	return k;
}

struct weight_view weights_view(const struct weights *w, enum weight_role role, uint32_t layer,
				uint32_t expert, uint64_t row)
{
	const struct weight_rows *part = find_rows(w, role, layer, expert, &row);
	const struct tensor *t = part->tensor;
	uint64_t cols = weights_find(w, role, layer)->cols;

	assert(!part->quantised);
	return (struct weight_view){t->type,
				    (const uint8_t *)t->data + row * stored_bytes(t->type, cols)};
}

const struct quantised *weights_quantised(const struct weights *w, enum weight_role role,
					  uint32_t layer, uint32_t expert, uint64_t row,
					  uint64_t *ret_row)
{
	const struct weight_rows *part = find_rows(w, role, layer, expert, &row);

	*ret_row = row;
	return part->quantised;
}

bool weights_blocks(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		    uint64_t row, uint64_t n, void *out, float *ret_factor)
{
	const struct weight *of = weights_find(w, role, layer);
	const struct quant_type *t = quant_of(of->quant);
	uint64_t bytes = of->cols / t->block * t->bytes, at, k;
	bool finite = true;
	uint8_t *to = out;

	for (; n; n -= k, row += k, to += k * bytes) {
		const struct quantised *q = weights_quantised(w, role, layer, expert, row, &at);

		k = run_of(w, role, layer, expert, row, n);
		finite &= quantised_blocks(q, t, at, k, to);
		*ret_factor = quantised_factor(q, at);
	}
	return finite;
}

const char *weights_tensor(const struct weights *w, enum weight_role role, uint32_t layer,
			   uint32_t expert, uint64_t row)
{
	return find_rows(w, role, layer, expert, &row)->tensor->name;
}

void weights_rows(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		  uint64_t row, uint64_t n, bool bf16, void *out, uint64_t ld)
{
	uint64_t cols = weights_find(w, role, layer)->cols, at, k;
	size_t bytes = ld * (bf16 ? sizeof(uint16_t) : sizeof(float));
	const struct quantised *q;
	struct weight_synthesis s;
	struct weight_view v;
	char *to = out;

	if (weights_synthesis(w, role, layer, expert, &s)) {
		for (; n; n--, to += bytes)
			synthetic_row(&s, row++, cols, bf16, to);
		return;
	}
	for (; n; n -= k, row += k, to += k * bytes) {
		k = 1;
		q = weights_quantised(w, role, layer, expert, row, &at);
		if (q) {
			k = run_of(w, role, layer, expert, row, n);
			quantised_read(q, at, k, bf16, to, ld);
		} else {
			v = weights_view(w, role, layer, expert, row);
			stored_read(v.type, v.data, cols, bf16, to);
		}
	}
}

void weights_row(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		 uint64_t row, bool bf16, void *out)
{
	weights_rows(w, role, layer, expert, row, 1, bf16, out, 0);
}

/* Tells which bytes of a stretch's tensor have n rows from `row` on. */
static void span_of(const struct weight_rows *part, uint64_t cols, uint64_t row, uint64_t n,
		    const void **data, size_t *bytes)
{
	const struct tensor *t = part->tensor;

	if (part->quantised) {
		quantised_span(part->quantised, row, n, data, bytes);
		return;
	}
	*data = (const uint8_t *)t->data + row * stored_bytes(t->type, cols);
	*bytes = n * stored_bytes(t->type, cols);
}

void weights_forget(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		    uint64_t row, uint64_t n)
{
	uint64_t cols = weights_find(w, role, layer)->cols, end = row + n;

	while (w->sources && row < end) {
		uint64_t first = row, last, next;
		const struct weight_rows *part = find_rows(w, role, layer, expert, &first);
		const void *data;
		size_t bytes;

		/* first to last: all rows that are in the same stretch. */
		for (last = first; ++row < end;) {
			next = row;
			if (find_rows(w, role, layer, expert, &next) != part)
				break;
			first = MIN(first, next);
			last = MAX(last, next);
		}
		span_of(part, cols, first, last - first + 1, &data, &bytes);
		checkpoint_forget(w->checkpoint, data, bytes);
	}
}
