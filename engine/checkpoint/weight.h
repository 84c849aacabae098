/* One weight of a model: its role, its shape, and its random distribution in a synthetic model. The layers declare
 * their weights; this room finds them in a checkpoint. */
#pragma once

#include <stdint.h>

/* The numbers of roles are hashed into synthetic weights, so new roles go to the end. The tables of engine/layers
 * have the shapes. */
enum weight_role {
	WEIGHT_EMBED,
	WEIGHT_LM_HEAD, /* a tied head has the numbers of the embedding */
	WEIGHT_FINAL_NORM,
	WEIGHT_INPUT_NORM, /* of a layer, like all roles below */
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
	WEIGHT_ATTN_Q, /* for each head its query and, if the family has one, its gate */
	WEIGHT_ATTN_K,
	WEIGHT_ATTN_V,
	WEIGHT_ATTN_O,
	WEIGHT_ATTN_Q_NORM,
	WEIGHT_ATTN_K_NORM,
	WEIGHT_ROUTER,
	WEIGHT_EXPERT_GATE,
	WEIGHT_EXPERT_UP,
	WEIGHT_EXPERT_DOWN,
	WEIGHT_SHARED_GATE, /* of the shared expert; in a dense layer, of its MLP */
	WEIGHT_SHARED_UP,
	WEIGHT_SHARED_DOWN,
	WEIGHT_SHARED_ROUTER, /* the gate that weighs the shared expert */
	WEIGHT_ATTN_Q_BIAS,
	WEIGHT_ATTN_K_BIAS,
	WEIGHT_ATTN_V_BIAS,
	WEIGHT_MIXER_NORM, /* of the mixer's output, before it is added */
	WEIGHT_MLP_NORM,   /* of the MLP's output */
	WEIGHT_ROLES,
};

/* The form of a weight on the device (pack.h). Elements are the numbers with which the kernels compute: bf16 or floats,
 * as the option --dtype says. */
enum pack_form {
	PACK_STACKED, /* a matrix of elements, in panels of 16 rows */
	/* as PACK_STACKED, but the panels of the weights in the same buffer alternate */
	PACK_TURNS,
	PACK_FLOATS, /* a matrix of floats, whatever the elements are */
	PACK_LOOKUP, /* rows of elements, one behind the other; if quantised, a matrix like PACK_STACKED */
	PACK_VECTOR,	/* floats */
	PACK_ONE_PLUS,	/* floats, 1 + w */
	PACK_MINUS_EXP, /* floats, -exp(w) */
	PACK_TRANSPOSE, /* floats, [rows, cols] as [cols, rows]: convolution taps */
};

/* One weight that a layer of a model has: a row of a table in engine/layers. Weights of the whole model count as layer
 * 0's. Neighbours in a table that name the same buffer share it (pack.h).
 *
 * Random values of a synthetic weight: a matrix has a gain, and its values are uniform with standard deviation gain /
 * sqrt(cols), so that inputs near 1 give outputs near the gain. A vector has no gain (0), and its values are uniform in
 * offset +- range. */
struct weight {
	enum weight_role role;
	int at;		     /* its buffer: AT_* of kernels/step.h */
	enum pack_form form; /* its form in the buffer */
	uint64_t rows, cols;
	float gain, offset, range;
	/* number of experts, each with such a matrix; 1: it belongs to no expert, or to the only one */
	uint32_t experts;
	uint32_t layer;
	/* the number of its type on the device (kernels/quant_types.h), QUANT_PLAIN: elements. Set by weights_open and
	 * weights_synthetic, for weights with the forms PACK_STACKED, PACK_TURNS and PACK_LOOKUP. */
	uint32_t quant;
};

/* The parameters of a synthetic weight: an element is offset + scale * h, rounded to bf16, where h is 16 bits of a hash
 * of the key and of row * columns + column (kernels/generic/synthetic.clh). */
struct weight_synthesis {
	uint64_t key;
	float scale, offset;
};
