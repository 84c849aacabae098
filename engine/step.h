/*
 * A plan as the device sees it: the step table, one array of ints that is written once a step, and the
 * results that are read back once. Inside engine/ only.
 *
 *     tokens [T] | positions [T] | token_rows [T] | rows [R, 16] | block tables | tiles [n, 3] | logits [L]
 *     | draws [n, 17] | banned ids | score rows [S] | scores [S, 3] | (dump: 0 .. T-1)
 *
 * T tokens of all rows, prefill rows first; token_rows[t] is the row of token t. A token that the step before draws
 * is -1 - d, d its draw there: the device looks it up. S are the tokens whose likelihood is asked for: the token
 * (of this step) with the logits, and the one that came. The result is ids [n] | what draws report | what scores
 * report. A seat reset goes through the same buffer before,
 * alone: [seat, prompt at, n, generated at, n] prompt | generated.
 */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include "engine/model.h"
#include "scheduler/plan.h"

struct step_limits {
	uint32_t max_prefill_tokens, max_seqs, max_model_len, page_tokens, tile_tokens;
	uint32_t n_pages, n_slots, vocab_size; /* n_slots 0: states are nobody's business */
};

/* What has to be known of a draw to read its result. */
struct step_draw {
	bool want_logprobs;
	uint8_t n_top;
};

/* A plan as it was built. */
struct step_built {
	struct model_step step;
	uint64_t table_ints;
	uint32_t result_ints; /* that the host has to read back */
};

/* Ints that the largest step table, and the largest result, can take. */
uint64_t step_table_ints(const struct step_limits *l);
uint64_t step_result_ints(const struct step_limits *l);

/* 0, or -EINVAL: a plan outside the limits, which is a bug. drawn_before: draws of the plan before. */
int step_check(const struct plan *plan, const struct step_limits *l, uint32_t drawn_before);

/* Fills the table (room for step_table_ints) from a plan that was checked, and what will be needed of its draws
 * [max_seqs]. */
void step_build(const struct plan *plan, const struct step_limits *l, bool dump, int32_t *table,
		struct step_draw *draws, struct step_built *ret);

/* Length of a seat reset's table, and the table. */
uint64_t step_reset_ints(const struct plan_seat_reset *r);
void step_build_reset(const struct plan_seat_reset *r, int32_t *table);

/* The scored tokens' results, out of their part of the table and what was read back. */
void step_score_results(const int32_t *scores, uint32_t n, const int32_t *result,
			struct draw_result *ret);

/* The draws' results out of what was read back. */
void step_results(const struct step_draw *draws, uint32_t n_draws, const int32_t *result,
		  struct draw_result *ret);

#endif
