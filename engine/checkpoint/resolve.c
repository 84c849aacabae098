#include "engine/checkpoint/resolve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/layout.h"

struct resolver {
	const char *path;
	const char *prefix; /* of the language model */
	char where[64];	    /* the prefix that find() puts before names */
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

static void print_shape(char *out, size_t size, const uint64_t *shape, uint32_t n)
{
	size_t at = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%llu", i ? ", " : "",
				       (unsigned long long)shape[i]);
}

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

/* Checks that t can be read and has the shape of the layout, marks it as used and notes the rows that it holds.
 * `expert`: the number of the expert, if the tensor belongs to one; else 0. */
static int claim(struct resolver *r, const struct tensor *t, const struct layout *l,
		 uint32_t expert)
{
	char has[192], wants[192];
	uint64_t row_bytes;

	if (!t->type->to_float)
		return err_set(
			r->e, ENOTSUP,
			"%s: tensor %s has dtype %s: only BF16, F16 and F32 weights are supported",
			t->file, t->name, t->type->name);
	if (t->n_dims != l->n_dims || memcmp(t->shape, l->shape, l->n_dims * sizeof(*l->shape))) {
		print_shape(has, sizeof(has), t->shape, t->n_dims);
		print_shape(wants, sizeof(wants), l->shape, l->n_dims);
		return err_set(r->e, EINVAL,
			       "%s: tensor %s has shape [%s], config.json makes it [%s]", t->file,
			       t->name, has, wants);
	}
	r->used[t - r->list] = true;
	row_bytes = stored_bytes(t->type, l->cols);
	for (uint32_t i = 0; i < l->n_sections; i++) {
		const struct layout_section *s = &l->sections[i];

		for (uint32_t k = 0; k < (l->experts ? l->groups : 1); k++) {
			struct weight_rows *part = new_part(r, s->weight, l->experts ? k : expert);

			if (!part)
				return -ENOMEM;
			*part = (struct weight_rows){
				.name = t->name,
				.data = (const uint8_t *)t->data +
					(k * l->stride + s->first) * row_bytes,
				.type = t->type,
				.start = s->start,
				.group = s->rows,
				.stride = l->stride,
			};
		}
	}
	return 0;
}

/* ---- sets of tensors ---- */

static const struct tensor *find(const struct resolver *r, const struct family_tensor *t,
				 uint32_t expert)
{
	char name[TENSOR_NAME_MAX + 1];

	layout_name(t, r->where, expert, name);
	return tensor_find(r->list, r->n, name);
}

static int missing(const struct resolver *r, const struct family_tensor *t, uint32_t expert)
{
	char name[TENSOR_NAME_MAX + 1];

	layout_name(t, r->where, expert, name);
	return err_set(r->e, ENOENT, "%s: tensor %s is missing", r->path, name);
}

/* Finds a tensor, or one for each expert, and marks it as used. Does nothing if the layer has none of its weights. */
static int resolve_tensor(struct resolver *r, const struct family_tensor *want, uint32_t layer)
{
	struct layout l;
	int error = 0;

	if (!layout_of(want, r->c, r->table, layer, &l))
		return 0;
	for (uint32_t i = 0; error == 0 && i < l.n_tensors; i++) {
		const struct tensor *t = find(r, want, i);

		if (!t)
			return missing(r, want, i);
		error = claim(r, t, &l, i);
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
	for (const struct tensor_set *const *s = r->c->family->sets; *s; s++)
		for (uint32_t i = 0; layout_has_set(*s, r->c, layer) && i < (*s)->n; i++)
			for (uint32_t k = 0; k <= (*s)->tensors[i].more; k++)
				if ((*s)->tensors[i].sections[k].role == role)
					return &(*s)->tensors[i];
	return NULL;
}

static int resolve_layer(struct resolver *r, uint32_t layer)
{
	int error = 0;

	snprintf(r->where, sizeof(r->where), "%slayers.%u.", r->prefix, layer);
	for (const struct tensor_set *const *s = r->c->family->sets; error == 0 && *s; s++) {
		const struct family_tensor *first = &(*s)->tensors[0];

		if (layout_has_set(*s, r->c, layer) &&
		    !source_of(r, first->sections[0].role, layer)->n_parts && find(r, first, 0))
			error = resolve_set(r, *s, layer);
	}
	for (int role = WEIGHT_INPUT_NORM; error == 0 && role < WEIGHT_ROLES; role++)
		if (r->table[(size_t)layer * WEIGHT_ROLES + role].rows &&
		    !source_of(r, role, layer)->n_parts)
			error = missing(r, own_tensor(r, role, layer), 0);
	return error;
}

/* ---- the whole model ---- */

/* Looks for the head under three prefixes. A head that is tied to the embedding may be missing; if it is there, it must
 * equal the embedding. */
static int resolve_lm_head(struct resolver *r, const struct tensor *embed)
{
	static const char *const prefixes[] = {"", "language_model.", "model.language_model."};
	const struct tensor *t = NULL;
	struct layout l;
	int error;

	for (size_t i = 0; !t && i < ARRAY_SIZE(prefixes); i++) {
		snprintf(r->where, sizeof(r->where), "%s", prefixes[i]);
		t = find(r, &tensor_lm_head, 0);
	}
	if (!t && !r->c->tie_word_embeddings)
		return err_set(
			r->e, ENOENT,
			"%s: tensor lm_head.weight is missing and config.json does not tie it to "
			"the embedding",
			r->path);
	layout_of(&tensor_lm_head, r->c, r->table, 0, &l);
	error = claim(r, t ? t : embed, &l, 0);
	if (error == 0 && t && r->c->tie_word_embeddings &&
	    (t->type != embed->type || memcmp(t->data, embed->data, t->bytes) != 0))
		return err_set(r->e, EINVAL,
			       "%s: tensor %s differs from the embedding, but config.json has "
			       "tie_word_embeddings",
			       t->file, t->name);
	return error;
}

static int resolve_model(struct resolver *r)
{
	static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
					       "model."};
	const struct tensor *embed = NULL;
	int error;

	/* The model's prefix is the one under which there is an embedding. */
	for (size_t i = 0; !embed && i < ARRAY_SIZE(prefixes); i++) {
		r->prefix = prefixes[i];
		snprintf(r->where, sizeof(r->where), "%s", r->prefix);
		embed = find(r, &tensor_embed, 0);
	}
	error = resolve_tensor(r, &tensor_embed, 0);
	if (error == 0)
		error = resolve_tensor(r, &tensor_final_norm, 0);
	if (error == 0)
		error = resolve_lm_head(r, embed);
	for (uint32_t i = 0; error == 0 && i < r->c->n_layers; i++)
		error = resolve_layer(r, i);
	return error;
}

/* ---- tensors that the language model does not use ---- */

static bool is_foreign(const char *name)
{
	static const char *const prefixes[] = {
		"model.visual.", "visual.",    "model.vision_tower.", "vision_tower.",
		"mtp.",		 "model.mtp.", "language_model.mtp.", "model.language_model.mtp.",
	};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return name_ends_in(name, ".rotary_emb.inv_freq"); /* a constant that older files hold */
}

/* Refuses a checkpoint with names that only quantised ones have: FP8 and NVFP4 scales, GPTQ, AWQ, compressed-tensors,
 * bitsandbytes. It is called before the model's weights are looked for. Such a checkpoint lacks some of them, and an
 * error about a missing weight would say less. */
static int refuse_quantised(struct resolver *r)
{
	static const char *const suffixes[] = {
		"_scale_inv", "_scale", ".scales", ".qweight",
		".qzeros",    ".g_idx", "_packed", ".absmax",
	};

	for (size_t i = 0; i < r->n; i++)
		for (size_t k = 0; k < ARRAY_SIZE(suffixes) && !is_foreign(r->list[i].name); k++)
			if (name_ends_in(r->list[i].name, suffixes[k]))
				return err_set(
					r->e, ENOTSUP,
					"%s: tensor %s belongs to a quantised checkpoint: only "
					"BF16, F16 and F32 weights are supported",
					r->list[i].file, r->list[i].name);
	return 0;
}

static int refuse_left_over(struct resolver *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (!r->used[i] && !is_foreign(r->list[i].name))
			return err_set(r->e, EINVAL,
				       "%s: tensor %s has no place in the model of config.json",
				       r->list[i].file, r->list[i].name);
	return 0;
}

int resolve_weights(struct checkpoint *k, const struct model_config *c, const struct weight *table,
		    struct arena *arena, struct weight_source *sources, struct err *e)
{
	struct resolver r = {.path = checkpoint_path(k),
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
	error = refuse_quantised(&r);
	if (error == 0)
		error = resolve_model(&r);
	if (error == 0)
		error = refuse_left_over(&r);
	free(r.used);
	return error;
}
