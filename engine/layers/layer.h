/* Kinds of layers. A layer is a mixer followed by an MLP, each of a kind (enum layer_kind). Each kind has one file in
 * this folder with a struct layer_ops, which has all that differs between kinds. model.c walks over the layers through
 * these structs, with the same code for all kinds. */
#pragma once

#include "engine/layers/cost.h"
#include "engine/layers/phases.h"
#include "engine/layers/part.h"
#include "engine/layers/weights.h"
#include "kernels/step.h"
#include "kernels/kernels.h"
#include "kernels/profile.h"

/* Buffers that all layers share. The numbers below AT_LAYERS are the AT_* of kernels/step.h, by which a step in one
 * launch finds its buffers; the numbers here follow them. */
enum {
	BUFFER_STEP = AT_LAYERS, /* the step table */
	/* the first of BUFFERS_MIXER work buffers; each kind of mixer defines their meaning */
	BUFFER_MIXER,
	BUFFERS_MIXER = 5,
	BUFFER_SAMPLING = BUFFER_MIXER + BUFFERS_MIXER,
	BUFFER_COUNTS,
	/* the output of a mixer or an MLP before it is added to the residual stream; only while activations are
	 * dumped */
	BUFFER_DUMP,
	BUFFERS,
};

/* The splits (ranges of a row's keys, kernels/generic/attention_decode.cl) that one launch computes: all splits of the
 * n_rows rows from first_row on. */
struct split_batch {
	cl_int splits_at; /* position of the batch's first split in the step table */
	uint32_t n_splits, first_row, n_rows;
};

/* One step: numbers of tokens, rows and so on, and the positions of the sections of its step table (kernels/step.h). */
struct model_step {
	uint32_t n_tokens, n_prefill_tokens;
	/* n_logits: rows of logits for the draws; n_scores: tokens of prompts whose log-probabilities are asked for */
	uint32_t n_rows, n_prefill_rows, n_tiles, n_logits, n_draws, n_scores;
	cl_int tokens_at, positions_at, token_rows_at, rows_at, tiles_at, logits_at, draws_at;
	cl_int score_rows_at, scores_at;   /* [n_scores] each */
	const struct split_batch *batches; /* [n_batches], valid until the next step is built */
	uint32_t n_batches;
	cl_int all_at;	/* 0, 1, 2, ... n_tokens - 1; only while dumping */
	cl_int work_at; /* the work list of a step in one launch; 0: separate launches */
};

/* One layer of one step. */
struct layer_run {
	struct kernels *kernels;
	const cl_mem *all; /* [BUFFERS] */
	/* [AT_LAYER_COUNT] the layer's own buffers, by AT_*; an element is NULL if the layer does not have that
	 * buffer */
	const cl_mem *own;
	const struct model_step *step;
};

/* The size of a work buffer. Layers run one after the other and share the buffer, so the largest size of all kinds
 * counts. */
struct layer_scratch {
	int at; /* its number among the buffers that all layers share */
	const char *name;
	uint64_t bytes;
};

enum { LAYER_SCRATCH_MAX = 8 };

struct layer_ops {
	/* Adds the kind's sizes to the kernels' shape. */
	void (*shape)(const struct model_config *c, struct kernel_shape *k);
	/* Lists the weights of a layer. */
	void (*weights)(const struct model_config *c, struct layer_weights *ret);
	/* Lists the work buffers of a step with at most T tokens in at most so many rows; returns their number. */
	uint32_t (*scratch)(const struct kernels *k, uint32_t T, uint32_t rows,
			    struct layer_scratch ret[LAYER_SCRATCH_MAX]);
	/* Lists the parts (part.h) that a layer keeps of a sequence; returns their number. element: bytes of a number
	 * in KV pages. NULL: the kind keeps nothing of a sequence. */
	uint32_t (*parts)(const struct model_config *c, uint32_t element, uint32_t page_tokens,
			  struct layer_part ret[LAYER_PARTS_MAX]);
	/* Launches the kernels of a mixer or an MLP. A mixer reads normed rows (AT_H) and adds to the residual stream
	 * (AT_X). An MLP reads the residual stream, adds to it and writes the rows of the sum, normed, to AT_H. The
	 * norm is that of the next layer's mixer, or the final norm. */
	void (*forward)(const struct layer_run *r);
	/* Appends the layer's phases to the work list of a decode step in one launch. */
	void (*phases)(struct phase_list *l, uint32_t layer);
	/* A list for a test: for each operation of `phases`, the buffers that it reads and writes. The last row is
	 * OP_END. */
	const struct phase_order *order;
	/* the same for resident groups (struct decode_cut) */
	const struct phase_order *resident_order;
	/* Returns the FLOP of a layer without the products with its weights. NULL: the products with weights are all
	 * that counts. */
	double (*flops)(const struct model_config *c, const struct cost_step *s);
	/* Computes the work of a launch of one of the kind's own kernels. False: the kernel is not one of them. */
	bool (*kernel)(const struct model_config *c, const struct cost_step *s,
		       const struct kernel_timing *l, struct roofline_work *ret);
};

/* Adds to the kernels' shape the sizes of all kinds of layers in the model, in the order of enum layer_kind. */
void layers_shape(const struct model_config *c, struct kernel_shape *k);

/* Indexed by enum layer_kind: attention.c, delta.c, moe.c, dense.c. */
extern const struct layer_ops *const layer_ops[LAYER_KINDS];
extern const struct layer_ops layer_attention, layer_delta, layer_moe, layer_dense;
