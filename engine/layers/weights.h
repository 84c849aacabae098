/* The weights of a model: a table for each kind of layer (in its file), and one for the weights outside all layers.
 * Each table has one row a weight. From a row follow the tensors that a checkpoint must have, the random values of a
 * synthetic weight, the size of its buffer and the way to fill it. */
#pragma once

#include <stddef.h>

#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weight.h"

enum { LAYER_WEIGHTS_MAX = 16 };

struct layer_weights {
	struct weight list[LAYER_WEIGHTS_MAX];
	uint32_t n;
};

/* Sets *ret to those of the n weights that have rows and columns. A table has 0 rows or columns for a weight that the
 * model lacks. */
void layer_weights_set(struct layer_weights *ret, const struct weight *rows, size_t n);

/* Returns the row of a table for the weight w of a norm over n numbers. The norm multiplies by w or by 1 + w, as the
 * model's family does. */
struct weight layer_norm(const struct model_config *c, enum weight_role role, uint64_t n, int at);

/* Lists the weights outside all layers: embedding, final norm, and as the last one the head. */
void layer_weights_of_ends(const struct model_config *c, struct layer_weights *ret);

/* Makes the table of all weights, [layer * WEIGHT_ROLES + role], for weights_open and weights_synthetic; the caller
 * frees it. NULL: out of memory. */
struct weight *layers_weights(const struct model_config *c) MUST_CHECK;

/* Returns the number of a model's parameters: of the elements of the weights in this table, where a head that is tied
 * to the embedding counts once with it. 0: out of memory. */
uint64_t layers_parameters(const struct model_config *c);
