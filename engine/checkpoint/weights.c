/* Weights by role. weights_open lets resolve.c find the tensors of all rows, so a row is later found by a lookup in a
 * table. */
#include "engine/checkpoint/weights.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "engine/checkpoint/resolve.h"
#include "engine/checkpoint/synthetic.h"

#define PARTS_MAX ((size_t)1 << 30) /* the most bytes that struct weight_rows may take in all */

struct weights {
	struct weight *table; /* owned, [n_layers][WEIGHT_ROLES] */
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
	w->tied = c->tie_word_embeddings;
	*ret = w;
	return 0;
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
	*ret = w;
	return 0;
}

int weights_synthetic(uint64_t seed, const struct model_config *c, const struct weight *table,
		      struct weights **ret)
{
	int r = new_weights(c, table, ret);

	if (r == 0)
		(*ret)->seed = seed;
	return r;
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

/* Returns the stretch that has a row. *row becomes the number of this row in the tensor, counted from the stretch's
 * `data`. */
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
	*row = *row / part->group * part->stride + *row % part->group;
	return part;
}

struct weight_view weights_view(const struct weights *w, enum weight_role role, uint32_t layer,
				uint32_t expert, uint64_t row)
{
	const struct weight_rows *part = find_rows(w, role, layer, expert, &row);
	uint64_t cols = weights_find(w, role, layer)->cols;

	return (struct weight_view){part->type, part->data + row * stored_bytes(part->type, cols)};
}

const char *weights_tensor(const struct weights *w, enum weight_role role, uint32_t layer,
			   uint32_t expert, uint64_t row)
{
	return find_rows(w, role, layer, expert, &row)->name;
}

void weights_row(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		 uint64_t row, bool bf16, void *out)
{
	uint64_t cols = weights_find(w, role, layer)->cols;
	struct weight_synthesis s;
	struct weight_view v;

	if (weights_synthesis(w, role, layer, expert, &s)) {
		synthetic_row(&s, row, cols, bf16, out);
		return;
	}
	v = weights_view(w, role, layer, expert, row);
	stored_read(v.type, v.data, cols, bf16, out);
}

void weights_forget(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		    uint64_t row, uint64_t n)
{
	uint64_t cols = weights_find(w, role, layer)->cols, end = row + n;

	while (w->sources && row < end) {
		uint64_t first = row, last, next;
		const struct weight_rows *part = find_rows(w, role, layer, expert, &first);
		size_t bytes = stored_bytes(part->type, cols);

		/* `last` goes up to the last row that is in the same stretch. */
		for (last = first; ++row < end; last = next) {
			next = row;
			if (find_rows(w, role, layer, expert, &next) != part)
				break;
		}
		checkpoint_forget(w->checkpoint, part->data + first * bytes,
				  (last - first + 1) * bytes);
	}
}
