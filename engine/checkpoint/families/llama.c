/* Llama, and Qwen2: every layer has attention without norms of queries and keys, and a dense MLP; norms multiply by w.
 * Qwen2 has biases in the projections to queries, keys and values. The defaults are those of LlamaConfig and Qwen2Config
 * of transformers. SmolLM2 is a Llama. */
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

const struct family family_llama = {
	.name = "llama",
	.text_type = "llama",
	.class_name = "LlamaForCausalLM",
	.defaults = {.hidden_size = 4096,
		     .n_layers = 32,
		     .vocab_size = 32000,
		     .max_position_embeddings = 2048,
		     .rms_norm_eps = 1e-6f,
		     .n_heads = 32,
		     .rope_theta = 10000,
		     .mlp_size = 11008},
	.rotary_factor = 1,
	.read_layers = read_layers,
	.sets = sets,
	.gguf_sets = gguf_llama_sets,
};

static const struct tensor_set *const biased_sets[] = {
	&tensors_norms, &tensors_attention, &tensors_qkv_bias, &tensors_dense, NULL,
};

const struct family family_qwen2 = {
	.name = "qwen2",
	.text_type = "qwen2",
	.class_name = "Qwen2ForCausalLM",
	.defaults = {.hidden_size = 4096,
		     .n_layers = 32,
		     .vocab_size = 151936,
		     .max_position_embeddings = 32768,
		     .rms_norm_eps = 1e-6f,
		     .n_heads = 32,
		     .n_kv_heads = 32,
		     .rope_theta = 10000,
		     .qkv_bias = true,
		     .mlp_size = 22016},
	.rotary_factor = 1,
	.read_layers = read_layers,
	.sets = biased_sets,
	.gguf_sets = gguf_sets,
};
