/* Reads config.json, nested (text_config) or flat, into the numbers that the forward pass needs. A key that changes the
 * mathematics is either read, or refused unless it has the one value that this engine computes, so that a model which
 * would be computed wrongly does not load. Only model_type must be there. Any other key has, if it is missing, the
 * default of transformers; families/ has these.
 *
 * Every result keeps these limits:
 *
 *     sizes            hidden and intermediate sizes are 1 to 65536, not only multiples of 16
 *     heads            there are at most 4096 of each kind; their sizes are multiples of 16 up to 256
 *     attention        the number of query heads is a multiple of that of key heads
 *     Gated DeltaNet   the number of value heads is a multiple of that of its key heads; conv_kernel is 2 to 8
 *     experts          there are at most 4096, and at most 32 are used for a token
 *     vocabulary       it has fewer than 2^24 tokens
 *
 * No product of a weight's sizes overflows 64 bits, and no number of rows or columns 32 bits. Any kind of mixer or MLP
 * may be absent. The sizes of Gated DeltaNet are 0 in families without it. The sizes of a kind of MLP are 0 in models
 * without that kind; shared_expert_size is also 0 in families without a shared expert. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/checkpoint/quantised/config.h"

enum { MODEL_LAYERS_MAX = 512, MODEL_EXPERTS_MAX = 4096, MODEL_END_TOKENS_MAX = 16 };

/* A layer is a mixer, which combines tokens of a sequence, and an MLP. Each kind has a file in engine/layers. */
enum layer_kind {
	LAYER_ATTENTION, /* a mixer: full attention */
	LAYER_DELTA,	 /* a mixer: Gated DeltaNet */
	LAYER_MOE,	 /* an MLP: experts, in some families with a shared expert */
	LAYER_DENSE,	 /* an MLP without experts */
	LAYER_SLIDING,	 /* a mixer: attention over a sliding window */
	LAYER_KINDS,
};

/* How the frequencies of RoPE are changed for longer contexts than those of a model's first training (engine/rope.h). */
enum rope_scaling { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };

struct layer_kinds {
	uint8_t mixer, mlp; /* enum layer_kind */
};

struct checkpoint;
struct family;

struct model_config {
	const struct family *family; /* static */
	uint32_t hidden_size, n_layers, vocab_size, max_position_embeddings;
	struct layer_kinds layers[MODEL_LAYERS_MAX];
	uint32_t n_layers_of[LAYER_KINDS];
	float rms_norm_eps;
	/* norms multiply by 1 + w, not by w (except Gated DeltaNet's own, which multiplies by w) */
	bool norm_adds_one;
	bool out_norms; /* outputs of mixers and MLPs are normed before they are added to the residual stream */
	bool scaled_embedding; /* rows of the embedding are multiplied by the square root of hidden_size */
	bool gelu;	       /* MLPs have gelu (its form with tanh) in the place of silu */
	bool tie_word_embeddings;

	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t rotary_dim; /* even, <= head_dim */
	double rope_theta;
	enum rope_scaling rope_scaling;
	double rope_factor; /* of ROPE_LINEAR and ROPE_LLAMA3, like the others of ROPE_LLAMA3; otherwise 0 */
	double rope_low_factor, rope_high_factor, rope_original_context;
	/* Layers with a sliding window see so many keys, the query's own among them; 0: the family has no such layers.
	 * sliding_theta: their rope_theta, with which no scaling goes; 0: that of the other layers, with its scaling. */
	uint32_t sliding_window;
	double sliding_theta;
	uint32_t score_dim; /* attention's scores are multiplied by score_dim^-1/2; 0: head_dim */
	/* the query projection has, for each head, its query and a gate for its output */
	bool attention_gate;
	bool qk_norm;  /* queries and keys are normed, head by head */
	bool qkv_bias; /* the projections to queries, keys and values have biases */

	uint32_t n_key_heads, n_value_heads, key_head_dim, value_head_dim, conv_kernel;
	/* Value head h of Gated DeltaNet uses key head h % n_key_heads: the value heads that share a key head are not
	 * neighbours. llama.cpp's converter reorders Qwen3.5's so. */
	bool tiled_heads;
	bool stores_neg_a; /* the checkpoint has -exp(A_log) in the place of A_log */

	uint32_t n_experts, n_experts_per_token, expert_size, shared_expert_size;
	uint32_t mlp_size; /* intermediate_size of dense layers, 0 when there are none */
	bool norm_topk_prob;

	uint32_t n_mtp_layers;
	struct quantised_config quantised; /* of the checkpoint's weights; zeros: nothing is said */

	/* end_tokens: token ids that end a generation, eos_token_id of generation_config.json or, if that file lacks
	 * the key, of config.json. default_*: the sampling defaults of generation_config.json; do_sample is not read,
	 * as in vLLM. A default that is missing there gets a value without effect: 1 for temperature, top_p and
	 * repetition penalty, 0 for min_p and top_k (no limit). */
	int32_t end_tokens[MODEL_END_TOKENS_MAX];
	uint32_t n_end_tokens;
	float default_temperature, default_top_p, default_min_p, default_repetition_penalty;
	int32_t default_top_k;
};

/* Reads the configuration of a checkpoint and, if it has any, its generation defaults; of a GGUF file also what its
 * converter has done to weights (norm_adds_one, tiled_heads, stores_neg_a). -ENOENT, -EINVAL, -ENOTSUP or another errno: the sentence names the file and, if a key is wrong, the key. */
int model_config_read(const struct checkpoint *k, struct model_config *ret,
		      struct err *e) MUST_CHECK;

/* Opens the checkpoint at a path, reads its configuration and closes it. Errors are those of opening and reading. */
int model_config_open(const char *path, struct model_config *ret, struct err *e) MUST_CHECK;

/* Reads a configuration from the texts of config.json and, unless `generation` is NULL, of generation_config.json.
 * `name` stands for config.json in messages. */
int model_config_parse(const char *name, const char *json, size_t len, const char *generation,
		       size_t generation_len, struct model_config *ret, struct err *e) MUST_CHECK;
