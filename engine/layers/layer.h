/*
 * Kinds of layers. A layer is a mixer and behind it an MLP, each of a kind (enum layer_kind). All that is special about a kind
 * stands in one file of this folder, as a struct layer_ops; the model walks over layers without knowing what they are.
 */
#ifndef ENGINE_LAYERS_LAYER_H
#define ENGINE_LAYERS_LAYER_H

#include "engine/layers/cost.h"
#include "engine/layers/phases.h"
#include "engine/layers/piece.h"
#include "engine/layers/weights.h"
#include "kernels/step.h"
#include "kernels/kernels.h"
#include "kernels/profile.h"

/* Buffers of all layers: those that one launch finds by AT_* of kernels/step.h (below AT_LAYERS), then these. */
enum {
	BUFFER_STEP = AT_LAYERS, /* the step table */
	BUFFER_DELTA_Q,
	BUFFER_DELTA_K,
	BUFFER_DELTA_V,
	BUFFER_DELTA_GATES,
	BUFFER_DELTA_CHUNKS,
	BUFFER_SAMPLING,
	BUFFER_COUNTS,
	BUFFER_DUMP, /* NULL unless activations are dumped */
	BUFFERS,
};

/* What one step runs, as offsets into the step table (engine/step.c). */
struct model_step {
	uint32_t n_tokens, n_prefill_tokens;
	uint32_t n_rows, n_prefill_rows, n_tiles, n_logits, n_draws, n_scores;
	cl_int tokens_at, positions_at, token_rows_at, rows_at, tiles_at, logits_at, draws_at;
	cl_int score_rows_at, scores_at; /* [n_scores] each */
	cl_int all_at;			 /* 0, 1, 2, ... n_tokens - 1; only while dumping */
	cl_int work_at; /* the list of a step in one launch; 0: separate launches */
};

/* One layer of one step. */
struct layer_run {
	struct kernels *kernels;
	const cl_mem *all; /* [BUFFERS] */
	const cl_mem *own; /* [AT_LAYER_COUNT] the layer's, by AT_*; NULL where it has none */
	const struct model_step *step;
};

/* A buffer that layers work in, one after the other. Where several kinds use it the largest counts. */
struct layer_scratch {
	int at; /* among those of all layers */
	const char *name;
	uint64_t bytes;
};

enum { LAYER_SCRATCH_MAX = 8 };

struct layer_ops {
	/* Adds what kernels have to know of the kind. */
	void (*shape)(const struct model_config *c, struct kernel_shape *k);
	/* The weights of a layer. */
	void (*weights)(const struct model_config *c, struct layer_weights *ret);
	/* Buffers to work in for T tokens; returns how many. */
	uint32_t (*scratch)(const struct kernels *k, uint32_t T,
			    struct layer_scratch ret[LAYER_SCRATCH_MAX]);
	/* What a layer keeps, with elements of so many bytes; returns how many. NULL: nothing. */
	uint32_t (*pieces)(const struct model_config *c, uint32_t element, uint32_t page_tokens,
			   struct layer_piece ret[LAYER_PIECES_MAX]);
	/* Launches the layer. A mixer reads normed rows (AT_H) and adds to the residual stream (AT_X); an MLP reads the
	 * residual stream, adds to it and norms the rows for the mixer behind it. */
	void (*forward)(const struct layer_run *r);
	/* The same for a decode step in one launch: appends the layer's phases. */
	void (*phases)(struct phase_list *l, uint32_t layer);
	const struct phase_order *order; /* of those phases, ended by OP_END */
	/* What a layer computes besides products with its weights. NULL: nothing. */
	double (*flops)(const struct model_config *c, const struct cost_step *s);
	/* What a launch of one of its own kernels moves and computes. False: it is not one of them. */
	bool (*kernel)(const struct model_config *c, const struct cost_step *s,
		       const struct kernel_timing *l, struct roofline_work *ret);
};

/* Adds what kernels have to know of all kinds that the model has, in the order of enum layer_kind. */
void layers_shape(const struct model_config *c, struct kernel_shape *k);

/* By enum layer_kind: attention.c, delta.c, moe.c, dense.c. */
extern const struct layer_ops *const layer_ops[LAYER_KINDS];
extern const struct layer_ops layer_attention, layer_delta, layer_moe, layer_dense;

#endif
