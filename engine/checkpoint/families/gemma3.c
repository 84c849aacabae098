/* Gemma 3: five of six layers attend over a sliding window, with rotary angles of their own; queries and keys are normed.
 * A layer has four norms, which multiply by 1 + w: before and behind the mixer, before and behind the dense MLP, whose
 * activation is gelu. Embeddings are multiplied by the square root of their size. The defaults are those of
 * Gemma3TextConfig of transformers. */
#include <errno.h>

#include "engine/checkpoint/families/family.h"

/* Refuses a number that the model's logits or scores would be capped with. */
static void refuse_cap(struct config_source *s, const char *key)
{
	if (config_value(s, key))
		config_fail(s, ENOTSUP, key, "is set, which is not supported");
}

static void read_layers(struct config_source *s, struct model_config *c)
{
	c->sliding_window = config_whole(s, "sliding_window", 1, 1 << 30, c->sliding_window);
	family_read_mixers(s, c, 6);
	for (uint32_t i = 0; i < c->n_layers; i++)
		c->layers[i].mlp = LAYER_DENSE;
	refuse_cap(s, "final_logit_softcapping");
	refuse_cap(s, "attn_logit_softcapping");
	config_only_truth(s, "use_bidirectional_attention", false);
	c->score_dim = config_whole(s, "query_pre_attn_scalar", 1, 1 << 20, c->score_dim);
}

static const struct tensor_set *const sets[] = {
	&tensors_four_norms,
	&tensors_attention,
	&tensors_dense,
	NULL,
};

const struct family family_gemma3 = {
	.name = "gemma3",
	.text_type = "gemma3_text",
	.class_name = "Gemma3ForCausalLM",
	.defaults = {.hidden_size = 2304,
		     .n_layers = 26,
		     .vocab_size = 262208,
		     .max_position_embeddings = 131072,
		     .rms_norm_eps = 1e-6f,
		     .norm_adds_one = true,
		     .out_norms = true,
		     .scaled_embedding = true,
		     .gelu = true,
		     .tie_word_embeddings = true,
		     .n_heads = 8,
		     .n_kv_heads = 4,
		     .head_dim = 256,
		     .rope_theta = 1e6,
		     .sliding_window = 4096,
		     .sliding_theta = 10000,
		     .score_dim = 256,
		     .qk_norm = true,
		     .mlp_size = 9216},
	.rotary_factor = 1,
	.read_layers = read_layers,
	.sets = sets,
	.gguf_sets = gguf_gemma_sets,
};
