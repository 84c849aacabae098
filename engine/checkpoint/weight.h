/*
 * One weight of a model: what it is for, its shape, and how it is drawn at random where there is no
 * checkpoint. The layers of a model declare theirs; this room finds them.
 */
#pragma once

#include <stdint.h>

/* The numbers are part of what synthetic weights are made from: new roles go to the end. Shapes stand in the tables of
 * engine/layers. */
enum weight_role {
	WEIGHT_EMBED,
	WEIGHT_LM_HEAD, /* the embedding when tied */
	WEIGHT_FINAL_NORM,
	WEIGHT_INPUT_NORM, /* of a layer, as are all below */
	WEIGHT_POST_NORM,
	WEIGHT_DELTA_QKV, /* rows q | k | v */
	WEIGHT_DELTA_Z,
	WEIGHT_DELTA_B,
	WEIGHT_DELTA_A,
	WEIGHT_DELTA_CONV, /* columns: oldest input first */
	WEIGHT_DELTA_A_LOG,
	WEIGHT_DELTA_DT_BIAS,
	WEIGHT_DELTA_NORM,
	WEIGHT_DELTA_OUT,
	WEIGHT_ATTN_Q, /* for each head its query, then its gate where the family has one */
	WEIGHT_ATTN_K,
	WEIGHT_ATTN_V,
	WEIGHT_ATTN_O,
	WEIGHT_ATTN_Q_NORM,
	WEIGHT_ATTN_K_NORM,
	WEIGHT_ROUTER,
	WEIGHT_EXPERT_GATE,
	WEIGHT_EXPERT_UP,
	WEIGHT_EXPERT_DOWN,
	WEIGHT_SHARED_GATE, /* in a dense layer the MLP itself */
	WEIGHT_SHARED_UP,
	WEIGHT_SHARED_DOWN,
	WEIGHT_SHARED_ROUTER, /* how much the shared expert counts */
	WEIGHT_ROLES,
};

/* How a weight lies on the device (pack.h). */
enum pack_form {
	PACK_STACKED, /* a matrix of elements, in panels of 16 rows */
	PACK_TURNS, /* the same, panel by panel in turns with the weights that it shares the buffer with */
	PACK_FLOATS,	/* a matrix of floats, whatever elements are */
	PACK_LOOKUP,	/* rows of elements, one behind the other */
	PACK_VECTOR,	/* floats */
	PACK_ONE_PLUS,	/* floats, 1 + w */
	PACK_MINUS_EXP, /* floats, -exp(w) */
	PACK_TRANSPOSE, /* floats, [rows, cols] as [cols, rows]: convolution taps */
};

/*
 * One weight that a layer of a model has: a row of a table in engine/layers. Those of the whole model count as layer 0's.
 * Neighbours in a table that name the same buffer share it, one behind the other.
 *
 * How a synthetic one is drawn: a matrix has a gain, and is uniform with standard deviation gain / sqrt(cols), so that an
 * input with elements near 1 gives outputs near the gain. A vector has none: uniform in offset +- range.
 */
struct weight {
	enum weight_role role;
	int at;		     /* its buffer: AT_* of kernels/step.h */
	enum pack_form form; /* how it lies there */
	uint64_t rows, cols;
	float gain, offset, range;
	uint32_t experts; /* so many matrices of this shape; 1: not an expert's */
	uint32_t layer;
};

/* The parameters of a synthetic weight: an element is offset + scale * hash16(key, row * columns +
 * column), rounded to bf16; see kernels/generic/synthetic.clh. */
struct weight_synthesis {
	uint64_t key;
	float scale, offset;
};
