/*
 * A plan in the form that kernels read: the step table, which is written once a step, and the result, which is read
 * back once. kernels/step.h describes both. Internal to engine/.
 */
#pragma once

#include "engine/model.h"
#include "scheduler/plan.h"

struct step_limits {
	uint32_t max_prefill_tokens, max_seqs, max_model_len, page_tokens;
	/* The most tokens of an attention tile (kernels/step.h) in the step. For step_table_ints it is the smallest of
	 * these numbers over all steps, which gives the most tiles. */
	uint32_t tile_tokens;
	uint32_t n_pages, n_slots, vocab_size; /* n_slots 0: the model keeps no states */
	uint32_t split_slots;		       /* kernels_split_slots */
	uint32_t hidden;		       /* floats of a hidden state, with padding */
	uint32_t window;     /* tokens that layers with a sliding window see; 0: there are none */
	uint32_t ring_pages; /* layer_ring_pages */
};

/* Says which numbers the report of a draw has (kernels/step.h), and so how long it is. */
struct step_draw {
	bool want_logprobs;
	uint8_t n_top;
};

/* The sizes and positions of a filled step table. */
struct step_built {
	struct model_step step;
	uint64_t table_ints;
	uint32_t result_ints; /* ints that the host has to read back, from the first one on */
};

/* Return the most ints of a step table (without a work list, for which model_work_ints has the number), and the most
 * ints of a result. */
uint64_t step_table_ints(const struct step_limits *l);
uint64_t step_result_ints(const struct step_limits *l);

/* Checks a plan. -EINVAL: it is outside the limits, which is a bug of its maker. drawn_before: the number of draws of
 * the plan before. */
int step_check(const struct plan *plan, const struct step_limits *l, uint32_t drawn_before);

/* Fills the table (room for step_table_ints), draws [max_seqs] and batches [max_seqs] from a plan that step_check has
 * accepted. dump: activations will be dumped. The step in *ret borrows the batches. */
void step_build(const struct plan *plan, const struct step_limits *l, bool dump, int32_t *table,
		struct step_draw *draws, struct split_batch *batches, struct step_built *ret);

/* step_reset_ints returns the number of ints of a seat reset's table, step_build_reset fills the table. */
uint64_t step_reset_ints(const struct plan_seat_reset *r);
void step_build_reset(const struct plan_seat_reset *r, int32_t *table);

/* Writes the results of n scores to ret [n]. `result` has the ints that the device returned; `scores` is the section
 * of scores in the step's table, [n][SCORE_INTS]. */
void step_score_results(const int32_t *scores, uint32_t n, const int32_t *result,
			struct draw_result *ret);

/* Writes the results of the draws to ret [n_draws], from the ints that the device returned. */
void step_results(const struct step_draw *draws, uint32_t n_draws, const int32_t *result,
		  struct draw_result *ret);
