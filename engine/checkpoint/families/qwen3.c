/* Qwen3 with dense MLPs: every layer has attention, without an output gate; norms multiply by w. The defaults are
 * those of Qwen3Config of transformers. */
#include "engine/checkpoint/families/family.h"

static void read_layers(struct config_source *s, struct model_config *c)
{
	family_read_mixers(s, c, 1);
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layers[i].mlp = LAYER_DENSE;
}

static const struct tensor_set *const sets[] = {
	&tensors_norms,
	&tensors_attention,
	&tensors_dense,
	NULL,
};

const struct family family_qwen3 = {
	.name = "qwen3",
	.text_type = "qwen3",
	.class_name = "Qwen3ForCausalLM",
	.defaults = {.hidden_size = 4096,
		     .n_layers = 32,
		     .vocab_size = 151936,
		     .max_position_embeddings = 32768,
		     .rms_norm_eps = 1e-6f,
		     .n_heads = 32,
		     .n_kv_heads = 32,
		     .head_dim = 128,
		     .rope_theta = 10000,
		     .mlp_size = 22016},
	.rotary_factor = 1,
	.read_layers = read_layers,
	.sets = sets,
};
