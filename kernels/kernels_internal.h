/* The inside of a kernel set, which four files share. Each file uses only the files above it in this list:
 *
 *     set.c        answers questions about a set: its sizes, its cuts
 *     programs.c   which programs are compiled, with which options
 *     launch.c     launches
 *     kernels.c    opening and closing */
#pragma once

#include "kernels/chains.h"
#include "kernels/groups.h"
#include "kernels/kernels.h"
#include "kernels/library.h"
#include "kernels/tuning/cuts.h"

enum kernel_id {
	K_EMBED,
	K_RMS_NORM,
	K_ADD_NORM,
	K_GEMM_STORE,
	K_GEMM_ADD,
	K_GEMM_STORE_WIDE,
	K_GEMM_ADD_WIDE,
	K_GEMM_STORE_PARTS,
	K_GEMM_ADD_PARTS,
	K_GEMM_STORE_WIDE_PARTS,
	K_GEMM_ADD_WIDE_PARTS,
	K_GEMM_SPLIT,
	K_GEMM_SUM_PARTS,
	K_ROUTER_GEMM,
	K_ROUTER_TALL,
	K_ROUTER_FEW,
	K_ATTENTION_PREPARE,
	K_ATTENTION,
	K_ATTENTION_FLASH,
	K_ATTENTION_SPLIT,
	K_ATTENTION_COMBINE,
	K_DELTA_CONV,
	K_DELTA_PREFILL,
	K_DELTA_CHUNK,
	K_DELTA_SCAN,
	K_DELTA_CONV_TENSOR,
	K_DELTA_CHUNK_TENSOR,
	K_DELTA_SCAN_TENSOR,
	K_DELTA_OUT_TENSOR,
	K_DELTA_NORM,
	K_DELTA_DECODE,
	K_SAMPLE_BLOCKS,
	K_SAMPLE,
	K_SAMPLE_ALONE,
	K_SCORE_BLOCKS,
	K_SCORE,
	K_SEAT_RESET,
	K_POOL,
	K_COPY_PAGES,
	K_SYNTHESIZE,
	K_SYNTHESIZE_ROWS,
	K_ADDRESS,
	K_DECODE_STEP,
	/* one of each for every MLP of the shape */
	K_COMBINE_NORM,
	K_MOE_TOPK,
	K_MOE_SORT,
	K_MOE_GATE_UP,
	K_MOE_DOWN,
	K_GATE_UP_WIDE,
	K_DOWN_WIDE,
	K_END_OF_FIRST_MLP,
	K_COUNT = K_END_OF_FIRST_MLP + (K_END_OF_FIRST_MLP - K_COMBINE_NORM),
};

enum {
	ROUTER_LANES = 256,	  /* lanes of a group of router.cl */
	ROUTER_FEW_MOST = 512,	  /* rows up to which the kernel for few rows is faster */
	ROUTER_TALL_LEAST = 4096, /* rows from which router_tall is faster */
	SPLIT_LANES = 256,	  /* lanes of a group of attention_decode.cl on a GPU */
	SPLIT_SLOTS_MIN = 4096,	  /* the least number of slots for splits on a GPU */
	GEMM_SPLIT_MOST = 128,	  /* rows up to which gemm_split is faster */
	WIDE_TERMS = 128,	  /* in gemm_wide.cl K is a multiple of WIDE_TERMS */
	WIDE_ABOVE = 8, /* rows up to which gemm.cl and moe_gemm.cl are faster than gemm_wide.cl */
};

#define MLP_KERNEL(id, mlp) ((int)(id) + (int)(mlp) * (K_END_OF_FIRST_MLP - K_COMBINE_NORM))

/* The numbers that a set takes from its variant, the device and the type of elements (choose_tuning in kernels.c):
 * generic has others on a CPU than on a GPU, and x86 with float has those of generic on a CPU. They are the width of a
 * group (lanes x vec elements), the default cuts (cuts.h), and the packing. */
struct tuning {
	uint32_t lanes, vec;
	uint32_t
		register_sums; /* accumulators of `vec` floats that a lane keeps in registers (common.clh) */
	struct tuning_cut product;
	uint32_t queries; /* an attention tile has about so many queries */
	/* column blocks of a part of a product in generic/decode_step.cl; 1 stands for nvidia/decode_step.cl, which has
	 * no such parts; 0: no step is one launch */
	uint32_t decode_blocks;
	enum kernel_packing packing; /* packing of bf16 weights that are not coded */
	bool tensor;		     /* there are warps, and products of bf16 run on tensor cores */
};

/* The bodies of DOT_INT8 (generic/dot_int8.clh); the numbers are values of the option INT8_DOT. */
enum int8_dot {
	INT8_DOT_PLAIN,
	INT8_DOT_PRODUCT,
	INT8_DOT_DP4A,
	INT8_DOT_VPDPBUSD,
	INT8_DOT_VPMADDUBSW
};

struct kernels {
	struct kernel_shape shape;
	const struct tuning *tuning;
	enum int8_dot int8_dot;
	enum kernel_variant variant;
	uint32_t abilities; /* those of the device (probe.h) that the variant uses */
	cl_command_queue queue;
	uint32_t compute_units;
	uint64_t local_memory;	     /* bytes that a group may have */
	enum kernel_packing packing; /* packing of matrices of elements */
	bool wgmma;		     /* products of many rows run by gemm_wide.cl */
	bool branches; /* a branch of a whole group may have barriers in it (vocabulary.clh) */
	bool compiled; /* a program was compiled, not read from the cache */
	struct cuts cuts;
	cl_program programs[64];
	uint32_t n_programs;
	/* [0]: the kernels with the default cut, NULL if the shape or device needs none; [i]: those of the programs
	 * that are compiled for cut i too */
	cl_kernel kernels[CUTS_MAX][K_COUNT];
	const char *names[K_COUNT]; /* the kernels' names in profiles and errors */
	uint32_t lanes[K_COUNT];    /* lanes of a group of each kernel */
	uint64_t launches;
	struct profile *profile; /* NULL: launches are not noted */
	struct err error;	 /* the first error; code 0: none */
};

/* ---- set.c ---- */

/* Returns the floats of scratch of a group of delta_prefill, which has at most a group for each compute unit. */
uint32_t kernels_delta_group_floats(const struct kernel_shape *s);

/* Returns the most chunks that T tokens in so many rows can have. */
uint64_t kernels_delta_chunks(uint32_t T, uint32_t rows);

/* Returns the most tokens of an attention tile of a cut. */
uint32_t kernels_cut_tile_tokens(const struct kernels *k, uint32_t cut);

/* Returns whether products of elements run on tensor cores (nvidia/tensor.clh). The router's product is of floats and
 * never runs there. */
bool kernels_on_tensor_cores(const struct kernels *k);

/* Returns whether the attention of prompts runs on tensor cores (attention_flash.cl). */
bool kernels_has_flash(const struct kernels *k);

/* Returns whether the products of attention_split run on tensor cores (nvidia/attention_decode.cl). */
bool kernels_has_tensor_splits(const struct kernels *k);

/* Returns whether the prefill of Gated DeltaNet runs on tensor cores (nvidia/delta_tensor.cl). */
bool kernels_has_tensor_delta(const struct kernels *k);

/* Returns whether a warp chooses a token's experts (nvidia/moe_route.cl). */
bool kernels_has_warp_topk(const struct kernels *k, const struct kernel_mlp *m);

/* ---- programs.c ---- */

/* Compiles the programs that the shape needs, and takes their kernels. */
int kernels_add_programs(struct kernels *k, struct library *l, struct err *e) MUST_CHECK;

/* ---- launch.c ---- */

/* Launches each kernel that runs with other cuts than the default one, once with each of them and with hardly any work,
 * so that a driver that compiles at the first launch does so now. Sets the number of launches to 0. */
int kernels_warm_cuts(struct kernels *k, cl_context context, struct err *e) MUST_CHECK;
