/* engine/step.c: attention's work in the step table, as tiles and as splits; draws and scores that failed. */
#include <errno.h>
#include <math.h>

#include "engine/step.h"
#include "kernels/step.h"
#include "tests/tap.h"

enum { PAGE = 64, MAX_SEQS = 8, CONTEXT = 1024 };

static const uint32_t pages[CONTEXT / PAGE] = {3};
static const int32_t tokens[100] = {1};

static int32_t table[1 << 15];
static struct step_draw draws[MAX_SEQS];
static struct split_batch batches[MAX_SEQS];

static struct plan_row row_of(uint32_t start, uint32_t n)
{
	return (struct plan_row){.tokens = tokens,
				 .pages = pages,
				 .n_pages = CONTEXT / PAGE,
				 .start = start,
				 .n_tokens = n};
}

/* Builds the table of a step: a prompt's window of 70 tokens, and rows that generate with 1, 128, 129, 600 and 200
 * keys. */
static struct step_built build(uint32_t split_slots)
{
	static struct plan_row rows[6];
	const struct step_limits l = {.max_prefill_tokens = 128,
				      .max_seqs = MAX_SEQS,
				      .max_model_len = CONTEXT,
				      .page_tokens = PAGE,
				      .tile_tokens = 8,
				      .n_pages = 4,
				      .vocab_size = 16,
				      .split_slots = split_slots};
	const struct plan plan = {.rows = rows,
				  .n_rows = 6,
				  .n_prefill_rows = 1,
				  .n_prefill_tokens = 70};
	const uint32_t keys[] = {1, 128, 129, 600, 200};
	struct step_built b;

	rows[0] = row_of(0, 70);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		rows[1 + i] = row_of(keys[i] - 1, 1);
	check(step_table_ints(&l) <= ARRAY_SIZE(table) && step_check(&plan, &l, 0) == 0);
	step_build(&plan, &l, false, table, draws, batches, &b);
	check(b.table_ints <= step_table_ints(&l));
	return b;
}

static bool is_batch(const struct split_batch *b, uint32_t first_row, uint32_t n_rows,
		     uint32_t n_splits)
{
	return b->first_row == first_row && b->n_rows == n_rows && b->n_splits == n_splits;
}

/* A draw or score whose report has NaN as its log-probability has failed. Its token is -1. */
TEST(failed)
{
	const struct step_draw wants[2] = {{.want_logprobs = true}, {.want_logprobs = true}};
	const int32_t drawn[RESULT_IDS + 2 + 2 * REPORT_INTS(0)] = {
		[RESULT_IDS] = 5,
		[RESULT_IDS + 1] = 6,
		[RESULT_IDS + 2 + REPORT_INTS(0) + REPORT_LOGPROB] = 0x7fc00000};
	const int32_t scores[2 * SCORE_INTS] = {[SCORE_TOKEN] = 7,
						[SCORE_INTS + SCORE_TOKEN] = 8,
						[SCORE_INTS + SCORE_RESULT_AT] =
							SCORE_RESULT_INTS(0)};
	int32_t scored[2 * SCORE_RESULT_INTS(0)] = {0};
	struct draw_result results[2];

	step_results(wants, 2, drawn, results);
	ok(results[0].token == 5 && results[1].token == -1, "a draw");
	scored[SCORE_RESULT_INTS(0) + SCORE_REPORT + REPORT_LOGPROB] = (int32_t)0xffc00000;
	step_score_results(scores, 2, scored, results);
	ok(results[0].token == 7 && results[1].token == -1, "a score");
}

/* The last tokens of a row, behind a row of others; a sum that goes on is no result. */
TEST(poolings)
{
	const struct step_limits l = {.max_prefill_tokens = 128,
				      .max_seqs = MAX_SEQS,
				      .max_model_len = CONTEXT,
				      .page_tokens = PAGE,
				      .tile_tokens = 8,
				      .n_pages = 4,
				      .vocab_size = 16,
				      .hidden = 32};
	struct plan_row rows[3];
	const struct plan_pooling poolings[] = {{.row = 1, .first = 15, .seat = 1, .ends = true},
						{.row = 2, .seat = 2, .begins = true}};
	const struct plan plan = {.rows = rows,
				  .poolings = poolings,
				  .n_rows = 3,
				  .n_prefill_rows = 3,
				  .n_poolings = 2};
	struct step_built b;
	const int32_t *at;

	for (uint32_t i = 0; i < 3; i++)
		rows[i] = (struct plan_row){.tokens = tokens,
					    .pages = pages,
					    .n_tokens = 20,
					    .n_pages = 1,
					    .state_src = STATE_ZERO};
	check(step_check(&plan, &l, 0) == 0);
	step_build(&plan, &l, false, table, draws, batches, &b);
	at = table + b.step.poolings_at;
	ok(b.step.n_poolings == 2 && at[POOLING_TOKEN] == 35 && at[POOLING_COUNT] == 5 &&
		   at[POOLING_SEAT] == 1 && !at[POOLING_BEGINS] &&
		   at[POOLING_RESULT_AT] == RESULT_IDS,
	   "a sum that ends");
	at += POOLING_INTS;
	ok(at[POOLING_TOKEN] == 40 && at[POOLING_COUNT] == 20 && at[POOLING_SEAT] == 2 &&
		   at[POOLING_BEGINS] && at[POOLING_RESULT_AT] == -1,
	   "one that begins");
	is_int(b.result_ints, RESULT_IDS + 32, "the result has the first alone");
}

/* The lists of draws: biases, and masks, which draws one behind the other share if they are the same. */
TEST(lists)
{
	static const uint32_t masks[2][1] = {{0x8001}, {0x00f0}};
	const struct plan_bias biases[] = {{.token = 3, .value = -1.5f}, {.token = 15, .value = 2}};
	struct sampling sampling = {.repetition_penalty = 1};
	const struct plan_draw d[4] = {
		{.sampling = &sampling, .allowed = masks[0], .biases = biases, .n_biases = 2},
		{.sampling = &sampling, .allowed = masks[0]},
		{.sampling = &sampling},
		{.sampling = &sampling, .allowed = masks[1]}};
	struct plan_bias wrong[] = {{.token = 3}, {.token = 3}};
	const struct step_limits l = {.max_prefill_tokens = 128,
				      .max_seqs = MAX_SEQS,
				      .max_model_len = CONTEXT,
				      .page_tokens = PAGE,
				      .tile_tokens = 8,
				      .n_pages = 4,
				      .vocab_size = 16};
	struct plan_row row = row_of(0, 1);
	struct plan_draw bad = {.sampling = &sampling, .biases = wrong, .n_biases = 2};
	struct plan plan = {.rows = &row, .n_rows = 1, .draws = d, .n_draws = 4};
	struct step_built b;
	const int32_t *at[4], *bias;

	check(step_check(&plan, &l, 0) == 0);
	step_build(&plan, &l, false, table, draws, batches, &b);
	for (int i = 0; i < 4; i++)
		at[i] = table + b.step.draws_at + i * DRAW_INTS;
	bias = table + at[0][DRAW_BIASES_AT];
	ok(at[0][DRAW_BIAS_COUNT] == 2 && !at[1][DRAW_BIAS_COUNT] && bias[BIAS_TOKEN] == 3 &&
		   bias[BIAS_VALUE] == (int32_t)0xbfc00000 && bias[BIAS_INTS + BIAS_TOKEN] == 15,
	   "biases");
	ok(table[at[0][DRAW_MASK_AT]] == 0x8001 && at[1][DRAW_MASK_AT] == at[0][DRAW_MASK_AT] &&
		   at[2][DRAW_MASK_AT] == DRAW_MASK_NONE && table[at[3][DRAW_MASK_AT]] == 0xf0,
	   "masks");
	is_int((long long)(b.table_ints - (uint64_t)(b.step.draws_at + 4 * DRAW_INTS)),
	       2 * BIAS_INTS + 2, "and nothing else");
	plan.draws = &bad;
	plan.n_draws = 1;
	check(step_check(&plan, &l, 0) == -EINVAL);
	wrong[1].token = 16;
	check(step_check(&plan, &l, 0) == -EINVAL);
	wrong[1] = (struct plan_bias){.token = 4, .value = NAN};
	check(step_check(&plan, &l, 0) == -EINVAL);
	wrong[1].value = 0;
	check(step_check(&plan, &l, 0) == 0);
	ok_all("biases that do not rise, are of no token or not finite are refused");
}

TEST(without_splits)
{
	struct step_built b = build(0);

	is_int(b.step.n_tiles, 9 + 5, "on a CPU rows that generate are tiles");
	is_int(b.step.n_batches, 0, "and there are no splits");
}

TEST(splits)
{
	struct step_built b = build(5);
	const uint32_t splits_of_row[] = {1, 1, 2, 5, 2}, first_slot[] = {0, 1, 2, 0, 0};
	const struct split_batch *batch = b.step.batches;

	is_int(b.step.n_tiles, 9, "on a GPU only prompts are tiles");
	ok(b.step.n_batches == 3 && is_batch(batch, 1, 3, 4) && is_batch(batch + 1, 4, 1, 5) &&
		   is_batch(batch + 2, 5, 1, 2),
	   "a batch has at most 5 splits, and all of a row");
	for (uint32_t r = 0; r < 5; r++) {
		const int32_t *row = table + b.step.rows_at + (r + 1) * ROW_INTS, *split;

		while (batch->first_row + batch->n_rows <= r + 1)
			batch++;
		split = table + batch->splits_at + first_slot[r] * SPLIT_INTS;
		check(row[ROW_SPLITS_AT] == (int32_t)first_slot[r]);
		for (uint32_t i = 0; i < splits_of_row[r]; i++, split += SPLIT_INTS)
			check(split[SPLIT_ROW] == (int32_t)r + 1 &&
			      split[SPLIT_NUMBER] == (int32_t)i);
	}
	ok_all("a row's splits stand in order, at the number that the row names");
}

TEST_MAIN()
