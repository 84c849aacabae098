#include "engine/checkpoint/families/family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns the number of a layer's kind: 0 attention, 1 the other kind; -1: neither. */
static int kind_named(const char *type, const char *other)
{
	if (!type)
		return -1;
	return !strcmp(type, "full_attention") ? 0 : other && !strcmp(type, other) ? 1 : -1;
}

void family_read_mixers(struct config_source *s, struct model_config *c, uint32_t interval)
{
	const json_t *types = config_value(s, "layer_types");
	const bool delta = c->n_key_heads, sliding = c->sliding_window;
	const char *other = delta ? "linear_attention" : sliding ? "sliding_attention" : NULL;
	char wrong[96];

	snprintf(wrong, sizeof(wrong), "holds something other than %s%sfull_attention",
		 other ? other : "", other ? " and " : "");
	interval = config_whole(s, sliding ? "sliding_window_pattern" : "full_attention_interval",
				1, MODEL_LAYERS_MAX, interval);
	if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers))
		config_fail(s, EINVAL, "layer_types",
			    "must be a list with num_hidden_layers entries");
	for (uint32_t i = 0; s->error == 0 && i < c->n_layers; i++) {
		const char *type = json_string_value(json_array_get(types, i));
		int kind = types ? kind_named(type, other) : (i + 1) % interval != 0;

		if (kind < 0 || (kind && !other))
			config_fail(s, ENOTSUP, "layer_types", wrong);
		c->layers[i].mixer = kind <= 0 ? LAYER_ATTENTION
				     : delta   ? LAYER_DELTA
					       : LAYER_SLIDING;
	}
}

void family_read_mlps(struct config_source *s, struct model_config *c)
{
	const json_t *only = config_value(s, "mlp_only_layers"), *v;
	uint32_t step = config_whole(s, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, 1);
	size_t i;

	c->n_experts = config_whole(s, "num_experts", 0, MODEL_EXPERTS_MAX, c->n_experts);
	for (uint32_t k = 0; k < c->n_layers; k++)
		c->layers[k].mlp = c->n_experts && (k + 1) % step == 0 ? LAYER_MOE : LAYER_DENSE;
	if (only && !json_is_array(only))
		config_fail(s, EINVAL, "mlp_only_layers", "must be a list of layer numbers");
	json_array_foreach(only, i, v)
	{
		json_int_t k = json_integer_value(v);

		if (json_is_integer(v) && k >= 0 && k < c->n_layers)
			c->layers[k].mlp = LAYER_DENSE;
		else
			config_fail(s, EINVAL, "mlp_only_layers",
				    "must be a list of layer numbers");
	}
}
