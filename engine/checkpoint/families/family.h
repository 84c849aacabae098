/*
 * A family of models as data: defaults for its configuration, the kinds of its layers, and the names
 * of its tensors. One file a family (families that share tables share one), one row in FAMILIES.
 */
#pragma once

#include "engine/checkpoint/config_source.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weight.h"

/* How a tensor holds the rows of one or several weights, its sections. */
enum tensor_form {
	TENSOR_MATRIX, /* [rows, columns]. Of experts' weights a tensor each: '*' is the expert's number */
	TENSOR_VECTOR, /* [columns] */
	TENSOR_CONV,   /* [rows, 1, columns] */
	TENSOR_HEADS, /* [rows, columns]: for each key head of Gated DeltaNet the rows of every section */
	TENSOR_EXPERTS, /* [experts, rows, columns]: for each expert the rows of every section */
};

enum { TENSOR_SECTIONS_MAX = 4 };

struct tensor_section {
	enum weight_role role;
	/* TENSOR_HEADS: rows a head, as the offset of a uint32_t in struct model_config. 0: all that
	 * earlier sections left of the weight. */
	uint16_t rows_at;
};

struct family_tensor {
	const char *name; /* behind the prefix, and "layers.N." */
	enum tensor_form form;
	struct tensor_section sections[TENSOR_SECTIONS_MAX];
	uint8_t more; /* sections behind the first */
};

/* Tensors that come together: a checkpoint has all of them or, when it lacks the first, none. */
struct tensor_set {
	uint8_t kind; /* the layers that have them: enum layer_kind, or LAYER_KINDS: every layer */
	uint8_t n;
	const struct family_tensor *tensors;
};

struct family {
	const char *name; /* model_type, also with "_text" behind it */
	/* Written by `tigon export`: model_type, and the class of transformers. */
	const char *text_type, *class_name;
	/* Values for missing keys, and for conventions without a key (norm_adds_one, attention_gate). A
	 * family without Gated DeltaNet has no key heads. */
	struct model_config defaults;
	double rotary_factor; /* the part of a head that rotates, when no key says it */
	/* Fills c->layers; the sizes of the whole model are read already. Refuses values that mean
	 * something else in this family alone. */
	void (*read_layers)(struct config_source *s, struct model_config *c);
	/* The sets that its checkpoints may hold, NULL behind the last. Of two sets with the same
	 * weights, its own files have the first. */
	const struct tensor_set *const *sets;
};

#define FAMILIES(ROW) ROW(qwen3_5_moe) ROW(qwen3_5) ROW(qwen3_next)

#define DECLARE_FAMILY(name) extern const struct family family_##name;
FAMILIES(DECLARE_FAMILY)
#undef DECLARE_FAMILY

/* Fills the mixers by layer_types; where that is missing every full_attention_interval-th layer
 * attends (`interval`: when that key is missing too) and the others are Gated DeltaNet. */
void family_read_mixers(struct config_source *s, struct model_config *c, uint32_t interval);

/* ---- names.c: tensors by the names of transformers ---- */

extern const struct tensor_set tensors_norms, tensors_attention, tensors_delta, tensors_delta_apart,
	tensors_delta_interleaved, tensors_router, tensors_experts, tensors_experts_packed,
	tensors_dense;

/* Those of the whole model, in front of all sets. */
extern const struct family_tensor tensor_embed, tensor_final_norm, tensor_lm_head;
