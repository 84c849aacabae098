/* The inside of a kernel set, which four files share. Each uses only those above it:
 *
 *     set.c        questions to a set: its sizes, its cuts
 *     programs.c   which programs are compiled, with which options
 *     launch.c     launches
 *     kernels.c    opening and closing */
#pragma once

#include "kernels/kernels.h"
#include "kernels/library.h"
#include "kernels/tuning/cuts.h"

enum kernel_id {
	K_EMBED,
	K_RMS_NORM,
	K_GEMM_STORE,
	K_GEMM_ADD,
	K_ROUTER_GEMM,
	K_ATTENTION_PREPARE,
	K_ATTENTION,
	K_ATTENTION_SPLIT,
	K_ATTENTION_COMBINE,
	K_DELTA_CONV,
	K_DELTA_PREFILL,
	K_DELTA_CHUNK,
	K_DELTA_SCAN,
	K_DELTA_NORM,
	K_DELTA_DECODE,
	K_SAMPLE,
	K_SCORE,
	K_SEAT_RESET,
	K_SYNTHESIZE,
	K_SYNTHESIZE_ROWS,
	K_ADDRESS,
	K_DECODE_STEP,
	K_QUANTIZE_ROWS,
	K_QUANTIZE_FLOAT_ROWS,
	K_GEMM_INT8_STORE,
	K_GEMM_INT8_ADD,
	/* one of each for every MLP of the shape */
	K_COMBINE_NORM,
	K_MOE_TOPK,
	K_MOE_SORT,
	K_MOE_GATE_UP,
	K_MOE_DOWN,
	K_END_OF_FIRST_MLP,
	K_COUNT = K_END_OF_FIRST_MLP + (K_END_OF_FIRST_MLP - K_COMBINE_NORM),
};

enum {
	ROUTER_BLOCKS = 4,  /* moe_route.cl */
	ROUTER_LANES = 256, /* router.cl, with the rows of a group */
	ROUTER_ROWS = 64,
	DELTA_CHUNK =
		64, /* tokens, and floats that delta_chunks.cl keeps of one for each value head */
	DELTA_CHUNK_FLOATS = 2 * DELTA_CHUNK * DELTA_CHUNK + DELTA_CHUNK,
	DELTA_BLOCK = 16, /* columns of a state that a group of delta_scan has */
	SPLIT_SLOTS_MIN = 4096,
};

#define MLP_KERNEL(id, mlp) ((int)(id) + (int)(mlp) * (K_END_OF_FIRST_MLP - K_COMBINE_NORM))

/* The width of a variant's groups, and its cuts unless a table has others (cuts.h). */
struct tuning {
	uint32_t lanes, vec;
	struct tuning_cut product;
	uint32_t queries; /* queries of an attention tile, about */
	/* column blocks of a group of the decode step; 0: the variant has none */
	uint32_t decode_blocks;
	enum kernel_packing packing; /* packing of bf16 weights */
	/* lanes of a group of a tensor core's product; 0: the variant has none */
	uint32_t tensor_lanes;
	uint32_t tensor_columns;
};

struct kernels {
	struct kernel_shape shape;
	const struct tuning *tuning;
	const struct tuning_cut *int8; /* cut of the int8 products; NULL: they are not compiled */
	uint32_t int8_group;
	enum kernel_variant variant;
	cl_command_queue queue;
	uint32_t compute_units;
	enum kernel_packing packing; /* packing of matrices of elements */
	struct cuts cuts;
	cl_program programs[64];
	uint32_t n_programs;
	/* [0] all kernels; [1...] those of a cut's programs */
	cl_kernel kernels[CUTS_MAX][K_COUNT];
	const char *names[K_COUNT]; /* in profiles and errors */
	uint32_t lanes[K_COUNT];    /* of a group */
	uint64_t launches;
	struct profile *profile; /* NULL: launches are not noted */
	struct err error;	 /* the first error; code 0: none */
};

/* ---- set.c ---- */

/* Groups of delta_prefill, and floats of scratch of each. */
uint32_t kernels_delta_groups(const struct kernels *k);
uint32_t kernels_delta_group_floats(const struct kernel_shape *s);

/* The most chunks that T tokens in so many rows can have. */
uint64_t kernels_delta_chunks(uint32_t T, uint32_t rows);

/* Tokens of an attention tile of a cut. */
uint32_t kernels_cut_tile_tokens(const struct kernels *k, uint32_t cut);

/* Whether products of elements run on tensor cores, in groups of another size; the router's, in float, never do. */
bool kernels_on_tensor_cores(const struct kernels *k);

/* ---- programs.c ---- */

/* Compiles the programs of the set and takes their kernels: those of a model, or the int8 products. */
int kernels_add_programs(struct kernels *k, struct library *l, bool int8, struct err *e) MUST_CHECK;

/* ---- launch.c ---- */

/* Launches each kernel of every cut but the default one once, without work. */
int kernels_warm_cuts(struct kernels *k, cl_context context, struct err *e) MUST_CHECK;
