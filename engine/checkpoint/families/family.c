#include "engine/checkpoint/families/family.h"

#include <errno.h>
#include <string.h>

void family_read_mixers(struct config_source *s, struct model_config *c, uint32_t interval)
{
	const json_t *types = config_value(s, "layer_types");
	bool delta = c->n_key_heads;

	interval = config_whole(s, "full_attention_interval", 1, MODEL_LAYERS_MAX, interval);
	if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers))
		config_fail(s, EINVAL, "layer_types",
			    "must be a list with num_hidden_layers entries");
	for (uint32_t i = 0; s->error == 0 && i < c->n_layers; i++) {
		const char *type = json_string_value(json_array_get(types, i));
		bool linear =
			types ? type && !strcmp(type, "linear_attention") : (i + 1) % interval != 0;

		c->layers[i].mixer = linear ? LAYER_DELTA : LAYER_ATTENTION;
		if (linear ? !delta : types && (!type || strcmp(type, "full_attention")))
			config_fail(s, ENOTSUP, "layer_types",
				    delta ? "holds something other than linear_attention and "
					    "full_attention"
					  : "holds something other than full_attention");
	}
}
