/* Qwen3.5 with experts (Qwen3_5MoeTextConfig of transformers): as the dense one, and in every layer a
 * shared expert beside those that a router chooses. */
#include "engine/checkpoint/families/family.h"

static void read_layers(struct config_source *s, struct model_config *c)
{
	c->n_experts = config_whole(s, "num_experts", 1, MODEL_EXPERTS_MAX, c->n_experts);
	family_read_mixers(s, c);
	family_set_mlps(c, LAYER_MOE);
	/* The model normalises, whatever the key says; a file that says otherwise is not understood. */
	config_only_truth(s, "norm_topk_prob", true);
}

static const struct tensor_set *const sets[] = {
	&tensors_norms,		 &tensors_attention,	     &tensors_delta,
	&tensors_delta_apart,	 &tensors_delta_interleaved, &tensors_router,
	&tensors_experts_packed, &tensors_experts,	     NULL,
};

const struct family family_qwen3_5_moe = {
	.name = "qwen3_5_moe",
	.text_type = "qwen3_5_moe_text",
	.class_name = "Qwen3_5MoeForCausalLM",
	.defaults =
		{
			.hidden_size = 2048,
			.n_layers = 40,
			.vocab_size = 248320,
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
			.n_experts = 256,
			.n_experts_per_token = 8,
			.expert_size = 512,
			.shared_expert_size = 512,
			.norm_topk_prob = true,
		},
	.rotary_factor = 0.25,
	.read_layers = read_layers,
	.sets = sets,
};
