/* Recipes: which type each matrix of a quantised model gets, as programs that quantise choose them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/checkpoint/weight.h"
#include "kernels/quant.h"

/* Says the type of a matrix: *ret, NULL: it stays plain. A recipe is the name of a type, which all matrices get, or
 *
 *     Q4_K_M      as llama.cpp has it: Q4_K, but Q6_K for the head, and for values and the MLPs' second matrices of the
 *                 first and last eighth of the layers and every third one between; Q5_K for the joint projections of
 *                 Gated DeltaNet
 *     Q5_K_M      the same with Q5_K, and Q6_K for the joint projections too
 *     MXFP4_MOE   MXFP4 for the experts, Q8_0 else
 *     UD-Q4_K_M   as published for mixtures of experts: Q4_K and Q5_K for the experts, Q6_K for the head, Q8_0 else
 *
 * A matrix whose rows are no multiple of the type's block gets a type of blocks of 32 with as many bits or more; if they
 * are no multiple of 32 either, it stays plain. False: there is no such recipe. */
bool recipe_type(const char *recipe, const struct weight *w, uint32_t n_layers,
		 const struct quant_type **ret);
