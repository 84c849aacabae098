/*
 * The weights of a model by what they are for, whatever the checkpoint calls them.
 *
 * A role names one logical matrix of one layer (and expert). This file finds it in the checkpoint
 * (every prefix and name variant, Qwen3-Next's interleaved projections, packed and per-expert
 * experts, tied embeddings), checks every shape against the config before anything is read, and
 * hands out rows widened to float (exact for bf16 and f16). The engine packs them for its kernels.
 *
 * Synthetic weights answer the same calls: each element is a pure function of (seed, role, layer,
 * expert, row, column), shared with a kernel (kernels/generic/synthetic.clh), so that host and
 * device produce the same bits.
 */
#ifndef ENGINE_CHECKPOINT_WEIGHTS_H
#define ENGINE_CHECKPOINT_WEIGHTS_H

#include <stdint.h>

#include "base/err.h"
#include "engine/checkpoint/model_config.h"

/* Shapes are [rows, columns]; D hidden, Kd/Vd key/value width of all delta heads, Hv value heads,
 * H heads, G KV heads, hd head size, E experts, I expert size, S shared expert (or dense MLP) size. */
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

struct weights;

/* Rows and columns of a role in this layer; *rows = 0 when the layer has no such weight. */
void weights_shape(const struct model_config *c, enum weight_role role, uint32_t layer,
		   uint64_t *ret_rows, uint64_t *ret_cols);

/* Opens a checkpoint and checks that it has every weight of the config in its right shape. New.
 * -ENOENT, -EINVAL, -ENOTSUP: the sentence names file and tensor. */
int weights_open(const char *dir, const struct model_config *c, struct weights **ret,
		 struct err *e) MUST_CHECK;

/* Random weights for a config. New. */
int weights_synthetic(uint64_t seed, const struct model_config *c, struct weights **ret) MUST_CHECK;
void weights_close(struct weights *w);

/* Row `row` of a weight as floats, out [columns]. Layer and expert are 0 where they do not apply.
 * Only reads: several threads may call it at once. */
void weights_row(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		 uint64_t row, float *out);

/* Parameters of the synthetic function for one weight, for the kernel: an element is
 * offset + scale * hash16(key, row * columns + column), rounded to bf16; see synthetic.clh. */
struct weight_synthesis {
	uint64_t key;
	float scale, offset;
};
void weights_synthesis(const struct model_config *c, uint64_t seed, enum weight_role role,
		       uint32_t layer, uint32_t expert, struct weight_synthesis *ret);

/* Writes the weights as a Hugging Face checkpoint of the language model alone: bf16, in files of at
 * most shard_bytes (0: 4 GB; a larger tensor gets a file of its own) with an index, and config.json
 * made from config_json, flat and without the MTP head. out_dir is created; -EEXIST when it is there
 * and not empty. What `tigon export` does. */
int weights_export(const struct weights *w, const struct model_config *c, const char *config_json,
		   const char *out_dir, uint64_t shard_bytes, struct err *e) MUST_CHECK;

#endif
