#include "engine/checkpoint/resolve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/layout.h"

struct resolver {
	const char *path;
	const struct naming *naming;
	const struct tensor_set *const *sets; /* of the family, by this naming */
	const char *prefix;		      /* of the language model */
	char where[64];			      /* the prefix that find() puts before names */
	const struct model_config *c;
	const struct weight *table; /* [n_layers][WEIGHT_ROLES], as are sources */
	struct weight_source *sources;
	struct arena *arena;
	const struct tensor *list; /* [n] */
	size_t n;
	bool *used; /* [n] whether a tensor of list holds weights */
	struct err *e;
};

/* ---- one tensor ---- */

static struct weight_source *source_of(struct resolver *r, enum weight_role role, uint32_t layer)
{
	return &r->sources[(size_t)layer * WEIGHT_ROLES + role];
}

/* Returns the stretch that is to be filled in next: that of the expert if w has experts, else a new one. NULL: out of
 * memory. */
static struct weight_rows *new_part(struct resolver *r, const struct weight *w, uint32_t expert)
{
	struct weight_source *s = source_of(r, w->role, w->layer);
	uint32_t n = MAX(w->experts, (uint32_t)TENSOR_SECTIONS_MAX);

	if (!s->parts)
		s->parts = arena_array(r->arena, n, sizeof(*s->parts));
	if (!s->parts) {
		err_set(r->e, ENOMEM, "%s: out of memory for the table of weights", r->path);
		return NULL;
	}
	if (w->experts > 1) {
		s->n_parts = w->experts;
		return &s->parts[expert];
	}
	return &s->parts[s->n_parts++];
}

/* Returns whether the tensor has the shape of the layout. Leading dimensions of 1 do not count, because some writers
 * leave them out. */
static bool has_shape(const struct tensor *t, const struct layout *l)
{
	for (uint32_t i = 1; i <= MAX(t->n_dims, l->n_dims); i++)
		if ((i <= t->n_dims ? t->shape[t->n_dims - i] : 1) !=
		    (i <= l->n_dims ? l->shape[l->n_dims - i] : 1))
			return false;
	return true;
}

/* Checks that t can be read and has the shape of the layout. */
static int check_plain(struct resolver *r, const struct tensor *t, const struct layout *l)
{
	char has[192], wants[192];

	if (!t->type->to_float)
		return err_set(r->e, ENOTSUP,
			       "%s: tensor %s has dtype %s, in which weights are not supported%s",
			       t->file, t->name, t->type->name,
			       t->type->bytes == 1 ? " without scales" : "");
	if (has_shape(t, l))
		return 0;
	tensor_print_shape(has, sizeof(has), t->shape, t->n_dims);
	tensor_print_shape(wants, sizeof(wants), l->shape, l->n_dims);
	return err_set(r->e, EINVAL, "%s: tensor %s has shape [%s], but [%s] by %s", t->file,
		       t->name, has, wants, r->naming->config);
}

/* Opens a quantised weight, which the arena owns. */
static int open_quantised(struct resolver *r, const struct quantised_format *f, const char *name,
			  const struct layout *l, const struct quantised **ret)
{
	const struct quantised_want want = {
		.path = r->path,
		.list = r->list,
		.n = r->n,
		.name = name,
		.experts = l->experts ? l->groups : 0,
		.rows = l->experts ? l->stride : l->groups * l->stride,
		.cols = l->cols,
		.config = &r->c->quantised,
	};
	struct quantised *q = arena_alloc(r->arena, sizeof(*q));

	if (!q)
		return err_set(r->e, ENOMEM, "%s: out of memory for the table of weights", r->path);
	*ret = q;
	return quantised_open(f, &want, r->used, q, r->e);
}

/* Notes the rows that a tensor, or a quantised weight in its place, holds. `expert`: the number of the expert, if the
 * tensor belongs to one; else 0. */
static int add_rows(struct resolver *r, const struct tensor *t, const struct quantised *q,
		    const struct layout *l, uint32_t expert)
{
	for (uint32_t i = 0; i < l->n_sections; i++) {
		const struct layout_section *s = &l->sections[i];

		for (uint32_t k = 0; k < (l->experts ? l->groups : 1); k++) {
			struct weight_rows *part = new_part(r, s->weight, l->experts ? k : expert);

			if (!part)
				return -ENOMEM;
			*part = (struct weight_rows){
				.tensor = t,
				.quantised = q,
				.first = k * l->stride + s->first,
				.start = s->start,
				.group = s->rows,
				.stride = l->stride,
				.pairs = l->pairs,
			};
		}
	}
	return 0;
}

/* Returns the format of a weight that may be quantised: of a matrix, not of a vector or a convolution. NULL: it is
 * plain. */
static const struct quantised_format *format_of(const struct resolver *r, const char *name,
						const struct layout *l)
{
	return l->n_dims == 2 || l->experts ? quantised_find(r->list, r->n, name) : NULL;
}

/* Finds the tensor of that name, or the quantised weight in its place, checks it, marks its tensors as used and notes
 * its rows. */
static int claim(struct resolver *r, const char *name, const struct layout *l, uint32_t expert)
{
	const struct quantised_format *f = format_of(r, name, l);
	const struct tensor *t = tensor_find(r->list, r->n, name);
	const struct quantised *q = NULL;
	int error;

	if (!f && !t)
		return err_set(r->e, ENOENT, "%s: tensor %s is missing", r->path, name);
	if (f) {
		error = open_quantised(r, f, name, l, &q);
	} else {
		error = check_plain(r, t, l);
		r->used[t - r->list] = true;
	}
	return error < 0 ? error : add_rows(r, q ? q->codes : t, q, l, expert);
}

/* ---- sets of tensors ---- */

/* Returns whether the checkpoint has the tensor, or a quantised weight in its place. */
static bool has(const struct resolver *r, const struct family_tensor *t)
{
	char name[TENSOR_NAME_MAX + 1];

	layout_name(t, r->where, 0, name);
	return tensor_find(r->list, r->n, name) || quantised_find(r->list, r->n, name);
}

static int missing(const struct resolver *r, const struct family_tensor *t)
{
	char name[TENSOR_NAME_MAX + 1];

	layout_name(t, r->where, 0, name);
	return err_set(r->e, ENOENT, "%s: tensor %s is missing", r->path, name);
}

/* Finds a tensor, or one for each expert, and marks it as used. Does nothing if the layer has none of its weights. */
static int resolve_tensor(struct resolver *r, const struct family_tensor *want, uint32_t layer)
{
	char name[TENSOR_NAME_MAX + 1];
	struct layout l;
	int error = 0;

	if (!layout_of(want, r->c, r->table, layer, &l))
		return 0;
	for (uint32_t i = 0; error == 0 && i < l.n_tensors; i++) {
		layout_name(want, r->where, i, name);
		error = claim(r, name, &l, i);
	}
	return error;
}

static int resolve_set(struct resolver *r, const struct tensor_set *set, uint32_t layer)
{
	int error = 0;

	for (uint32_t i = 0; error == 0 && i < set->n; i++)
		error = resolve_tensor(r, &set->tensors[i], layer);
	return error;
}

/* Returns the tensor that holds this weight in the first of the family's sets that has the weight. */
static const struct family_tensor *own_tensor(const struct resolver *r, enum weight_role role,
					      uint32_t layer)
{
	for (const struct tensor_set *const *s = r->sets; *s; s++)
		for (uint32_t i = 0; layout_has_set(*s, r->c, layer) && i < (*s)->n; i++)
			for (uint32_t k = 0; k <= (*s)->tensors[i].more; k++)
				if ((*s)->tensors[i].sections[k].role == role)
					return &(*s)->tensors[i];
	return NULL;
}

static int resolve_layer(struct resolver *r, uint32_t layer)
{
	int error = 0;

	snprintf(r->where, sizeof(r->where), "%s%s%u.", r->prefix, r->naming->layer, layer);
	for (const struct tensor_set *const *s = r->sets; error == 0 && *s; s++) {
		const struct family_tensor *first = &(*s)->tensors[0];

		if (layout_has_set(*s, r->c, layer) &&
		    !source_of(r, first->sections[0].role, layer)->n_parts && has(r, first))
			error = resolve_set(r, *s, layer);
	}
	for (int role = WEIGHT_INPUT_NORM; error == 0 && role < WEIGHT_ROLES; role++)
		if (r->table[(size_t)layer * WEIGHT_ROLES + role].rows &&
		    !source_of(r, role, layer)->n_parts)
			error = missing(r, own_tensor(r, role, layer));
	return error;
}

/* ---- the whole model ---- */

/* Looks for the head under its prefixes. A head that is tied to the embedding may be missing; if it is there, it must
 * equal the embedding. */
static int resolve_lm_head(struct resolver *r)
{
	const struct naming *names = r->naming;
	char name[TENSOR_NAME_MAX + 1], embed_name[TENSOR_NAME_MAX + 1];
	const struct weight_rows *head, *embed;
	bool found = false;
	struct layout l;
	int error;

	for (const char *const *p = names->head_prefixes; !found && *p; p++) {
		snprintf(r->where, sizeof(r->where), "%s", *p);
		found = has(r, names->lm_head);
	}
	if (!found && !r->c->tie_word_embeddings)
		return err_set(r->e, ENOENT,
			       "%s: tensor %s is missing and %s does not tie it to the embedding",
			       r->path, names->lm_head->name, names->config);
	layout_of(names->lm_head, r->c, r->table, 0, &l);
	layout_name(names->embed, r->prefix, 0, embed_name);
	layout_name(names->lm_head, r->where, 0, name);
	error = claim(r, found ? name : embed_name, &l, 0);
	if (error < 0 || !found || !r->c->tie_word_embeddings)
		return error;
	head = source_of(r, WEIGHT_LM_HEAD, 0)->parts;
	embed = source_of(r, WEIGHT_EMBED, 0)->parts;
	if (!head->quantised && !embed->quantised && head->tensor->type == embed->tensor->type &&
	    !memcmp(head->tensor->data, embed->tensor->data, head->tensor->bytes))
		return 0;
	return err_set(r->e, EINVAL,
		       "%s: tensor %s differs from the embedding, but %s has tie_word_embeddings",
		       head->tensor->file, head->tensor->name, names->config);
}

static int resolve_model(struct resolver *r)
{
	const struct naming *names = r->naming;
	bool found = false;
	int error;

	for (const char *const *p = names->prefixes; !found && *p; p++) {
		r->prefix = *p;
		snprintf(r->where, sizeof(r->where), "%s", *p);
		found = has(r, names->embed);
	}
	error = resolve_tensor(r, names->embed, 0);
	if (error == 0)
		error = resolve_tensor(r, names->final_norm, 0);
	if (error == 0)
		error = resolve_lm_head(r);
	for (uint32_t i = 0; error == 0 && i < r->c->n_layers; i++)
		error = resolve_layer(r, i);
	return error;
}

/* ---- tensors that the language model does not use ---- */

static bool is_foreign(const struct resolver *r, const char *name)
{
	return r->naming->is_foreign(name, r->c);
}

/* Refuses a checkpoint with names that only methods of quantising have which are not supported. It is called before the
 * model's weights are looked for. Such a checkpoint lacks some of them, and an error about a missing weight would say
 * less. */
static int refuse_unserved(struct resolver *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct tensor *t = &r->list[i];
		const char *method = is_foreign(r, t->name) ? NULL : quantised_unserved(t->name);

		if (method)
			return err_set(
				r->e, ENOTSUP,
				"%s: tensor %s belongs to weights that %s has quantised, which "
				"is not supported",
				t->file, t->name, method);
	}
	return 0;
}

static int refuse_left_over(struct resolver *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (!r->used[i] && !is_foreign(r, r->list[i].name) &&
		    !quantised_ignored(r->list[i].name))
			return err_set(r->e, EINVAL,
				       "%s: tensor %s has no place in the model of %s",
				       r->list[i].file, r->list[i].name, r->naming->config);
	return 0;
}

int resolve_weights(struct checkpoint *k, const struct model_config *c, const struct weight *table,
		    struct arena *arena, struct weight_source *sources, struct err *e)
{
	bool gguf = checkpoint_names(k) == CHECKPOINT_GGUF;
	struct resolver r = {.path = checkpoint_path(k),
			     .naming = gguf ? &naming_gguf : &naming_transformers,
			     .sets = gguf ? c->family->gguf_sets : c->family->sets,
			     .c = c,
			     .table = table,
			     .arena = arena,
			     .sources = sources,
			     .e = e};
	int error = checkpoint_tensors(k, &r.list, &r.n, e);

	if (error < 0)
		return error;
	r.used = calloc(r.n ? r.n : 1, sizeof(*r.used));
	if (!r.used)
		return err_set(e, ENOMEM, "%s: out of memory", r.path);
	error = refuse_unserved(&r);
	if (error == 0)
		error = resolve_model(&r);
	if (error == 0)
		error = refuse_left_over(&r);
	free(r.used);
	return error;
}
