/* Random weights that behave like a trained model's. Over 40 layers and more each layer adds a moderate amount to the
 * residual stream. Gates are neither fully open nor shut, states forget over a few to a thousand tokens, routers choose
 * different experts for different tokens, and logits have a clear best token. The tables of engine/layers have the
 * parameters of each weight; kernels/generic/synthetic.clh says how the elements follow from them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/checkpoint/weight.h"

/* Computes the parameters of the elements of a weight. expert: 0 for a weight that is not of experts. */
void synthetic_weight(uint64_t seed, const struct weight *w, uint32_t expert,
		      struct weight_synthesis *ret);

/* Makes one row of `cols` elements as bf16 or as floats. */
void synthetic_row(const struct weight_synthesis *s, uint64_t row, uint64_t cols, bool bf16,
		   void *out);
