#include "engine/checkpoint/families/family.h"

#include <errno.h>
#include <string.h>

void family_read_mixers(struct config_source *s, struct model_config *c)
{
	const json_t *types = config_value(s, "layer_types");
	uint32_t interval = config_whole(s, "full_attention_interval", 1, MODEL_LAYERS_MAX, 4);

	if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers))
		config_fail(s, EINVAL, "layer_types",
			    "must be a list with num_hidden_layers entries");
	for (uint32_t i = 0; s->error == 0 && i < c->n_layers; i++) {
		const char *type = types ? json_string_value(json_array_get(types, i)) : NULL;

		if (!types)
			c->layers[i].mixer = (i + 1) % interval ? LAYER_DELTA : LAYER_ATTENTION;
		else if (type && !strcmp(type, "full_attention"))
			c->layers[i].mixer = LAYER_ATTENTION;
		else if (type && !strcmp(type, "linear_attention"))
			c->layers[i].mixer = LAYER_DELTA;
		else
			config_fail(s, ENOTSUP, "layer_types",
				    "holds something other than linear_attention and "
				    "full_attention");
	}
}

void family_set_mlps(struct model_config *c, enum layer_kind kind)
{
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layers[i].mlp = (uint8_t)kind;
}
