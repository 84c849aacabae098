/* Qwen3.5, dense (Qwen3_5TextConfig of transformers): Gated DeltaNet beside gated attention. */
#include "base/macros.h"
#include "engine/checkpoint/families/family.h"

static void read_layers(struct config_source *s, struct model_config *c)
{
	family_read_mixers(s, c);
	family_set_mlps(c, LAYER_DENSE);
}

static const struct tensor_set *const sets[] = {
	&tensors_norms,
	&tensors_attention,
	&tensors_delta,
	&tensors_delta_apart,
	&tensors_delta_interleaved,
	&tensors_dense,
	NULL,
};

const struct family family_qwen3_5 = {
	.name = "qwen3_5",
	.text_type = "qwen3_5_text",
	.class_name = "Qwen3_5ForCausalLM",
	.defaults =
		{
			.hidden_size = 4096,
			.n_layers = 32,
			.vocab_size = 248320,
			.max_position_embeddings = 32768,
			.rms_norm_eps = 1e-6f,
			.norm_adds_one = true,
			.n_heads = 16,
			.n_kv_heads = 4,
			.head_dim = 256,
			.rope_theta = 10000,
			.attention_gate = true,
			.n_key_heads = 16,
			.n_value_heads = 32,
			.key_head_dim = 128,
			.value_head_dim = 128,
			.conv_kernel = 4,
			.mlp_size = 12288,
		},
	.rotary_factor = 0.25,
	.read_layers = read_layers,
	.sets = sets,
};
