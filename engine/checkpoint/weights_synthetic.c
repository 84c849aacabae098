/*
 * Random weights that behave like a trained model's: the size of what each layer adds to the
 * residual stream stays moderate over 40 layers and more, gates are neither open nor shut, states
 * forget over a few to a thousand tokens, routers choose different experts for different tokens,
 * and logits have a clear best token. The elements themselves are those of
 * kernels/generic/synthetic.clh.
 */
#include "engine/checkpoint/weights_internal.h"

#include <math.h>
#include <string.h>

#include "kernels/generic/synthetic.clh"

/* Matrices: uniform with standard deviation gain / sqrt(columns), so that an input with elements
 * near 1 gives outputs near gain. Vectors: uniform in offset +- range. */
struct recipe {
	float gain, offset, range;
};

static const struct recipe recipes[WEIGHT_ROLES] = {
	[WEIGHT_LM_HEAD] = {.gain = 2.5f},
	[WEIGHT_FINAL_NORM] = {.range = 0.125f}, /* these norms multiply by 1 + w */
	[WEIGHT_INPUT_NORM] = {.range = 0.125f},
	[WEIGHT_POST_NORM] = {.range = 0.125f},
	[WEIGHT_DELTA_QKV] = {.gain = 1},
	[WEIGHT_DELTA_Z] = {.gain = 1},
	[WEIGHT_DELTA_B] = {.gain = 1},
	[WEIGHT_DELTA_A] = {.gain = 1},
	[WEIGHT_DELTA_CONV] = {.gain = 1},
	[WEIGHT_DELTA_A_LOG] = {.offset = 1.390625f, .range = 1.375f}, /* exp: 1 to 16 */
	[WEIGHT_DELTA_DT_BIAS] = {.offset = -4.59375f,
				  .range = 2.328125f}, /* softplus: 0.001 to 0.1 */
	[WEIGHT_DELTA_NORM] = {.offset = 1, .range = 0.125f},
	[WEIGHT_DELTA_OUT] = {.gain = 0.5f},
	[WEIGHT_ATTN_Q] = {.gain = 1},
	[WEIGHT_ATTN_K] = {.gain = 1},
	[WEIGHT_ATTN_V] = {.gain = 1},
	[WEIGHT_ATTN_O] = {.gain = 0.5f},
	[WEIGHT_ATTN_Q_NORM] = {.range = 0.125f},
	[WEIGHT_ATTN_K_NORM] = {.range = 0.125f},
	[WEIGHT_ROUTER] = {.gain = 2},
	[WEIGHT_EXPERT_GATE] = {.gain = 1},
	[WEIGHT_EXPERT_UP] = {.gain = 1},
	[WEIGHT_EXPERT_DOWN] = {.gain = 1},
	[WEIGHT_SHARED_GATE] = {.gain = 1},
	[WEIGHT_SHARED_UP] = {.gain = 1},
	[WEIGHT_SHARED_DOWN] = {.gain = 0.5f},
	[WEIGHT_SHARED_ROUTER] = {.gain = 1},
};

/* The nearest number with 8 significant bits, which synthetic.clh needs for its products to be
 * exact (ties go up: any such number will do). */
static float round_scale(double scale)
{
	float f = (float)scale;
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	u = (u + 0x8000) & 0xffff0000;
	memcpy(&f, &u, sizeof(f));
	return f;
}

void weights_synthesis(const struct model_config *c, uint64_t seed, enum weight_role role,
		       uint32_t layer, uint32_t expert, struct weight_synthesis *ret)
{
	struct recipe recipe;
	uint64_t rows, cols, id;
	double range;

	if (role == WEIGHT_LM_HEAD && c->tie_word_embeddings)
		role = WEIGHT_EMBED;
	recipe = recipes[role];
	weights_shape(c, role, layer, &rows, &cols);
	/* The embedding: rows of size 1, or what is right for the head that shares it. */
	if (role == WEIGHT_EMBED && c->tie_word_embeddings)
		recipe.gain = recipes[WEIGHT_LM_HEAD].gain;
	else if (role == WEIGHT_EMBED)
		recipe.gain = (float)sqrt((double)cols);

	range = recipe.range;
	if (recipe.gain > 0)
		range = recipe.gain * sqrt(3.0 / (double)(cols ? cols : 1));
	id = (uint64_t)role << 48 | (uint64_t)layer << 24 | expert;
	ret->key = synthetic_mix(synthetic_mix(seed + 0x9e3779b97f4a7c15) ^ id);
	ret->scale = round_scale(range / 32768);
	ret->offset = recipe.offset;
}

static float widen(uint32_t bf16)
{
	uint32_t u = bf16 << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

void weights_synthesize_row(const struct weights *w, enum weight_role role, uint32_t layer,
			    uint32_t expert, uint64_t row, uint64_t cols, float *out)
{
	struct weight_synthesis s;
	uint64_t index = row * cols, end = index + cols;

	weights_synthesis(&w->config, w->seed, role, layer, expert, &s);
	/* Up to a multiple of four one by one, then four from each hash. */
	for (; index < end && index % 4; index++)
		*out++ = widen(synthetic_bf16(s.key, s.scale, s.offset, index));
	for (; end - index >= 4; index += 4) {
		uint64_t word = synthetic_word(s.key, index / 4);

		for (int k = 0; k < 4; k++)
			*out++ = widen(
				synthetic_bf16_of((uint32_t)(word >> 16 * k), s.scale, s.offset));
	}
	for (; index < end; index++)
		*out++ = widen(synthetic_bf16(s.key, s.scale, s.offset, index));
}
