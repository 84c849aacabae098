/*
 * A plan as the device sees it: the step table, which is written once a step, and the result, which is read back once.
 * kernels/step.h draws both. Inside engine/ only.
 */
#pragma once

#include "engine/model.h"
#include "scheduler/plan.h"

struct step_limits {
	uint32_t max_prefill_tokens, max_seqs, max_model_len, page_tokens, tile_tokens;
	uint32_t n_pages, n_slots, vocab_size; /* n_slots 0: the model keeps no states */
	uint32_t split_slots;		       /* kernels_split_slots */
};

/* The form of a draw's report, which decides its length. */
struct step_draw {
	bool want_logprobs;
	uint8_t n_top;
};

/* A filled step table. */
struct step_built {
	struct model_step step;
	uint64_t table_ints;
	uint32_t result_ints; /* ints that the host has to read back */
};

/* Ints that the largest step table, and the largest result, can take. */
uint64_t step_table_ints(const struct step_limits *l);
uint64_t step_result_ints(const struct step_limits *l);

/* Checks a plan. 0, or -EINVAL: it is outside the limits, which is a bug. drawn_before: draws of the plan before. */
int step_check(const struct plan *plan, const struct step_limits *l, uint32_t drawn_before);

/* Fills the table (room for step_table_ints), draws [max_seqs] and batches [max_seqs] from a plan that step_check has accepted.
 * *ret points to the batches. */
void step_build(const struct plan *plan, const struct step_limits *l, bool dump, int32_t *table,
		struct step_draw *draws, struct split_batch *batches, struct step_built *ret);

/* Returns the number of ints of a seat reset's table; the second function fills it. */
uint64_t step_reset_ints(const struct plan_seat_reset *r);
void step_build_reset(const struct plan_seat_reset *r, int32_t *table);

/* Reads the results of n scores out of the result; scores [n][SCORE_INTS] are as in the table. */
void step_score_results(const int32_t *scores, uint32_t n, const int32_t *result,
			struct draw_result *ret);

/* Reads the draws' results out of the result. */
void step_results(const struct step_draw *draws, uint32_t n_draws, const int32_t *result,
		  struct draw_result *ret);
