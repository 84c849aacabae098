/*
 * A model on a device: its weights, its caches, the buffers a step works in, and the forward pass.
 * Inside engine/ only.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "engine/dump.h"
#include "engine/memory_plan.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/pack.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/layer.h"

struct model_layer {
	cl_mem at
		[AT_LAYER_COUNT]; /* by AT_* of kernels/step.h; NULL: the layer has no such buffer */
	struct layer_piece pieces[LAYER_PIECES_MAX]; /* [n_pieces] what it keeps of a sequence */
	uint32_t n_pieces;
};

struct model {
	const struct model_config *config; /* borrowed */
	struct kernels *kernels;	   /* borrowed */
	struct kernel_shape shape;
	struct model_layer *layers; /* [n_layers] */
	cl_mem at
		[BUFFERS]; /* of all layers: weights of the model's ends, and what a step works in, for max_tokens rows */
	bool decode_step; /* a step without prefill is one launch (engine/decode_work.h) */
	cl_mem addresses; /* for it: AT_* of kernels/step.h, ulong */
	uint32_t max_tokens, max_rows, n_pages, n_slots;
	uint64_t may_save; /* bytes of the planned weights that coding may save, at most */
	uint64_t step_ints, result_ints;
	struct dump *dump; /* borrowed, NULL: off */
	/* Called by model_forward behind the commands of each layer, unless the step is one launch; NULL: nobody. */
	void (*on_layer)(void *user, uint32_t layer);
	void *on_layer_user;
};

/* The kernels' view of a config. */
void model_shape(const struct model_config *c, bool bf16, uint32_t page_tokens, bool dump,
		 struct kernel_shape *ret);

/* Announces every buffer but the KV pages and state slots; then those, to a plan that may be another. */
int model_plan(struct model *m, struct memory_plan *plan, struct err *e) MUST_CHECK;
void model_plan_cache(struct model *m, struct memory_plan *plan, uint32_t n_pages,
		      uint32_t n_slots);

/* Bytes of one KV page (or of one state slot), over all layers, and of its largest piece. */
uint64_t model_item_bytes(const struct model *m, enum tier_kind kind);
uint64_t model_piece_most(const struct model *m, enum tier_kind kind);

/* Fills the weights (the plan is allocated). */
void model_pack(struct model *m, struct packer *p);

/* Writes down where the buffers are (the plan is allocated, the weights may not be there yet). */
void model_addresses(struct model *m);

/* Adds to a step table that was built, of *table_ints ints, what makes the step one launch, if it can be. */
void model_add_work(const struct model *m, int32_t *table, struct model_step *s,
		    uint64_t *table_ints);

/* Ints that this takes at most. */
uint64_t model_work_ints(const struct model *m);

/* Launches one forward pass and its draws and scores: afterwards scratch.result is on its way, and
 * scratch.logits [n_logits, LD(vocab)]. */
void model_forward(struct model *m, const struct model_step *s);

#endif
