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
	const char *name; /* without the prefix and "layers.N." */
	enum tensor_form form;
	struct tensor_section sections[TENSOR_SECTIONS_MAX];
	uint8_t more; /* sections behind the first */
};

/* Tensors that come together: a checkpoint that has the first of them must have all of them whose weights the layer
 * has. */
struct tensor_set {
	/* the kind of layer that has them (enum layer_kind), or LAYER_KINDS: every layer */
	uint8_t kind;
	uint8_t n;
	const struct family_tensor *tensors;
};

struct family {
	const char *name; /* its model_type in config.json, which may have "_text" appended */
	/* Written by `tigon export`: model_type, and the name of the class in transformers. */
	const char *text_type, *class_name;
	/* Values for missing keys, and conventions that the family fixes (norm_adds_one, attention_gate). A family
	 * without Gated DeltaNet has n_key_heads 0. */
	struct model_config defaults;
	double rotary_factor; /* the share of a head that is rotated, if no key says it */
	/* Fills c->layers (and n_experts), after the sizes of the whole model were read. Refuses values that the engine
	 * computes for other families but not for this one. */
	void (*read_layers)(struct config_source *s, struct model_config *c);
	/* The sets of tensors that checkpoints of the family may hold, NULL behind the last. Of two sets with the same
	 * weights the first is the one that the family's own files have. */
	const struct tensor_set *const *sets;
};

#define FAMILIES(ROW) ROW(qwen3) ROW(qwen3_5_moe) ROW(qwen3_5) ROW(qwen3_next)

#define DECLARE_FAMILY(name) extern const struct family family_##name;
FAMILIES(DECLARE_FAMILY)
#undef DECLARE_FAMILY

/* Fills the mixers from layer_types. If that key is missing, every full_attention_interval-th layer has attention (if
 * that key is missing too, every `interval`-th one), and the others Gated DeltaNet. In a family without Gated DeltaNet
 * a layer of that kind is an error. */
void family_read_mixers(struct config_source *s, struct model_config *c, uint32_t interval);

/* ---- names.c: tensors by the names of transformers ---- */

extern const struct tensor_set tensors_norms, tensors_attention, tensors_delta, tensors_delta_apart,
	tensors_delta_interleaved, tensors_router, tensors_experts, tensors_experts_packed,
	tensors_dense;

/* The tensors outside all layers, which are in no set. */
extern const struct family_tensor tensor_embed, tensor_final_norm, tensor_lm_head;
