/* Finds the weights of a model in a checkpoint: the tensors that hold the rows of each, by the names of the family.
 *
 * The vision tower with its projector, the multi-token-prediction head and the constants of RoPE (inv_freq, in older files)
 * are ignored. So are scales of activations. Any other tensor without a use is an error, because a checkpoint with other
 * biases or more layers is not a model that this engine computes. Each weight may be quantised, in a format of its own
 * (quantised/). */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/quantised/quantised.h"
#include "engine/checkpoint/weight.h"

/* A stretch of a weight's rows inside one tensor, or inside one group of tensors if the weight is quantised. The
 * weight's row start + r is row first + r / group * stride + r % group there. With pairs, rows i and i + pairs of each
 * 2 pairs rows are neighbours there. */
struct weight_rows {
	const struct tensor
		*tensor; /* borrowed from the checkpoint; of a quantised weight: its codes */
	const struct quantised *quantised; /* NULL: the tensor has the numbers */
	uint64_t first, start, group, stride, pairs;
};

/* Tells where the rows of one weight of a layer are. A weight of experts has a stretch for each expert. Any other
 * has up to TENSOR_SECTIONS_MAX stretches (family.h), in the order of their starts. */
struct weight_source {
	struct weight_rows *parts;
	uint32_t n_parts; /* 0: the layer has no such weight */
};

/* Fills sources [n_layers][WEIGHT_ROLES], which are zeros before. Their stretches come from the arena and borrow the
 * checkpoint's tensors. -ENOENT, -EINVAL, -ENOTSUP or another errno: the sentence names the checkpoint or a file,
 * and the tensor if one is at fault. */
int resolve_weights(struct checkpoint *k, const struct model_config *c, const struct weight *table,
		    struct arena *arena, struct weight_source *sources, struct err *e) MUST_CHECK;
