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
 * without that kind. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { MODEL_LAYERS_MAX = 512, MODEL_EXPERTS_MAX = 4096, MODEL_END_TOKENS_MAX = 16 };

/* A layer is a mixer, which combines tokens of a sequence, and an MLP. Each kind has a file in engine/layers. */
enum layer_kind {
	LAYER_ATTENTION, /* a mixer: full attention */
	LAYER_DELTA,	 /* a mixer: Gated DeltaNet */
	LAYER_MOE,	 /* an MLP: experts with a shared expert */
	LAYER_DENSE,	 /* an MLP without experts */
	LAYER_KINDS,
};

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
	bool tie_word_embeddings;

	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t rotary_dim; /* even, <= head_dim */
	double rope_theta;
	/* the query projection has, for each head, its query and a gate for its output */
	bool attention_gate;

	uint32_t n_key_heads, n_value_heads, key_head_dim, value_head_dim, conv_kernel;

	uint32_t n_experts, n_experts_per_token, expert_size, shared_expert_size;
	uint32_t mlp_size; /* intermediate_size of dense layers, 0 when there are none */
	bool norm_topk_prob;

	uint32_t n_mtp_layers;

	/* end_tokens: token ids that end a generation, eos_token_id of generation_config.json or, if that file lacks
	 * the key, of config.json. default_*: the sampling defaults of generation_config.json; do_sample is not read,
	 * as in vLLM. A default that is missing there gets a value without effect: 1 for temperature, top_p and
	 * repetition penalty, 0 for min_p and top_k (no limit). */
	int32_t end_tokens[MODEL_END_TOKENS_MAX];
	uint32_t n_end_tokens;
	float default_temperature, default_top_p, default_min_p, default_repetition_penalty;
	int32_t default_top_k;
};

/* Reads the configuration of a checkpoint and, if it has any, its generation defaults. -ENOENT, -EINVAL,
 * -ENOTSUP or another errno: the sentence names the file and, if a key is wrong, the key. */
int model_config_read(const struct checkpoint *k, struct model_config *ret,
		      struct err *e) MUST_CHECK;

/* Opens the checkpoint at a path, reads its configuration and closes it. Errors are those of opening and reading. */
int model_config_open(const char *path, struct model_config *ret, struct err *e) MUST_CHECK;

/* Reads a configuration from the texts of config.json and, unless `generation` is NULL, of generation_config.json.
 * `name` stands for config.json in messages. */
int model_config_parse(const char *name, const char *json, size_t len, const char *generation,
		       size_t generation_len, struct model_config *ret, struct err *e) MUST_CHECK;
