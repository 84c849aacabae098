#include "engine/checkpoint/converted.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"

#define NAMES_MAX ((size_t)1 << 30)

/* ---- the list ---- */

static struct converted *add(struct conversion *x)
{
	bool good = array_grow(x->list, x->cap, x->n + 1);

	x->failed |= !good;
	return good ? &x->list[x->n++] : NULL;
}

/* Returns the type of a weight's numbers if they are plain; else F32. */
static const struct stored_type *type_of(const struct conversion *x, const struct weight *w)
{
	uint64_t row;

	if (weights_quantised(x->w, w->role, w->layer, 0, 0, &row))
		return stored_type_find("F32");
	return weights_view(x->w, w->role, w->layer, 0, 0).type;
}

static void list_tensor(void *user, const char *name, const struct layout *l, uint32_t expert)
{
	struct conversion *x = user;
	struct converted *t = add(x);

	(void)expert; /* all experts of a layer are one tensor */
	if (!t)
		return;
	*t = (struct converted){.weight = l->sections[0].weight, .layout = *l};
	t->tensor = (struct tensor){.name = arena_strdup(&x->arena, name), .n_dims = l->n_dims};
	memcpy(t->tensor.shape, l->shape, sizeof(l->shape));
	t->tensor.type = type_of(x, t->weight);
	x->failed |= !t->tensor.name;
}

/* Lists the numbers by which Llama 3's scaling of RoPE divides each frequency. */
static void list_rope(struct conversion *x)
{
	const struct model_config *c = x->c;
	uint32_t n = c->rotary_dim / 2;
	float *v;
	struct converted *t;

	if (c->rope_scaling != ROPE_LLAMA3)
		return;
	v = arena_array(&x->arena, n, sizeof(*v));
	t = v ? add(x) : NULL;
	x->failed |= !t;
	if (!t)
		return;
	for (uint32_t i = 0; i < n; i++) {
		double length = 2 * M_PI * pow(c->rope_theta, 2.0 * i / c->rotary_dim);
		double smooth = (c->rope_original_context / length - c->rope_low_factor) /
				(c->rope_high_factor - c->rope_low_factor);

		smooth = fmin(fmax(smooth, 0), 1);
		v[i] = (float)(1 / ((1 - smooth) / c->rope_factor + smooth));
	}
	*t = (struct converted){.tensor = {.name = "rope_freqs.weight",
					   .data = v,
					   .bytes = n * sizeof(*v),
					   .shape = {n},
					   .n_dims = 1,
					   .type = stored_type_find("F32")}};
}

/* Notes which weight each tensor of a GGUF file has; of several the first. A head that is tied to the embedding is the
 * weight of that tensor, because types go by the head. */
static void note_weights(struct conversion *x)
{
	const struct weight *table = weights_all(x->w);

	for (size_t i = 0; i < (size_t)x->c->n_layers * WEIGHT_ROLES; i++) {
		const struct weight *w = &table[i];
		const char *name;
		size_t low = 0, high = x->n;

		if (!w->rows)
			continue;
		name = weights_tensor(x->w, w->role, w->layer, 0, 0);
		while (high - low > 1) {
			size_t middle = (low + high) / 2;

			if (strcmp(x->list[middle].tensor.name, name) <= 0)
				low = middle;
			else
				high = middle;
		}
		if (!x->list[low].weight || w->role == WEIGHT_LM_HEAD)
			x->list[low].weight = w;
	}
}

static int list_own(struct conversion *x, struct err *e)
{
	const struct tensor *list;
	size_t n;
	int r = checkpoint_tensors(x->k, &list, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		struct converted *t = add(x);

		if (t)
			*t = (struct converted){.tensor = list[i]};
	}
	if (r == 0 && !x->failed)
		note_weights(x);
	return r;
}

int conversion_open(struct checkpoint *k, const struct model_config *c, const struct weights *w,
		    struct conversion *ret, struct err *e)
{
	int r = 0;

	*ret = (struct conversion){.k = k, .c = c, .w = w};
	arena_init(&ret->arena, NAMES_MAX);
	if (checkpoint_names(k) == CHECKPOINT_GGUF) {
		r = list_own(ret, e);
	} else {
		list_rope(ret);
		layout_each(&naming_gguf, c->family->gguf_sets, "", c, weights_all(w), list_tensor,
			    ret);
		if (c->tie_word_embeddings && !ret->failed)
			for (size_t i = 0; i < ret->n; i++)
				if (ret->list[i].weight &&
				    ret->list[i].weight->role == WEIGHT_EMBED)
					ret->list[i].weight = weights_find(w, WEIGHT_LM_HEAD, 0);
	}
	if (r == 0 && ret->failed)
		r = err_set(e, ENOMEM, "%s: out of memory for the list of tensors",
			    checkpoint_path(k));
	return r;
}

void conversion_release(struct conversion *x)
{
	free(x->list);
	arena_release(&x->arena);
}

uint64_t converted_cols(const struct converted *t)
{
	return t->tensor.shape[t->tensor.n_dims - 1];
}

uint64_t converted_rows(const struct converted *t)
{
	uint64_t rows = 1;

	for (uint32_t d = 0; d + 1 < t->tensor.n_dims; d++)
		rows *= t->tensor.shape[d];
	return rows;
}

bool converted_is_matrix(const struct converted *t)
{
	const struct weight *w = t->weight;

	return w && (w->form == PACK_STACKED || w->form == PACK_TURNS || w->form == PACK_LOOKUP);
}

/* ---- rows ---- */

/* Returns the value head that stands at a place, where heads stand in turn. */
static uint64_t head_at(const struct model_config *c, uint64_t place)
{
	uint64_t turns = c->n_value_heads / c->n_key_heads;

	return place % c->n_key_heads * turns + place / c->n_key_heads;
}

static bool tiles(const struct model_config *c)
{
	return c->family->gguf_tiles_heads && c->n_key_heads && c->n_key_heads != c->n_value_heads;
}

/* Returns the row of a weight that a file has at `row`: the rows of value heads are in turn. */
static uint64_t untile(const struct model_config *c, enum weight_role role, uint64_t row)
{
	bool keys_first = role == WEIGHT_DELTA_QKV || role == WEIGHT_DELTA_CONV;
	uint64_t first = keys_first ? 2ull * c->n_key_heads * c->key_head_dim : 0, size;

	if (keys_first || role == WEIGHT_DELTA_Z)
		size = c->value_head_dim;
	else if (role == WEIGHT_DELTA_B || role == WEIGHT_DELTA_A)
		size = 1;
	else
		return row;
	if (!tiles(c) || row < first)
		return row;
	row -= first;
	return first + head_at(c, row / size) * size + row % size;
}

/* Puts the columns of value heads in turn. */
static void tile_columns(const struct model_config *c, enum weight_role role, float *v, uint64_t n,
			 float *scratch)
{
	uint64_t size = role == WEIGHT_DELTA_OUT ? c->value_head_dim
			: role == WEIGHT_DELTA_A_LOG || role == WEIGHT_DELTA_DT_BIAS ? 1
										     : 0;

	if (!size || !tiles(c))
		return;
	memcpy(scratch, v, n * sizeof(*v));
	for (uint64_t place = 0; place < n / size; place++)
		memcpy(v + place * size, scratch + head_at(c, place) * size, size * sizeof(*v));
}

/* Does to the numbers of a row what the form of the weight on the device does. */
static void change(enum pack_form form, float *v, uint64_t n)
{
	for (uint64_t i = 0; form == PACK_ONE_PLUS && i < n; i++)
		v[i] += 1;
	for (uint64_t i = 0; form == PACK_MINUS_EXP && i < n; i++)
		v[i] = -expf(v[i]);
}

struct place {
	const struct weight *weight;
	uint32_t expert;
	uint64_t row; /* of the weight */
};

/* Returns which row of which weight a row of a tensor is. */
static struct place find_row(const struct conversion *x, const struct layout *l, uint64_t row)
{
	uint64_t group = row / l->stride, in = row % l->stride;
	const struct layout_section *s = l->sections;
	struct place p;

	while (in >= s->first + s->rows)
		s++;
	p.weight = s->weight;
	p.expert = l->experts ? (uint32_t)group : 0;
	p.row = s->start + (l->experts ? 0 : group * s->rows) + in - s->first;
	if (l->pairs) {
		uint64_t at = p.row % (2 * l->pairs);

		p.row += at / 2 + at % 2 * l->pairs - at;
	}
	p.row = untile(x->c, p.weight->role, p.row);
	return p;
}

void converted_row(const struct conversion *x, const struct converted *t, uint64_t row, float *out,
		   float *scratch)
{
	uint64_t cols = converted_cols(t);
	const struct tensor *own = &t->tensor;
	struct place p;

	if (own->data) {
		own->type->to_float((const uint8_t *)own->data +
					    row * stored_bytes(own->type, cols),
				    out, cols);
		return;
	}
	p = find_row(x, &t->layout, row);
	weights_row(x->w, p.weight->role, p.weight->layer, p.expert, p.row, false, out);
	tile_columns(x->c, p.weight->role, out, cols, scratch);
	change(p.weight->form, out, cols);
}

void converted_columns(const struct conversion *x, const struct converted *t, float *v,
		       float *scratch)
{
	if (!t->tensor.data)
		tile_columns(x->c, t->weight->role, v, converted_cols(t), scratch);
}

const char *converted_name(const struct conversion *x, const struct converted *t, uint64_t row)
{
	struct place p;

	if (t->tensor.data)
		return t->tensor.name;
	p = find_row(x, &t->layout, row);
	return weights_tensor(x->w, p.weight->role, p.weight->layer, p.expert, p.row);
}

void converted_forget(const struct conversion *x, const struct converted *t)
{
	if (t->tensor.data) {
		checkpoint_forget(x->k, t->tensor.data, t->tensor.bytes);
		return;
	}
	for (uint32_t i = 0; i < t->layout.n_sections; i++) {
		const struct weight *w = t->layout.sections[i].weight;

		for (uint32_t e = 0; e < w->experts; e++)
			weights_forget(x->w, w->role, w->layer, e, 0, w->rows);
	}
}
