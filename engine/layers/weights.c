#include "engine/layers/weights.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"
#include "engine/layers/layer.h"

void layer_weights_set(struct layer_weights *ret, const struct weight *rows, size_t n)
{
	assert(n <= LAYER_WEIGHTS_MAX);
	ret->n = 0;
	for (size_t i = 0; i < n; i++) {
		if (!rows[i].rows || !rows[i].cols)
			continue;
		ret->list[ret->n] = rows[i];
		ret->list[ret->n].experts = MAX(rows[i].experts, 1u);
		ret->n++;
	}
}

struct weight layer_norm(const struct model_config *c, enum weight_role role, uint64_t n, int at)
{
	if (c->norm_adds_one)
		return (struct weight){role, at, PACK_ONE_PLUS, 1, n, .range = 0.125f};
	return (struct weight){role, at, PACK_VECTOR, 1, n, .offset = 1, .range = 0.125f};
}

void layer_weights_of_ends(const struct model_config *c, struct layer_weights *ret)
{
	uint64_t D = c->hidden_size, V = c->vocab_size;
	/* The values of a synthetic embedding have the standard deviation 1, or that of a head if the embedding is the
	 * head too. */
	const float head = 2.5f, embed = c->tie_word_embeddings ? head : sqrtf((float)D);
	const struct weight all[] = {
		{WEIGHT_EMBED, AT_EMBED, PACK_LOOKUP, V, D, .gain = embed},
		layer_norm(c, WEIGHT_FINAL_NORM, D, AT_FINAL_NORM),
		{WEIGHT_LM_HEAD, AT_LM_HEAD, PACK_STACKED, V, D, .gain = head},
	};

	layer_weights_set(ret, all, ARRAY_SIZE(all));
}

static void enter(struct weight *table, uint32_t layer, const struct layer_weights *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct weight *to = &table[(size_t)layer * WEIGHT_ROLES + w->list[i].role];

		*to = w->list[i];
		to->layer = layer;
	}
}

struct weight *layers_weights(const struct model_config *c)
{
	struct weight *table = calloc((size_t)c->n_layers * WEIGHT_ROLES, sizeof(*table));
	struct layer_weights of[LAYER_KINDS], ends;

	if (!table)
		return NULL;
	for (int kind = 0; kind < LAYER_KINDS; kind++)
		layer_ops[kind]->weights(c, &of[kind]);
	layer_weights_of_ends(c, &ends);
	enter(table, 0, &ends);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		enter(table, i, &of[c->layers[i].mixer]);
		enter(table, i, &of[c->layers[i].mlp]);
	}
	return table;
}

uint64_t layers_parameters(const struct model_config *c)
{
	struct weight *table = layers_weights(c);
	uint64_t n = 0;

	for (size_t i = 0; table && i < (size_t)c->n_layers * WEIGHT_ROLES; i++)
		if (table[i].role != WEIGHT_LM_HEAD || !c->tie_word_embeddings)
			n += table[i].rows * table[i].cols * table[i].experts;
	free(table);
	return n;
}
