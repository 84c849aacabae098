/*
 * A family of models as data: defaults for its configuration, the kinds of its layers, and the names of its tensors.
 * Each family has a row in FAMILIES, and a file, which similar families share.
 */
#pragma once

#include "engine/checkpoint/config_source.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weight.h"

/* How a tensor holds the rows of one or several weights. Its rows are divided into sections. All rows of a section are
 * of one weight, but they need not be neighbours. A weight may have several sections. */
enum tensor_form {
	/* [rows, columns]. Experts have a tensor each: '*' in the name is the expert's number */
	TENSOR_MATRIX,
	/* [rows, columns], of rotated heads: rows i and i + head_dim / 2 of each head are neighbours */
	TENSOR_PAIRS,
	TENSOR_VECTOR, /* [columns] */
	TENSOR_CONV,   /* [rows, 1, columns] */
	/* [rows, columns]: for each key head of Gated DeltaNet, the head's rows of every section */
	TENSOR_HEADS,
	TENSOR_EXPERTS, /* [experts, rows, columns]: for each expert, its rows of every section */
};

enum { TENSOR_SECTIONS_MAX = 4 };

struct tensor_section {
	enum weight_role role;
	/* In TENSOR_HEADS: the offset in struct model_config of a uint32_t, which is the number of the section's rows
	 * for each head. 0: the section has all rows of the weight that earlier sections do not have. */
	uint16_t rows_at;
};

struct family_tensor {
	const char *name; /* without what stands in front of it (struct naming) */
	enum tensor_form form;
	struct tensor_section sections[TENSOR_SECTIONS_MAX];
	uint8_t more; /* sections behind the first */
};

/* Tensors that come together: a checkpoint that has the first of them must have all of them whose weights the layer
 * has. */
struct tensor_set {
	/* the kind of layer that has them (enum layer_kind; LAYER_ATTENTION stands for LAYER_SLIDING, too), or
	 * LAYER_KINDS: every layer */
	uint8_t kind;
	uint8_t n;
	const struct family_tensor *tensors;
};

/* How files of one kind name tensors, whatever the family. */
struct naming {
	/* The texts that may stand in front of all names, NULL behind the last: the one that does is the one with which
	 * there is an embedding. head_prefixes: those of the head. */
	const char *const *prefixes, *const *head_prefixes;
	const char *
		layer; /* what stands between the prefix and the names of a layer; %u is its number */
	const struct family_tensor *embed, *final_norm,
		*lm_head;   /* the tensors outside all layers, which are in no set */
	const char *config; /* what messages call the configuration */
	/* Returns whether a tensor belongs to a part of the model that the engine does not compute. */
	bool (*is_foreign)(const char *name, const struct model_config *c);
};
extern const struct naming naming_transformers, naming_gguf; /* names.c, gguf_names.c */

struct family {
	const char *name; /* its model_type in config.json, which may have "_text" appended */
	/* Written by `tigon export`: model_type, and the name of the class in transformers. */
	const char *text_type, *class_name;
	/* Values for missing keys, and conventions that the family fixes (norm_adds_one, attention_gate). A family
	 * without Gated DeltaNet has n_key_heads 0, and one without a shared expert shared_expert_size 0. head_dim 0:
	 * hidden_size / num_attention_heads; n_kv_heads 0: as many as n_heads. */
	struct model_config defaults;
	double rotary_factor; /* the share of a head that is rotated, if no key says it */
	/* Fills c->layers (and n_experts), after the sizes of the whole model were read. Refuses values that the engine
	 * computes for other families but not for this one. */
	void (*read_layers)(struct config_source *s, struct model_config *c);
	/* The sets of tensors that checkpoints of the family may hold, NULL behind the last. Of two sets with the same
	 * weights the first is the one that the family's own files have. */
	const struct tensor_set *const *sets;
	/* The same for GGUF files. */
	const struct tensor_set *const *gguf_sets;
	bool gguf_tiles_heads; /* GGUF files have value heads of Gated DeltaNet in turn (model_config.h) */
};

#define FAMILIES(ROW)  \
	ROW(qwen3)     \
	ROW(qwen3_moe) \
	ROW(qwen3_5_moe) ROW(qwen3_5) ROW(qwen3_next) ROW(qwen2) ROW(llama) ROW(gemma3)

#define DECLARE_FAMILY(name) extern const struct family family_##name;
FAMILIES(DECLARE_FAMILY)
#undef DECLARE_FAMILY

/* Fills the mixers from layer_types. If that key is missing, every `interval`-th layer has attention, or as often as the
 * key full_attention_interval says, in families with sliding windows sliding_window_pattern. The others are of the
 * family's other kind: Gated DeltaNet or, with sliding_window, sliding windows. A kind that the family does not have is
 * an error. */
void family_read_mixers(struct config_source *s, struct model_config *c, uint32_t interval);

/* Fills n_experts and the MLPs. A layer has a dense MLP if mlp_only_layers lists its number, counted from 0, or if its
 * number, counted from 1, is no multiple of decoder_sparse_step; otherwise it has experts. Without experts all layers
 * have dense MLPs. */
void family_read_mlps(struct config_source *s, struct model_config *c);

/* ---- names.c: tensors by the names of transformers ---- */

extern const struct tensor_set tensors_norms, tensors_four_norms, tensors_attention,
	tensors_qkv_bias, tensors_delta, tensors_delta_apart, tensors_delta_interleaved,
	tensors_router, tensors_experts, tensors_experts_packed, tensors_dense;

/* ---- gguf_names.c: tensors by the names of GGUF ---- */

/* Sets for Qwen3.5, for Qwen3-Next, for Llama, for Gemma 3, and for others. */
extern const struct tensor_set *const gguf_hybrid_sets[],
	*const gguf_next_sets[], *const gguf_llama_sets[], *const gguf_gemma_sets[],
								   *const gguf_sets[];
