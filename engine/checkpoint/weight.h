/*
 * One weight of a model: what it is for, its shape, and how it is drawn at random where there is no
 * checkpoint. The layers of a model declare theirs; this room finds them.
 */
#ifndef ENGINE_CHECKPOINT_WEIGHT_H
#define ENGINE_CHECKPOINT_WEIGHT_H

#include <stdint.h>

/* Shapes are [rows, columns]; D hidden, Kd/Vd key/value width of all delta heads, Hv value heads,
 * H heads, G KV heads, hd head size, E experts, I expert size, S shared expert (or dense MLP) size.
 * The numbers are part of what synthetic weights are made from: new roles go to the end. */
enum weight_role {
	WEIGHT_EMBED,	      /* [vocab, D] */
	WEIGHT_LM_HEAD,	      /* [vocab, D]; the embedding when tied */
	WEIGHT_FINAL_NORM,    /* [1, D] */
	WEIGHT_INPUT_NORM,    /* [1, D] a layer, as are all below */
	WEIGHT_POST_NORM,     /* [1, D] */
	WEIGHT_DELTA_QKV,     /* [2 Kd + Vd, D] rows q | k | v */
	WEIGHT_DELTA_Z,	      /* [Vd, D] */
	WEIGHT_DELTA_B,	      /* [Hv, D] */
	WEIGHT_DELTA_A,	      /* [Hv, D] */
	WEIGHT_DELTA_CONV,    /* [2 Kd + Vd, conv_kernel] oldest input first */
	WEIGHT_DELTA_A_LOG,   /* [1, Hv] */
	WEIGHT_DELTA_DT_BIAS, /* [1, Hv] */
	WEIGHT_DELTA_NORM,    /* [1, dv] plain, not 1 + w */
	WEIGHT_DELTA_OUT,     /* [D, Vd] */
	WEIGHT_ATTN_Q,	      /* [H 2 hd, D] a head: hd of query, then hd of gate */
	WEIGHT_ATTN_K,	      /* [G hd, D] */
	WEIGHT_ATTN_V,	      /* [G hd, D] */
	WEIGHT_ATTN_O,	      /* [D, H hd] */
	WEIGHT_ATTN_Q_NORM,   /* [1, hd] */
	WEIGHT_ATTN_K_NORM,   /* [1, hd] */
	WEIGHT_ROUTER,	      /* [E, D] */
	WEIGHT_EXPERT_GATE,   /* [I, D] an expert */
	WEIGHT_EXPERT_UP,     /* [I, D] an expert */
	WEIGHT_EXPERT_DOWN,   /* [D, I] an expert */
	WEIGHT_SHARED_GATE,   /* [S, D]; in a dense layer the MLP itself */
	WEIGHT_SHARED_UP,     /* [S, D] */
	WEIGHT_SHARED_DOWN,   /* [D, S] */
	WEIGHT_SHARED_ROUTER, /* [1, D] shared_expert_gate */
	WEIGHT_ROLES,
};

/* How a synthetic weight is drawn. A matrix has a gain: uniform with standard deviation
 * gain / sqrt(columns), so that an input with elements near 1 gives outputs near the gain. A vector
 * has none: uniform in offset +- range. */
struct weight_recipe {
	float gain, offset, range;
};

/* One weight that a layer of a model has; those of the whole model count as layer 0's. */
struct weight {
	enum weight_role role;
	uint32_t layer;
	uint32_t experts; /* so many matrices of this shape; 1: not an expert's */
	uint64_t rows, cols;
	struct weight_recipe recipe;
};

/* The parameters of a synthetic weight: an element is offset + scale * hash16(key, row * columns +
 * column), rounded to bf16; see kernels/generic/synthetic.clh. */
struct weight_synthesis {
	uint64_t key;
	float scale, offset;
};

#endif
