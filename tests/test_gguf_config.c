/* engine/checkpoint/formats/gguf_config.c: config.json of a GGUF file's keys, and the sentences with which keys are
 * refused. */
#include <errno.h>
#include <math.h>

#include "tests/gguf_text.h"

static void qwen3(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "qwen3");
	gguf_put_whole(o, "qwen3.block_count", 2);
	gguf_put_whole(o, "qwen3.context_length", 512);
	gguf_put_whole(o, "qwen3.embedding_length", 16);
	gguf_put_whole(o, "qwen3.feed_forward_length", 32);
	gguf_put_whole(o, "qwen3.attention.head_count", 2);
	gguf_put_real(o, "qwen3.attention.layer_norm_rms_epsilon", 0.5f);
}

static void no_keys(struct gguf_out *o)
{
}

static void gemma(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "gem\nma");
}

static void no_layers(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_whole(o, "qwen3.nextn_predict_layers", 2);
}

static void softcap(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_real(o, "qwen3.attention.scale", 0);
	gguf_put_real(o, "qwen3.final_logit_softcapping", 30);
}

static void encoder(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_truth(o, "qwen3.attention.causal", false);
}

static void value_length(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_whole(o, "qwen3.attention.value_length", 16);
}

static void wrong_type(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_text(o, "qwen3.rope.dimension_count", "8");
}

static void not_finite(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_real(o, "qwen3.rope.freq_base", INFINITY);
}

static void many_heads(struct gguf_out *o)
{
	static const uint32_t zeros[5000];

	qwen3(o);
	gguf_put_array(o, "qwen3.attention.head_count_kv", GGUF_U32, 5000);
	buf_append(&o->keys, zeros, sizeof(zeros));
}

static void yarn(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_text(o, "qwen3.rope.scaling.type", "yarn");
	gguf_put_real(o, "qwen3.rope.scaling.factor", 4);
	gguf_put_whole(o, "qwen3.rope.scaling.original_context_length", 128);
}

static void odd_scaling(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_key(o, "qwen3.rope.scaling.type", GGUF_STRING);
	gguf_put_string(&o->keys, "linear\0s", 8);
}

static void unscaled(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_text(o, "qwen3.rope.scaling.type", "none");
	gguf_put_truth(o, "qwen3.attention.causal", true);
	gguf_put_real(o, "qwen3.rope.freq_base", 5e5f);
	gguf_put_whole(o, "qwen3.attention.key_length", 176);
	gguf_put_whole(o, "qwen3.attention.value_length", 176);
	gguf_put_whole(o, "qwen3.rope.dimension_count", 30);
}

static void gemma3(struct gguf_out *o, uint32_t n_layers)
{
	gguf_put_text(o, "general.architecture", "gemma3");
	gguf_put_whole(o, "gemma3.block_count", n_layers);
	gguf_put_whole(o, "gemma3.context_length", 512);
	gguf_put_whole(o, "gemma3.embedding_length", 336);
	gguf_put_whole(o, "gemma3.feed_forward_length", 32);
	gguf_put_whole(o, "gemma3.attention.head_count", 2);
	gguf_put_whole(o, "gemma3.attention.head_count_kv", 1);
	gguf_put_whole(o, "gemma3.attention.key_length", 128);
	gguf_put_whole(o, "gemma3.attention.value_length", 128);
	gguf_put_real(o, "gemma3.attention.layer_norm_rms_epsilon", 0.5f);
	gguf_put_real(o, "gemma3.rope.freq_base", 1e6f);
}

/* As llama.cpp's converter writes the model of 27B, which alone has other scores. */
static void gemma3_27b(struct gguf_out *o)
{
	gemma3(o, 62);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 1024);
	gguf_put_text(o, "gemma3.rope.scaling.type", "linear");
	gguf_put_real(o, "gemma3.rope.scaling.factor", 8);
}

static void gemma3_full(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_real(o, "gemma3.rope.freq_base_swa", 20000);
}

static void gemma3_list(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 40);
	gguf_put_array(o, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 2);
	buf_putc(&o->keys, 0);
	buf_putc(&o->keys, 1);
	gguf_put_real(o, "gemma3.attention.scale", 0.0625f);
}

static void gemma3_short_list(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 40);
	gguf_put_array(o, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 1);
	buf_putc(&o->keys, 1);
}

static void gemma3_no_pattern(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 40);
	gguf_put_whole(o, "gemma3.attention.sliding_window_pattern", 0);
}

static void gemma3_scale(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_real(o, "gemma3.attention.scale", 0.07f);
}

static void gemma3_softcap(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_real(o, "gemma3.final_logit_softcapping", 30);
}

static void window(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_whole(o, "qwen3.attention.sliding_window", 40);
}

static void mixtral(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "llama");
	gguf_put_whole(o, "llama.block_count", 2);
	gguf_put_whole(o, "llama.context_length", 512);
	gguf_put_whole(o, "llama.embedding_length", 16);
	gguf_put_whole(o, "llama.feed_forward_length", 32);
	gguf_put_whole(o, "llama.attention.head_count", 2);
	gguf_put_real(o, "llama.attention.layer_norm_rms_epsilon", 0.5f);
	gguf_put_whole(o, "llama.expert_count", 8);
}

#define BEGIN                                                                                 \
	"{\"model_type\": \"qwen3\", \"hidden_size\": 16, \"max_position_embeddings\": 512, " \
	"\"num_attention_heads\": 2, \"rms_norm_eps\": 0.5, "

#define BEGIN_GEMMA                                                                                  \
	"{\"model_type\": \"gemma3_text\", \"hidden_size\": 336, \"max_position_embeddings\": 512, " \
	"\"num_attention_heads\": 2, \"rms_norm_eps\": 0.5, \"rope_theta\": 1000000.0, "             \
	"\"intermediate_size\": 32, "
#define GEMMA_ATTENTION \
	"\"num_key_value_heads\": 1, \"head_dim\": 128, \"partial_rotary_factor\": 1.0, "

TEST(configurations)
{
	text_of(no_keys, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key general.architecture is missing, or no text", "no architecture");
	text_of(gemma, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key general.architecture is \"gem?ma\", but must be qwen35, qwen35moe, "
		"qwen3next, qwen3, qwen3moe, qwen2, llama or gemma3",
		"another architecture");
	text_of(qwen3, CHECKPOINT_CONFIG, 0,
		BEGIN
		"\"intermediate_size\": 32, \"num_hidden_layers\": 2, \"rope_theta\": 10000.0, "
		"\"num_key_value_heads\": 2, \"head_dim\": 8, \"partial_rotary_factor\": 1.0, "
		"\"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"all that may be missing");
	text_of(unscaled, CHECKPOINT_CONFIG, 0,
		BEGIN "\"rope_theta\": 500000.0, \"intermediate_size\": 32, "
		      "\"num_hidden_layers\": 2, \"num_key_value_heads\": 2, \"head_dim\": 176, "
		      "\"partial_rotary_factor\": 0.17045454545454547, \"vocab_size\": 4, "
		      "\"tie_word_embeddings\": true}",
		"a part of a head that is rotated");
	text_of(yarn, CHECKPOINT_CONFIG, 0,
		BEGIN
		"\"intermediate_size\": 32, \"num_hidden_layers\": 2, \"rope_theta\": 10000.0, "
		"\"num_key_value_heads\": 2, \"head_dim\": 8, \"partial_rotary_factor\": 1.0, "
		"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
		"\"original_max_position_embeddings\": 128}, \"vocab_size\": 4, "
		"\"tie_word_embeddings\": true}",
		"scaled RoPE");
	text_of(odd_scaling, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.rope.scaling.type is no text", "a text with a 0");
	text_of(no_layers, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.nextn_predict_layers leaves no layers of block_count",
		"no layers");
	text_of(softcap, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.final_logit_softcapping has a value that is not supported",
		"other mathematics");
	text_of(encoder, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.attention.causal has a value that is not supported",
		"an encoder");
	text_of(mixtral, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key llama.expert_count has a value that is not supported",
		"experts where there should be none");
	text_of(gemma3_27b, CHECKPOINT_CONFIG, 0,
		BEGIN_GEMMA
		"\"num_hidden_layers\": 62, \"sliding_window\": 1024, "
		"\"sliding_window_pattern\": 6, " GEMMA_ATTENTION
		"\"query_pre_attn_scalar\": 168, \"rope_scaling\": {\"rope_type\": \"linear\", "
		"\"factor\": 8.0}, \"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"Gemma 3 of 27B");
	text_of(gemma3_full, CHECKPOINT_CONFIG, 0,
		BEGIN_GEMMA
		"\"rope_local_base_freq\": 20000.0, \"num_hidden_layers\": 2, \"layer_types\": "
		"[\"full_attention\", \"full_attention\"], " GEMMA_ATTENTION
		"\"query_pre_attn_scalar\": 128, \"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"Gemma 3 without windows");
	text_of(gemma3_list, CHECKPOINT_CONFIG, 0,
		BEGIN_GEMMA
		"\"num_hidden_layers\": 2, \"sliding_window\": 40, \"layer_types\": "
		"[\"full_attention\", \"sliding_attention\"], " GEMMA_ATTENTION
		"\"query_pre_attn_scalar\": 256, \"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"a list of layers with windows, and another scale of scores");
	text_of(gemma3_short_list, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key gemma3.attention.sliding_window_pattern is no list of a truth value "
		"for each layer",
		"a list that is too short");
	text_of(gemma3_no_pattern, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key gemma3.attention.sliding_window_pattern is not from 1 to 512",
		"a pattern of no layers");
	text_of(gemma3_scale, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key gemma3.attention.scale is not 1 divided by the square root of a "
		"whole number",
		"a scale that config.json cannot say");
	text_of(gemma3_softcap, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key gemma3.final_logit_softcapping has a value that is not supported",
		"capped logits");
	text_of(window, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.attention.sliding_window has a value that is not supported",
		"a window in a model that has none");
	text_of(value_length, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.attention.value_length differs from attention.key_length, "
		"which is not supported",
		"values of another size");
	text_of(wrong_type, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.rope.dimension_count is no whole number up to 2147483647",
		"a text in a number's place");
	text_of(not_finite, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.rope.freq_base has a value that cannot be used", "infinity");
	text_of(many_heads, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.attention.head_count_kv has a value that cannot be used",
		"a long list");
}

TEST_MAIN()
