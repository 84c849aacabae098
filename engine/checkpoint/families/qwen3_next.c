/* Qwen3-Next (Qwen3NextConfig of transformers). Some layers may be dense; the projections of Gated
 * DeltaNet are stored interleaved. */
#include <errno.h>

#include "engine/checkpoint/families/family.h"

/* Dense are the layers of mlp_only_layers and those that decoder_sparse_step leaves out. */
static void read_layers(struct config_source *s, struct model_config *c)
{
	const json_t *only = config_value(s, "mlp_only_layers"), *v;
	uint32_t step = config_whole(s, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, 1);
	size_t i;

	c->n_experts = config_whole(s, "num_experts", 0, MODEL_EXPERTS_MAX, c->n_experts);
	family_read_mixers(s, c);
	for (uint32_t k = 0; k < c->n_layers; k++)
		c->layers[k].mlp = c->n_experts && (k + 1) % step == 0 ? LAYER_MOE : LAYER_DENSE;
	if (only && !json_is_array(only))
		config_fail(s, EINVAL, "mlp_only_layers", "must be a list of layer numbers");
	json_array_foreach(only, i, v)
	{
		json_int_t k = json_integer_value(v);

		if (!json_is_integer(v) || k < 0 || k >= c->n_layers) {
			config_fail(s, EINVAL, "mlp_only_layers",
				    "must be a list of layer numbers");
			return;
		}
		c->layers[k].mlp = LAYER_DENSE;
	}
}

static const struct tensor_set *const sets[] = {
	&tensors_norms,	      &tensors_attention,
	&tensors_delta,	      &tensors_delta_interleaved,
	&tensors_delta_apart, &tensors_router,
	&tensors_experts,     &tensors_experts_packed,
	&tensors_dense,	      NULL,
};

const struct family family_qwen3_next = {
	.name = "qwen3_next",
	.text_type = "qwen3_next",
	.class_name = "Qwen3NextForCausalLM",
	.defaults =
		{
			.hidden_size = 2048,
			.n_layers = 48,
			.vocab_size = 151936,
			.max_position_embeddings = 32768,
			.rms_norm_eps = 1e-6f,
			.norm_adds_one = true,
			.n_heads = 16,
			.n_kv_heads = 2,
			.head_dim = 256,
			.rope_theta = 10000,
			.attention_gate = true,
			.n_key_heads = 16,
			.n_value_heads = 32,
			.key_head_dim = 128,
			.value_head_dim = 128,
			.conv_kernel = 4,
			.n_experts = 512,
			.n_experts_per_token = 10,
			.expert_size = 512,
			.shared_expert_size = 512,
			.mlp_size = 5632,
			.norm_topk_prob = true,
		},
	.rotary_factor = 0.25,
	.read_layers = read_layers,
	.sets = sets,
};
