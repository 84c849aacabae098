/* A model on a device: its weights, KV pages and state slots, the buffers in which a step works, and the forward pass.
 * Internal to engine/. */
#pragma once

#include "engine/dump.h"
#include "engine/memory_plan.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/pack.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/layer.h"

struct model_layer {
	/* The layer's buffers by AT_* of kernels/step.h; NULL: it has no buffer of this number. */
	cl_mem at[AT_LAYER_COUNT];
	struct layer_part parts[LAYER_PARTS_MAX]; /* [n_parts] */
	uint32_t n_parts;
};

struct model {
	const struct model_config *config; /* borrowed */
	struct kernels *kernels;	   /* borrowed */
	const struct weights *weights;	   /* borrowed until they are packed */
	struct kernel_shape shape;
	struct model_layer *layers; /* [n_layers] */
	/* Buffers that all layers share, by AT_* of kernels/step.h or BUFFER_* of engine/layers/layer.h: the weights
	 * outside all layers (embedding, final norm, head), the frequencies of RoPE, and work space. */
	cl_mem at[BUFFERS];
	bool decode_step; /* a step without prefill can be one launch (engine/decode_work.h) */
	/* for that launch: the addresses of its buffers on the device (kernels/step.h) */
	cl_mem addresses;
	uint32_t max_tokens, max_rows; /* the most tokens and rows of a step */
	uint32_t n_pages, n_slots;
	uint64_t may_save; /* bytes of the planned weights that kernels/coded.h may save at most */
	uint64_t step_ints, result_ints;
	struct dump *dump; /* borrowed, NULL: off */
	struct importance *
		importance; /* borrowed: gets the inputs of products (engine/layers/inputs.h); NULL: off */
	/* model_forward calls on_layer when it has queued the commands of a layer, for each layer, unless the step is
	 * one launch. NULL: no call. */
	void (*on_layer)(void *user, uint32_t layer);
	void *on_layer_user;
};

/* Makes the kernels' shape from the configuration and some options. The caller adds max_context, plain_weights,
 * separate_launches and unoptimised. */
void model_shape(const struct model_config *c, bool bf16, uint32_t page_tokens, bool dump,
		 struct kernel_shape *ret);

/* model_plan announces every buffer to a plan (memory_plan.h), except those of KV pages and state slots; -ENOMEM.
 * model_plan_cache announces the buffers of pages and slots; its plan may be another one. */
int model_plan(struct model *m, struct memory_plan *plan, struct err *e) MUST_CHECK;
void model_plan_cache(struct model *m, struct memory_plan *plan, uint32_t n_pages,
		      uint32_t n_slots);

/* model_item_bytes returns the bytes of one KV page, or of one state slot, over all layers. model_piece_most returns
 * the bytes of the largest piece of a page or a slot. */
uint64_t model_item_bytes(const struct model *m, enum tier_kind kind);
uint64_t model_piece_most(const struct model *m, enum tier_kind kind);

/* Returns the bytes of work space in the buffers of pages and slots, behind these. *ret_most: the most bytes in one
 * buffer. */
uint64_t model_cache_work(const struct model *m, uint64_t *ret_most);

/* Fills the buffers of all weights, which must be allocated. Errors are kept in p->error. */
void model_pack(struct model *m, struct packer *p);

/* Gives each layer the norm that follows it (AT_NEXT_NORM): the input norm of the next layer, or the final norm. For
 * steps in one launch it also writes m->addresses. All planned buffers must be allocated. */
void model_addresses(struct model *m);

/* If the step can be one launch, appends the work list to the step table, which has *table_ints ints, raises
 * *table_ints and sets s->work_at. Otherwise s->work_at becomes 0. */
void model_add_work(const struct model *m, int32_t *table, struct model_step *s,
		    uint64_t *table_ints);

/* Returns the most ints that model_add_work appends; 0: no step can be one launch. */
uint64_t model_work_ints(const struct model *m);

/* Queues one forward pass, then its poolings, scores and draws, which write their results to the buffer AT_RESULT. When
 * the embedding runs, that buffer still has the results of the step before, and the embedding reads the tokens there
 * that were drawn in that step. */
void model_forward(struct model *m, const struct model_step *s);
