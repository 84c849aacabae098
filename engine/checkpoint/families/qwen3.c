/* Qwen3 and Qwen3-MoE: every layer has attention, without an output gate; norms multiply by w. Qwen3 has dense MLPs.
 * Qwen3-MoE has experts without a shared one, but dense MLPs in the layers for which its configuration says so. The
 * defaults are those of Qwen3Config and Qwen3MoeConfig of transformers. */
#include "engine/checkpoint/families/family.h"

static void read_dense(struct config_source *s, struct model_config *c)
{
	family_read_mixers(s, c, 1);
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layers[i].mlp = LAYER_DENSE;
}

/* transformers 5 saves num_experts as num_local_experts. */
static void read_moe(struct config_source *s, struct model_config *c)
{
	c->n_experts = config_whole(s, "num_local_experts", 0, MODEL_EXPERTS_MAX, c->n_experts);
	family_read_mixers(s, c, 1);
	family_read_mlps(s, c);
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
		     .qk_norm = true,
		     .mlp_size = 22016},
	.rotary_factor = 1,
	.read_layers = read_dense,
	.sets = sets,
	.gguf_sets = gguf_sets,
};

static const struct tensor_set *const moe_sets[] = {
	&tensors_norms,
	&tensors_attention,
	&tensors_router,
	&tensors_experts,
	&tensors_experts_packed,
	&tensors_dense,
	NULL,
};

const struct family family_qwen3_moe = {
	.name = "qwen3_moe",
	.text_type = "qwen3_moe",
	.class_name = "Qwen3MoeForCausalLM",
	.defaults = {.hidden_size = 2048,
		     .n_layers = 24,
		     .vocab_size = 151936,
		     .max_position_embeddings = 32768,
		     .rms_norm_eps = 1e-6f,
		     .n_heads = 32,
		     .n_kv_heads = 4,
		     .rope_theta = 10000,
		     .qk_norm = true,
		     .n_experts = 128,
		     .n_experts_per_token = 8,
		     .expert_size = 768,
		     .mlp_size = 6144},
	.rotary_factor = 1,
	.read_layers = read_moe,
	.sets = moe_sets,
	.gguf_sets = gguf_sets,
};
