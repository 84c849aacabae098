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
 * launch finds its buffers; the numbers here follow them. Numbers in buffers are floats, if nothing else is said.
 * Capitals are those of kernels.h (launches), D stands for LD(hidden), T for the most tokens of a step:
 *
 *     AT_X               [T, D] the residual stream
 *     AT_H, AT_H32       normed rows: [T, kernels_input_ld] elements, [T, D] floats
 *     AT_ROPE            [T, ropes, rotary_dim] rotary angles
 *     AT_PROJ            [T, kernels_attention_ld or kernels_delta_ld] the output of a mixer's first projection
 *     AT_MIXED           [T, kernels_input_ld] elements, the input of its second one
 *     AT_Q               [T, heads * HD] queries
 *     AT_ROUTER_LOGITS   [T, RL]
 *     AT_EXPERTS         [T, topk] int, the experts of each token; AT_WEIGHTS [T, topk] their weights
 *     AT_ROWS            [T * slots] int, AT_TASKS [kernels_task_ints] int (kernels/generic/moe_route.cl)
 *     AT_ACT             [T * slots, kernels_input_ld] elements, the activations of the experts
 *     AT_Y               [T, slots, D] outputs of the experts; [T, D] that of a mixer, if outputs are normed
 *     AT_LOGITS          [logits, LD(V)]
 *     AT_RESULT          int, the result of the step (kernels/step.h)
 *     AT_EMBED           [V, D] elements, or quantised (kernels/quant.h)
 *     AT_LM_HEAD         [LD(V), D] packed (enum kernel_packing); if tied and quantised, the buffer AT_EMBED
 *     AT_INV_FREQ        [ropes, rotary_dim / 2] frequencies of the rotary angles
 *     AT_FINAL_NORM      [D] weights of the norm before the head
 *     AT_PARTIAL         [kernels_split_slots, heads, HD] and AT_STATS [kernels_split_slots, heads, 2]: the splits of
 *                        attention on a GPU. AT_PARTIAL is also `parts` of kernel_project */
enum {
	BUFFER_STEP = AT_LAYERS, /* the step table */
	/* the first of BUFFERS_MIXER work buffers; each kind of mixer defines their meaning */
	BUFFER_MIXER,
	BUFFERS_MIXER = 5,
	/* [draws, kernels_sample_floats] or [scores, kernels_score_floats] work space */
	BUFFER_SAMPLING = BUFFER_MIXER + BUFFERS_MIXER,
	BUFFER_COUNTS, /* [seats, V] uint, how often each sequence has each token (kernels/generic/sample.cl) */
	BUFFER_SUMS, /* [seats, D] sums of hidden states */
	/* [T, D] the output of a mixer or an MLP before it is added to the residual stream; only while activations are
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

/* A list of page copies in the step table. */
struct page_copies {
	cl_int at;
	uint32_t n;
};

/* One step: numbers of tokens, rows and so on, and the positions of the sections of its step table (kernels/step.h). */
struct model_step {
	uint32_t n_tokens, n_prefill_tokens;
	/* n_logits: rows of logits for the draws; n_scores: tokens of prompts whose log-probabilities are asked for */
	uint32_t n_rows, n_prefill_rows, n_tiles, n_logits, n_draws, n_scores, n_poolings;
	cl_int tokens_at, positions_at, token_rows_at, rows_at, tiles_at, logits_at, draws_at;
	cl_int score_rows_at, scores_at; /* [n_scores] each */
	float *scored_logits;		 /* [n_scores, vocab_size] of the host; NULL: not wanted */
	cl_int poolings_at;
	/* for layers with a sliding window: the rows with the block tables of their rings, and the copies of pages
	 * between rings (engine/step.c): before the first layer, and, in each layer, two lists one after the other behind
	 * its attention */
	cl_int ring_rows_at;
	struct page_copies resumed, kept, carried;
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
	 * buffer. Its kind lists the weights (struct weight: form, rows, columns) and the parts that it keeps of a
	 * sequence. AT_NEXT_NORM is the norm behind the layer: the next layer's AT_INPUT_NORM, or AT_FINAL_NORM. */
	const cl_mem *own;
	const struct model_step *step;
	struct importance *
		importance; /* gets the inputs of the step's products (inputs.h); NULL: none does */
	uint32_t layer;
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
	/* Lists the parts (part.h) that a layer keeps of a sequence; returns their number. number: bytes of a number
	 * in KV pages (part.h). NULL: the kind keeps nothing of a sequence. */
	uint32_t (*parts)(const struct model_config *c, uint32_t number, uint32_t page_tokens,
			  struct layer_part ret[LAYER_PARTS_MAX]);
	/* Launches what goes before the first layer, also before a step in one launch: copies of states that rows resume
	 * and do not write. NULL: nothing. */
	void (*resume)(const struct layer_run *r);
	/* Launches the kernels of a mixer or an MLP. A mixer reads normed rows (AT_H) and adds to the residual stream
	 * (AT_X). An MLP reads the residual stream, adds to it and writes the rows of the sum, normed, to AT_H. The
	 * norm is that of the next layer's mixer, or the final norm. With out_norms the mixer also leaves in AT_H the
	 * rows that its MLP reads. */
	void (*forward)(const struct layer_run *r);
	/* Appends the layer's phases to the work list of a decode step in one launch. */
	void (*phases)(struct phase_list *l, uint32_t layer);
	/* A list for a test: for each operation of `phases`, the buffers that it reads and writes. The last row is
	 * OP_END. */
	const struct phase_order *order;
	/* the same for resident groups (struct decode_cut); NULL: they do not compute the kind */
	const struct phase_order *resident_order;
	/* the kind reads the KV of a sliding window alone */
	bool window;
	/* Adds the FLOP of a layer without the products with its weights to *sum. NULL: the products with weights are
	 * all that counts. */
	void (*flops)(const struct model_config *c, const struct cost_step *s,
		      struct cost_flops *sum);
	/* Computes the work of a launch of one of the kind's own kernels. False: the kernel is not one of them. */
	bool (*kernel)(const struct model_config *c, const struct cost_step *s,
		       const struct kernel_timing *l, struct roofline_work *ret);
};

/* Adds to the kernels' shape the sizes of all kinds of layers in the model, in the order of enum layer_kind. */
void layers_shape(const struct model_config *c, struct kernel_shape *k);

/* Multiplies the outputs of a mixer, AT_MIXED [T, width], with its output projection, and adds them to the residual
 * stream. With out_norms they are normed before, and the sum is normed for the MLP (struct layer_ops). */
void layer_output(const struct layer_run *r, uint32_t width);

/* Appends the phases of layer_output. op: the operation of the product. */
void layer_output_phases(struct phase_list *l, int op, uint32_t layer, uint64_t width);

/* Indexed by enum layer_kind: attention.c has two kinds, then delta.c, moe.c, dense.c. */
extern const struct layer_ops *const layer_ops[LAYER_KINDS];
extern const struct layer_ops layer_attention, layer_sliding, layer_delta, layer_moe, layer_dense;
