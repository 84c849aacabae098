/* The weights of a model by its configuration: shapes, and how they are drawn at random. */
#include "engine/checkpoint/weights.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"

static void weights_shape(const struct model_config *c, enum weight_role role, uint32_t layer,
			  uint64_t *ret_rows, uint64_t *ret_cols)
{
	uint64_t d = c->hidden_size;
	uint64_t key = (uint64_t)c->n_key_heads * c->key_head_dim;
	uint64_t value = (uint64_t)c->n_value_heads * c->value_head_dim;
	uint64_t q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
	bool attention = c->layers[layer].mixer == LAYER_ATTENTION;
	bool dense = c->layers[layer].mlp == LAYER_DENSE;
	uint64_t mlp = dense ? c->mlp_size : c->shared_expert_size;
	uint64_t rows = 0, cols = 0;

	switch (role) {
	case WEIGHT_EMBED:
	case WEIGHT_LM_HEAD: rows = c->vocab_size, cols = d; break;
	case WEIGHT_FINAL_NORM:
	case WEIGHT_INPUT_NORM:
	case WEIGHT_POST_NORM: rows = 1, cols = d; break;

	case WEIGHT_DELTA_QKV: rows = 2 * key + value, cols = d; break;
	case WEIGHT_DELTA_Z: rows = value, cols = d; break;
	case WEIGHT_DELTA_B:
	case WEIGHT_DELTA_A: rows = c->n_value_heads, cols = d; break;
	case WEIGHT_DELTA_CONV: rows = 2 * key + value, cols = c->conv_kernel; break;
	case WEIGHT_DELTA_A_LOG:
	case WEIGHT_DELTA_DT_BIAS: rows = 1, cols = c->n_value_heads; break;
	case WEIGHT_DELTA_NORM: rows = 1, cols = c->value_head_dim; break;
	case WEIGHT_DELTA_OUT: rows = d, cols = value; break;

	case WEIGHT_ATTN_Q: rows = c->attention_gate ? 2 * q : q, cols = d; break;
	case WEIGHT_ATTN_K:
	case WEIGHT_ATTN_V: rows = kv, cols = d; break;
	case WEIGHT_ATTN_O: rows = d, cols = q; break;
	case WEIGHT_ATTN_Q_NORM:
	case WEIGHT_ATTN_K_NORM: rows = 1, cols = c->head_dim; break;

	case WEIGHT_ROUTER: rows = c->n_experts, cols = d; break;
	case WEIGHT_EXPERT_GATE:
	case WEIGHT_EXPERT_UP: rows = c->expert_size, cols = d; break;
	case WEIGHT_EXPERT_DOWN: rows = d, cols = c->expert_size; break;
	case WEIGHT_SHARED_GATE:
	case WEIGHT_SHARED_UP: rows = mlp, cols = d; break;
	case WEIGHT_SHARED_DOWN: rows = d, cols = mlp; break;
	case WEIGHT_SHARED_ROUTER: rows = 1, cols = d; break;
	case WEIGHT_ROLES: assert(!"a role"); break;
	}
	if ((role >= WEIGHT_DELTA_QKV && role <= WEIGHT_DELTA_OUT && attention) ||
	    (role >= WEIGHT_ATTN_Q && role <= WEIGHT_ATTN_K_NORM && !attention) ||
	    (role >= WEIGHT_ROUTER && role <= WEIGHT_EXPERT_DOWN && dense) ||
	    (role == WEIGHT_SHARED_ROUTER && dense))
		rows = cols = 0;
	*ret_rows = rows;
	*ret_cols = cols;
}

static const struct weight_recipe recipes[WEIGHT_ROLES] = {
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

struct weight *weights_table(const struct model_config *c)
{
	struct weight *table = calloc((size_t)c->n_layers * WEIGHT_ROLES, sizeof(*table));

	for (uint32_t layer = 0; table && layer < c->n_layers; layer++) {
		for (int role = layer ? WEIGHT_INPUT_NORM : 0; role < WEIGHT_ROLES; role++) {
			bool expert = role >= WEIGHT_EXPERT_GATE && role <= WEIGHT_EXPERT_DOWN;
			struct weight *w = &table[(size_t)layer * WEIGHT_ROLES + role];

			*w = (struct weight){.role = role,
					     .layer = layer,
					     .experts = expert ? c->n_experts : 1,
					     .recipe = recipes[role]};
			weights_shape(c, role, layer, &w->rows, &w->cols);
			/* The embedding: rows of size 1, or what is right for the head that shares it. */
			if (role == WEIGHT_EMBED)
				w->recipe.gain = c->tie_word_embeddings
							 ? recipes[WEIGHT_LM_HEAD].gain
							 : (float)sqrt((double)w->cols);
		}
	}
	return table;
}
