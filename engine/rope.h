/* The frequencies of RoPE (rotary position embedding, Su et al. 2021, arXiv:2104.09864). Pure. */
#pragma once

#include "engine/checkpoint/model_config.h"

/* Fills f [rotary_dim / 2], in radians a position, computed in float as transformers does (modeling_rope_utils.py):
 *
 *     f[j] = theta^(-2j / rotary_dim)
 *     linear    f[j] / factor
 *     llama3    with the turns t = original_context f[j] / 2 pi that f[j] makes in the original context:
 *               f[j] / factor if t < low_factor, f[j] if t > high_factor, in between
 *               (1 - s) f[j] / factor + s f[j],  s = (t - low_factor) / (high_factor - low_factor) */
void rope_frequencies(const struct model_config *c, float *f);

/* The same for layers with a sliding window that have frequencies of their own (sliding_theta). */
void rope_sliding_frequencies(const struct model_config *c, float *f);
