/*
 * The weights of a model: tables of rows, one of each kind of layer (in its file) and one of the model's ends. From a row
 * follow what a checkpoint must have, how a synthetic weight is drawn, how large its buffer is and how it is filled.
 */
#pragma once

#include <stddef.h>

#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weight.h"

enum { LAYER_WEIGHTS_MAX = 16 };

struct layer_weights {
	struct weight list[LAYER_WEIGHTS_MAX];
	uint32_t n;
};

/* Makes a list of rows, but of those without rows or columns: there is no such weight. */
void layer_weights_set(struct layer_weights *ret, const struct weight *rows, size_t n);

/* A row for a norm over n numbers that follows the family's convention (w or 1 + w). */
struct weight layer_norm(const struct model_config *c, enum weight_role role, uint64_t n, int at);

/* Those of the model's ends: embedding, final norm, head. */
void layer_weights_of_ends(const struct model_config *c, struct layer_weights *ret);

/* New: the table that weights_open and weights_synthetic want. NULL when out of memory. */
struct weight *layers_weights(const struct model_config *c) MUST_CHECK;
