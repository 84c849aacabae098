/* Bodies of /api/tags, /api/ps, /api/show and /api/version in the shape of Ollama's API. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The version of Ollama's API that these bodies and answers have. Clients read it at /api/version to learn which
 * members they may use; tigond's own version is at /version. */
#define OLLAMA_VERSION "0.22.0"

/* A model. Lists have its names as arguments of their own. Borrowed strings. */
struct ollama_model {
	const char *name;
	const char *digest;	  /* 64 hexadecimal digits */
	const char *architecture; /* "qwen3_5_moe" */
	const char *format;	  /* of its files: "safetensors" or "gguf" */
	const char *quantization; /* of its weights: "BF16" */
	const char *template;	  /* [template_len] of its chat; NULL: it has none */
	size_t template_len;
	uint64_t modified_ns;		     /* nanoseconds since 1970 */
	uint64_t weight_bytes, memory_bytes; /* memory: all that it takes */
	bool on_cpu;
	uint64_t n_parameters; /* 0: not known */
	uint32_t context_length, embedding_length, n_layers, n_heads, n_kv_heads, head_dim,
		vocab_size;
	uint32_t n_experts, n_experts_used; /* 0: it has none */
	double rope_theta, norm_eps;
	bool tools; /* it writes tool calls in a known format */
};

/* Returns whether `a` and `b` are the same name of a model: ":latest" at the end of a name says nothing. */
bool ollama_same_name(const char *a, const char *b);

/* {"models":[…]} with one for each of the names [n] */
void ollama_body_tags(const struct ollama_model *m, const char *const *names, size_t n,
		      struct buf *out);
void ollama_body_ps(const struct ollama_model *m, const char *const *names, size_t n,
		    struct buf *out);
/* {"template","details","model_info","capabilities",…} */
void ollama_body_show(const struct ollama_model *m, struct buf *out);
/* {"version":"…"} */
void ollama_body_version(struct buf *out);
