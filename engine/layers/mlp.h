/* The two kinds of MLPs share everything but their sizes and weights: a dense MLP is computed as a shared expert
 * without other experts, by the same kernels. Both kinds have the functions and the tables below in their struct
 * layer_ops. */
#pragma once

#include "engine/layers/layer.h"

uint32_t mlp_scratch(const struct kernels *k, uint32_t T, uint32_t rows,
		     struct layer_scratch ret[LAYER_SCRATCH_MAX]);
void mlp_forward(const struct layer_run *r);
void mlp_phases(struct phase_list *l, uint32_t layer);
extern const struct phase_order mlp_order[], mlp_resident_order[];
bool mlp_kernel(const struct model_config *c, const struct cost_step *s,
		const struct kernel_timing *l, struct roofline_work *ret);
