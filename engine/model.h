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
#include "kernels/kernels.h"

struct model_layer {
	cl_mem input_norm, post_norm; /* [D] float, 1 + w */
	cl_mem in_proj; /* packed: q k v z b a of a delta layer; q+gate, k, v of an attention layer */
	cl_mem out_proj; /* packed */
	/* Gated DeltaNet */
	cl_mem conv, neg_a, dt_bias, norm; /* float: taps [CONV, CHANNELS], [Hv], [Hv], [dv] */
	cl_mem ring, state;		   /* [slots, CONV, CHANNELS], [slots, Hv, dk, dv] float */
	/* full attention */
	cl_mem q_norm, k_norm;	 /* [hd] float, 1 + w */
	cl_mem k_pages, v_pages; /* [pages, G, hd, PAGE], [pages, G, PAGE, hd] elements */
	/* MLP */
	uint32_t mlp;  /* index into the kernels' shapes */
	cl_mem router; /* packed float: E rows, then the shared expert's gate */
	cl_mem experts_gate_up, experts_down, shared_gate_up, shared_down; /* packed */
};

/* What a step works in; sized for max_tokens rows (model.c says each shape). */
struct model_scratch {
	cl_mem step, x, h, h32, rope, proj, mixed;
	cl_mem q;					      /* attention */
	cl_mem qs, ks, vs, gates, delta_work;		      /* delta prefill */
	cl_mem router, experts, weights, rows, tasks, act, y; /* MLP */
	cl_mem logits, work, counts, result;		      /* sampling */
	cl_mem dump;
};

struct model {
	const struct model_config *config; /* borrowed */
	struct kernels *kernels;	   /* borrowed */
	struct kernel_shape shape;
	struct model_layer *layers; /* [n_layers] */
	cl_mem embed, inv_freq, final_norm, lm_head;
	struct model_scratch s;
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

/* What one step runs, as offsets into the step table (engine/step.c). */
struct model_step {
	uint32_t n_tokens, n_prefill_tokens;
	uint32_t n_rows, n_prefill_rows, n_tiles, n_logits, n_draws, n_scores;
	cl_int tokens_at, positions_at, token_rows_at, rows_at, tiles_at, logits_at, draws_at;
	cl_int score_rows_at, scores_at; /* [n_scores] each */
	cl_int all_at;			 /* 0, 1, 2, ... n_tokens - 1; only while dumping */
	cl_int work_at; /* the list of a step in one launch; 0: separate launches */
};

/* The kernels' view of a config. */
void model_shape(const struct model_config *c, bool bf16, uint32_t page_tokens, bool dump,
		 struct kernel_shape *ret);

/* Announces every buffer but the KV pages and state slots; then those, to a plan that may be another. */
int model_plan(struct model *m, struct memory_plan *plan, struct err *e) MUST_CHECK;
void model_plan_cache(struct model *m, struct memory_plan *plan, uint32_t n_pages,
		      uint32_t n_slots);

/* Bytes of one KV page in k_pages (v_pages has as many), of one slot in ring, and in state. */
uint64_t model_page_part(const struct model *m);
uint64_t model_ring_part(const struct model *m);
uint64_t model_state_part(const struct model *m);

/* Bytes of one KV page, and of one slot, over all layers. */
uint64_t model_page_bytes(const struct model *m);
uint64_t model_slot_bytes(const struct model *m);

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
