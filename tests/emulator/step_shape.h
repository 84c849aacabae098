/* The shape for which run.py compiles the decode step. It makes options of these lines. An output projection is two
 * chains, a normed row five parts, and experts have two and three. The columns of the router are one group's. */
#pragma once

#define LANES	     256
#define HIDDEN	     1280
#define VOCAB	     100
#define EPS	     1e-6f
#define EMBED_SCALE  1.0f
#define QUANT_EMBED  1
#define OUT_NORMS    0
#define ROT	     64
#define ROPES	     1
#define HEADS	     40
#define KV_HEADS     5
#define HD	     64
#define SCORE_DIM    64
#define PAGE	     64
#define WINDOW	     0
#define TILE_TOKENS  2
#define QK_NORM	     1
#define QKV_BIAS     0
#define ATTENTION_LD 5760
#define HK	     0
#define HV	     0
#define DV	     0
#define EXPERTS	     6
#define TOPK	     2
#define NORM_TOPK    1
#define WARP_TOPK    1
#define EXPERT_SIZE  288
#define SHARED_SIZE  544
#define SHARED_GATE  1

/* Elements of a row of activations. */
#define ACT_LD 544

/* Attention has a gate. */
#define ATTENTION_GATE 1
