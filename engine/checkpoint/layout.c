#include "engine/checkpoint/layout.h"

#include <stdio.h>
#include <string.h>

/* Returns the number of rows that section i has in a group. The sections before it have `taken` rows of its weight
 * w. */
static uint64_t section_rows(const struct family_tensor *t, uint32_t i, const struct weight *w,
			     uint64_t taken, uint64_t groups, const struct model_config *c)
{
	uint32_t rows;

	if (t->form == TENSOR_EXPERTS)
		return w->rows;
	if (!t->sections[i].rows_at)
		return (w->rows - taken) / groups;
	memcpy(&rows, (const char *)c + t->sections[i].rows_at, sizeof(rows));
	return rows;
}

bool layout_of(const struct family_tensor *t, const struct model_config *c,
	       const struct weight *table, uint32_t layer, struct layout *ret)
{
	const struct weight *of_layer = &table[(size_t)layer * WEIGHT_ROLES];
	const struct weight *w = &of_layer[t->sections[0].role];
	struct layout l = {.groups = 1, .cols = w->cols, .n_sections = 1u + t->more};
	uint64_t taken = 0;

	if (!w->rows)
		return false;
	l.experts = t->form == TENSOR_EXPERTS;
	l.pairs = t->form == TENSOR_PAIRS ? c->head_dim / 2 : 0;
	if (t->form == TENSOR_EXPERTS)
		l.groups = w->experts;
	else if (t->form == TENSOR_HEADS)
		l.groups = c->n_key_heads;
	for (uint32_t i = 0; i < l.n_sections; i++) {
		struct layout_section *s = &l.sections[i];

		if (i && t->sections[i].role != t->sections[i - 1].role)
			taken = 0;
		s->weight = &of_layer[t->sections[i].role];
		s->first = l.stride;
		s->start = taken;
		s->rows = section_rows(t, i, s->weight, taken, l.groups, c);
		taken += s->rows * l.groups;
		l.stride += s->rows;
	}
	if (l.experts)
		l.shape[l.n_dims++] = l.groups;
	if (t->form != TENSOR_VECTOR)
		l.shape[l.n_dims++] = l.experts ? l.stride : l.groups * l.stride;
	if (t->form == TENSOR_CONV)
		l.shape[l.n_dims++] = 1;
	l.shape[l.n_dims++] = l.cols;
	l.n_tensors = l.experts ? 1 : w->experts;
	*ret = l;
	return true;
}

bool layout_has_set(const struct tensor_set *set, const struct model_config *c, uint32_t layer)
{
	const struct layer_kinds *k = &c->layers[layer];

	const bool sliding = set->kind == LAYER_ATTENTION && k->mixer == LAYER_SLIDING;

	return set->kind == LAYER_KINDS || set->kind == k->mixer || set->kind == k->mlp || sliding;
}

void layout_name(const struct family_tensor *t, const char *prefix, uint32_t expert, char *out)
{
	int n = (int)strcspn(t->name, "*");

	if (t->name[n])
		snprintf(out, TENSOR_NAME_MAX + 1, "%s%.*s%u%s", prefix, n, t->name, expert,
			 t->name + n + 1);
	else
		snprintf(out, TENSOR_NAME_MAX + 1, "%s%s", prefix, t->name);
}

struct walk {
	const struct model_config *c;
	const struct weight *table;
	layout_visit *visit;
	void *user;
};

/* Visits a tensor, or one for each expert. Does nothing if the layer has none of its weights. */
static void visit_tensor(const struct walk *w, const struct family_tensor *t, const char *prefix,
			 uint32_t layer)
{
	char name[TENSOR_NAME_MAX + 1];
	struct layout l;

	if (!layout_of(t, w->c, w->table, layer, &l))
		return;
	for (uint32_t i = 0; i < l.n_tensors; i++) {
		layout_name(t, prefix, i, name);
		w->visit(w->user, name, &l, i);
	}
}

static void visit_layer(const struct walk *w, const struct tensor_set *const *sets,
			const char *prefix, uint32_t layer)
{
	bool visited[WEIGHT_ROLES] = {false};

	for (const struct tensor_set *const *s = sets; *s; s++) {
		const struct tensor_section *first = (*s)->tensors[0].sections;

		if (!layout_has_set(*s, w->c, layer) || visited[first->role])
			continue;
		visited[first->role] = true;
		for (uint32_t i = 0; i < (*s)->n; i++)
			visit_tensor(w, &(*s)->tensors[i], prefix, layer);
	}
}

void layout_each(const struct naming *naming, const struct tensor_set *const *sets,
		 const char *prefix, const struct model_config *c, const struct weight *table,
		 layout_visit *visit, void *user)
{
	const struct walk w = {c, table, visit, user};
	char of_layer[64];

	visit_tensor(&w, naming->embed, prefix, 0);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		snprintf(of_layer, sizeof(of_layer), "%s%s%u.", prefix, naming->layer, i);
		visit_layer(&w, sets, of_layer, i);
	}
	visit_tensor(&w, naming->final_norm, prefix, 0);
	if (!c->tie_word_embeddings)
		visit_tensor(&w, naming->lm_head, naming->head_prefixes[0], 0);
}
