/* The inputs of products with weights, gathered while a text is read (importance.h). Each function waits for the commands
 * that were queued. */
#pragma once

#include "engine/layers/layer.h"

/* Gather the inputs of a mixer's projections, before layer_output; width: columns of the output projection. */
void inputs_of_mixer(const struct layer_run *r, uint32_t width);

/* Gather those of an MLP, before its outputs are added up. */
void inputs_of_mlp(const struct layer_run *r, const struct kernel_mlp *m);

/* Gathers those of the head, of all tokens of the step. */
void inputs_of_head(const struct layer_run *r);
