/* The hybrid families of Qwen. By default every fourth layer has attention, the others Gated DeltaNet. Attention has an
 * output gate. Qwen3.5 has dense MLPs; Qwen3.5-MoE has experts; Qwen3-Next has experts, but dense MLPs in the layers
 * for which its configuration says so. The defaults are those of Qwen3_5TextConfig, Qwen3_5MoeTextConfig and
 * Qwen3NextConfig of transformers. */
#include "engine/checkpoint/families/family.h"

#define HYBRID                                                                          \
	.max_position_embeddings = 32768, .rms_norm_eps = 1e-6f, .norm_adds_one = true, \
	.n_heads = 16, .head_dim = 256, .rope_theta = 10000, .attention_gate = true,    \
	.qk_norm = true, .n_key_heads = 16, .n_value_heads = 32, .key_head_dim = 128,   \
	.value_head_dim = 128, .conv_kernel = 4

static void read_dense(struct config_source *s, struct model_config *c)
{
	family_read_mixers(s, c, 4);
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layers[i].mlp = LAYER_DENSE;
}

static void read_moe(struct config_source *s, struct model_config *c)
{
	c->n_experts = config_whole(s, "num_experts", 1, MODEL_EXPERTS_MAX, c->n_experts);
	family_read_mixers(s, c, 4);
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layers[i].mlp = LAYER_MOE;
	/* transformers normalises the experts' weights whatever this key says, so a file with false is refused. */
	config_only_truth(s, "norm_topk_prob", true);
}

static void read_next(struct config_source *s, struct model_config *c)
{
	family_read_mixers(s, c, 4);
	family_read_mlps(s, c);
}

static const struct tensor_set *const sets[] = {
	&tensors_norms,
	&tensors_attention,
	&tensors_delta,
	&tensors_delta_apart,
	&tensors_delta_interleaved,
	&tensors_router,
	&tensors_experts_packed,
	&tensors_experts,
	&tensors_dense,
	NULL,
};

const struct family family_qwen3_5 = {
	.name = "qwen3_5",
	.text_type = "qwen3_5_text",
	.class_name = "Qwen3_5ForCausalLM",
	.defaults = {HYBRID, .hidden_size = 4096, .n_layers = 32, .vocab_size = 248320,
		     .n_kv_heads = 4, .mlp_size = 12288},
	.rotary_factor = 0.25,
	.read_layers = read_dense,
	.sets = sets,
	.gguf_sets = gguf_hybrid_sets,
	.gguf_tiles_heads = true,
};

const struct family family_qwen3_5_moe = {
	.name = "qwen3_5_moe",
	.text_type = "qwen3_5_moe_text",
	.class_name = "Qwen3_5MoeForCausalLM",
	.defaults = {HYBRID, .hidden_size = 2048, .n_layers = 40, .vocab_size = 248320,
		     .n_kv_heads = 2, .n_experts = 256, .n_experts_per_token = 8,
		     .expert_size = 512, .shared_expert_size = 512, .norm_topk_prob = true},
	.rotary_factor = 0.25,
	.read_layers = read_moe,
	.sets = sets,
	.gguf_sets = gguf_hybrid_sets,
	.gguf_tiles_heads = true,
};

/* In Qwen3-Next's own files the projections of Gated DeltaNet are interleaved, and every expert has its own tensors. */
static const struct tensor_set *const next_sets[] = {
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
	.defaults = {HYBRID, .hidden_size = 2048, .n_layers = 48, .vocab_size = 151936,
		     .n_kv_heads = 2, .n_experts = 512, .n_experts_per_token = 10,
		     .expert_size = 512, .shared_expert_size = 512, .mlp_size = 5632,
		     .norm_topk_prob = true},
	.rotary_factor = 0.25,
	.read_layers = read_next,
	.sets = next_sets,
	.gguf_sets = gguf_next_sets,
};
