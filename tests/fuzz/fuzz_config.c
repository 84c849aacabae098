/* Reads bytes as config.json, and those behind a zero byte, if there is one, as generation_config.json. A
 * configuration that is accepted must keep the limits that the engine relies on, and no shape may overflow. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_config(const struct model_config *c)
{
	struct weight *table = layers_weights(c);
	uint64_t total = 0;

	require(c->hidden_size >= 1 && c->hidden_size <= 65536);
	require(c->n_layers >= 1 && c->n_layers <= MODEL_LAYERS_MAX);
	require(c->n_layers_of[LAYER_ATTENTION] + c->n_layers_of[LAYER_SLIDING] +
			c->n_layers_of[LAYER_DELTA] ==
		c->n_layers);
	require(!c->n_layers_of[LAYER_SLIDING] || c->sliding_window);
	require(c->vocab_size >= 1 && c->vocab_size < 1 << 24);
	require(c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0 && c->n_heads >= 1);
	require(c->head_dim % 16 == 0 && c->head_dim >= 16 && c->head_dim <= 256);
	require(c->rotary_dim % 2 == 0 && c->rotary_dim >= 2 && c->rotary_dim <= c->head_dim);
	require(isfinite(c->rope_theta) && c->rope_theta >= 1);
	require(c->rms_norm_eps > 0);
	require(c->n_layers_of[LAYER_DELTA] == 0 || c->n_key_heads);
	if (c->n_key_heads) {
		require(c->n_value_heads && c->n_value_heads % c->n_key_heads == 0);
		require(c->key_head_dim % 16 == 0 && c->key_head_dim <= 256 && c->key_head_dim);
		require(c->value_head_dim % 16 == 0 && c->value_head_dim <= 256 &&
			c->value_head_dim);
		require(c->conv_kernel >= 2 && c->conv_kernel <= 8);
	}
	require(c->n_experts <= 4096);
	if (c->n_experts)
		require(c->n_experts_per_token >= 1 && c->n_experts_per_token <= 32 &&
			c->n_experts_per_token <= c->n_experts && c->expert_size);
	require(c->rope_scaling == ROPE_DEFAULT || c->rope_factor >= 1);
	require(c->n_end_tokens <= MODEL_END_TOKENS_MAX);
	for (uint32_t i = 0; i < c->n_end_tokens; i++)
		require(c->end_tokens[i] >= 0 && (uint32_t)c->end_tokens[i] < c->vocab_size);
	require(c->default_temperature >= 0 && c->default_temperature <= 2);
	require(c->default_top_p > 0 && c->default_top_p <= 1 && c->default_top_k >= 0);
	require(c->default_repetition_penalty > 0 && c->default_min_p >= 0);
	for (uint32_t layer = 0; layer < c->n_layers; layer++) {
		const struct layer_kinds *kinds = &c->layers[layer];

		require(kinds->mixer == LAYER_ATTENTION || kinds->mixer == LAYER_SLIDING ||
			kinds->mixer == LAYER_DELTA);
		require(kinds->mlp == LAYER_DENSE ? c->mlp_size
						  : kinds->mlp == LAYER_MOE && c->n_experts);
		for (int role = 0; role < WEIGHT_ROLES; role++) {
			const struct weight *w = &table[(size_t)layer * WEIGHT_ROLES + role];
			uint64_t elements;

			require(!__builtin_mul_overflow(w->rows, w->cols, &elements));
			require(!__builtin_mul_overflow(elements, w->experts * 4ull, &elements));
			require(!__builtin_add_overflow(total, elements, &total));
			require(w->rows == 0 || (w->cols > 0 && w->experts > 0));
		}
	}
	free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model_config c;
	const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
	size_t len = zero ? (size_t)(zero - data) : size;
	struct err e = {0};
	int r;

	r = model_config_parse("config.json", (const char *)data, len,
			       zero ? (const char *)zero + 1 : NULL, zero ? size - len - 1 : 0, &c,
			       &e);
	if (r < 0)
		require(e.code == -r && e.text[0]);
	else
		check_config(&c);
	return 0;
}
