/* engine/step.c: attention's work in the step table, as tiles and as splits; the rings of layers with a sliding window;
 * draws and scores that failed. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/step.h"
#include "kernels/step.h"
#include "tests/random.h"
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

/* ---- rings ---- */

/* A naive model of a layer with a sliding window: a token of some sequence, or 0, at each place of each page of the layer's
 * buffers, the work space among them. */
enum {
	RING_SLOTS = 12,
	RING_SEQS = 4,
	RING_CONTEXT = 2048,
	RING_PREFILL = 448,
	RING_PAGES_MAX = 4096,
	RING_PAGE_MAX = 256,
};
static int32_t held[RING_PAGES_MAX][RING_PAGE_MAX];

/* The tokens in front of a sequence, and the slot with its state. A sequence that begins again has other tokens. */
static struct ring_seq {
	uint32_t n, slot;
	int32_t first;
} seqs[RING_SEQS], states[RING_SLOTS];

static int32_t ring_table[1 << 17];
static int32_t next_first;

static struct ring_seq new_seq(uint32_t slot)
{
	next_first += RING_CONTEXT;
	return (struct ring_seq){.slot = slot, .first = next_first};
}

/* Makes the copies of a list. Returns whether none of them writes a page that another one reads or writes. */
static bool make_copies(const struct page_copies *l, uint32_t n_pages)
{
	const int32_t *copy = ring_table + l->at;

	for (uint32_t i = 0; i < l->n; i++, copy += COPY_INTS) {
		const int32_t *other = ring_table + l->at;

		if (copy[COPY_FROM] < 0 || (uint32_t)copy[COPY_FROM] >= n_pages ||
		    copy[COPY_TO] < 0 || (uint32_t)copy[COPY_TO] >= n_pages)
			return false;
		for (uint32_t k = 0; k < l->n; k++, other += COPY_INTS)
			if (copy[COPY_TO] == other[COPY_FROM] ||
			    (k != i && copy[COPY_TO] == other[COPY_TO]))
				return false;
	}
	copy = ring_table + l->at;
	for (uint32_t i = 0; i < l->n; i++, copy += COPY_INTS)
		memcpy(held[copy[COPY_TO]], held[copy[COPY_FROM]], sizeof(*held));
	return true;
}

static const int32_t *table_of(const struct step_built *b, uint32_t row)
{
	const int32_t *r = ring_table + b->step.ring_rows_at + row * ROW_INTS;

	return ring_table + r[ROW_PAGES_AT];
}

/* Writes the row's tokens, as attention_prepare does. */
static bool write_row(const struct plan_row *r, const struct ring_seq *q, const int32_t *at,
		      uint32_t page, uint32_t n_pages)
{
	for (uint32_t p = r->start; p < r->start + r->n_tokens; p++) {
		if (at[p / page] < 0 || (uint32_t)at[p / page] >= n_pages)
			return false;
		held[at[p / page]][p % page] = q->first + (int32_t)p;
	}
	return true;
}

/* Returns whether each of the row's tokens finds the keys of its window. */
static bool sees(const struct plan_row *r, const struct ring_seq *q, const int32_t *at,
		 const struct step_limits *l)
{
	for (uint32_t p = r->start; p < r->start + r->n_tokens; p++)
		for (uint32_t k = p >= l->window ? p - l->window + 1 : 0; k <= p; k++)
			if (held[at[k / l->page_tokens]][k % l->page_tokens] !=
			    q->first + (int32_t)k)
				return false;
	return true;
}

/* Returns a slot that no sequence and no snapshot of this step has, and takes it. */
static uint32_t free_slot(bool taken[RING_SLOTS])
{
	uint32_t slot;

	do
		slot = random_below(RING_SLOTS);
	while (taken[slot]);
	taken[slot] = true;
	return slot;
}

/* Makes a row of the sequence, which goes on in its slot or in another one. Prompts have snapshots. */
static struct plan_row random_row(struct ring_seq *q, uint32_t most, bool prefill, bool *taken)
{
	static const int32_t ids[RING_PREFILL];
	static const uint32_t none[RING_CONTEXT / PAGE];
	struct plan_row r = {.tokens = ids,
			     .pages = none,
			     .n_pages = RING_CONTEXT / PAGE,
			     .start = q->n,
			     .n_tokens = prefill ? 1 + random_below(most) : 1,
			     .state_src = q->n ? (int32_t)q->slot : STATE_ZERO,
			     .decode = !prefill};

	if (random_below(3) == 0)
		q->slot = free_slot(taken);
	r.state_dst = q->slot;
	for (uint32_t n = r.start + CHUNK_TOKENS; n < r.start + r.n_tokens && prefill;
	     n += CHUNK_TOKENS)
		if (r.n_snapshots < 2 && random_below(3) == 0)
			r.snapshots[r.n_snapshots++] = (struct plan_snapshot){n, free_slot(taken)};
	return r;
}

/* Plans and runs one step of some sequences, prompts first. */
static void ring_step(const struct step_limits *l)
{
	uint32_t n_pages =
		RING_SLOTS * l->ring_pages + (l->max_prefill_tokens + l->max_seqs) / CHUNK_TOKENS;
	uint32_t left = RING_PREFILL, order[RING_SEQS], n = 0;
	bool taken[RING_SLOTS] = {false};
	struct plan_row rows[RING_SEQS];
	struct plan plan = {.rows = rows};
	struct step_built b;

	for (uint32_t i = 0; i < RING_SEQS; i++)
		taken[seqs[i].slot] = true;
	for (int decode = 0; decode < 2; decode++)
		for (uint32_t i = 0; i < RING_SEQS; i++) {
			struct ring_seq *q = &seqs[i];
			bool prefill = q->n % CHUNK_TOKENS == 0 && (i % 2 || !q->n);

			if (prefill == decode || (prefill && !left))
				continue;
			rows[n] = random_row(q, left, prefill, taken);
			left -= prefill ? rows[n].n_tokens : 0;
			plan.n_prefill_rows += prefill;
			order[n++] = i;
		}
	plan.n_rows = n;
	check(step_check(&plan, l, 0) == 0);
	step_build(&plan, l, false, ring_table, draws, batches, &b);
	check(b.table_ints <= step_table_ints(l) && step_table_ints(l) <= ARRAY_SIZE(ring_table));
	check(make_copies(&b.step.resumed, n_pages));
	for (uint32_t i = 0; i < n; i++)
		check(write_row(&rows[i], &seqs[order[i]], table_of(&b, i), l->page_tokens,
				n_pages));
	for (uint32_t i = 0; i < n; i++)
		check(sees(&rows[i], &seqs[order[i]], table_of(&b, i), l));
	check(make_copies(&b.step.kept, n_pages));
	check(make_copies(&b.step.carried, n_pages));
	for (uint32_t i = 0; i < n; i++) {
		struct ring_seq *q = &seqs[order[i]];

		for (uint32_t k = 0; k < rows[i].n_snapshots; k++) {
			const struct plan_snapshot *s = &rows[i].snapshots[k];

			states[s->slot] = (struct ring_seq){s->n_tokens, s->slot, q->first};
		}
		q->n += rows[i].n_tokens;
		states[q->slot] = *q;
	}
}

/* Now and then sequences end, or go on from a state that was kept. */
static void change_seqs(void)
{
	for (uint32_t i = 0; i < RING_SEQS; i++) {
		struct ring_seq *q = &seqs[i];
		uint32_t other = random_below(RING_SLOTS);
		bool used = false;

		for (uint32_t k = 0; k < RING_SEQS; k++)
			used |= seqs[k].slot == other;
		if (q->n + RING_PREFILL > RING_CONTEXT || random_below(20) == 0)
			*q = new_seq(q->slot);
		if (!used && random_below(4) == 0 && states[other].n &&
		    states[other].n + RING_PREFILL <= RING_CONTEXT) {
			*q = states[other];
			/* The sequence goes on with tokens of its own, in this slot. Nothing else has the state. */
			states[other].n = 0;
		}
	}
}

/* Sequences whose prompts are cut anywhere, that go on in other slots, and resume from snapshots: with rings of pages each
 * token finds the keys of its window. */
TEST(rings)
{
	static const struct {
		uint32_t window, page;
	} sizes[] = {{1, 64},	 {2, 64},    {40, 64},	 {64, 64},   {65, 64},	{66, 64},
		     {200, 64},	 {512, 64},  {1, 128},	 {63, 128},  {65, 128}, {128, 128},
		     {130, 128}, {200, 192}, {512, 128}, {300, 256}, {3000, 64}};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct step_limits l = {.max_prefill_tokens = RING_PREFILL,
					      .max_seqs = RING_SEQS,
					      .max_model_len = RING_CONTEXT,
					      .page_tokens = sizes[i].page,
					      .tile_tokens = 8,
					      .n_pages = 4,
					      .n_slots = RING_SLOTS,
					      .vocab_size = 16,
					      .window = sizes[i].window,
					      .ring_pages =
						      CEIL_DIV(sizes[i].window, sizes[i].page) + 1};

		check(RING_SLOTS * l.ring_pages + RING_PREFILL / CHUNK_TOKENS <= RING_PAGES_MAX);
		memset(held, 0, sizeof(held));
		memset(states, 0, sizeof(states));
		for (uint32_t k = 0; k < RING_SEQS; k++)
			seqs[k] = new_seq(k);
		for (int step = 0; step < 300; step++) {
			ring_step(&l);
			change_seqs();
		}
		ok_all("a window of %u tokens, pages of %u", sizes[i].window, sizes[i].page);
	}
}

TEST_MAIN()
