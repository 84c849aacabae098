#include "engine/step.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "kernels/groups.h"
#include "kernels/step.h"

static_assert(STATE_ZERO == ROW_STATE_ZERO, "a plan and the step table have one number for it");
static_assert(CHUNK_TOKENS == DELTA_CHUNK, "rows of a plan begin at chunks of Gated DeltaNet");

/* Returns the number of splits (kernels/step.h) of a row with this many keys. */
static uint32_t splits_of(uint32_t keys)
{
	return CEIL_DIV(keys, (uint32_t)SPLIT_TOKENS);
}

uint64_t step_table_ints(const struct step_limits *l)
{
	uint64_t T = (uint64_t)l->max_prefill_tokens + l->max_seqs;
	uint64_t R = l->max_seqs; /* a sequence has one row a step */
	uint64_t pages = CEIL_DIV((uint64_t)l->max_model_len, l->page_tokens) + 1;
	uint64_t tiles = T / l->tile_tokens + R + 1;
	uint64_t splits = l->split_slots ? R * splits_of(l->max_model_len) : 0;
	/* ring rows and their block tables; the copies: to the row's slot twice, and to each snapshot */
	uint64_t rings = l->window ? R * (ROW_INTS + pages +
					  (2 + ROW_SNAPSHOTS_MAX) * COPY_INTS * l->ring_pages)
				   : 0;
	uint64_t step =
		rings + T * 4 + R * (ROW_INTS + pages) + tiles * QUERY_TILE_INTS +
		splits * SPLIT_INTS +
		l->max_seqs * (1ull + DRAW_INTS + PLAN_BANNED_MAX + PLAN_BIASES_MAX * BIAS_INTS +
			       PLAN_MASK_WORDS(l->vocab_size)) +
		l->max_prefill_tokens * (1ull + SCORE_INTS) + R * POOLING_INTS;
	uint64_t reset = RESET_INTS + 2ull * l->max_model_len;

	return MAX(step, reset);
}

uint64_t step_result_ints(const struct step_limits *l)
{
	return RESULT_IDS +
	       ((uint64_t)l->max_seqs + l->max_prefill_tokens) *
		       SCORE_RESULT_INTS(TOP_LOGPROBS_MAX) +
	       (uint64_t)l->max_seqs * l->hidden;
}

/* Returns the ints of a draw's report. */
static uint32_t report_ints(struct step_draw d)
{
	return d.want_logprobs ? REPORT_INTS((uint32_t)d.n_top) : 0;
}

static struct step_draw wanted(const struct sampling *s)
{
	return (struct step_draw){s->want_logprobs,
				  (uint8_t)MIN((int)s->n_logprobs, (int)TOP_LOGPROBS_MAX)};
}

/* ---- checks of a plan ---- */

static bool tokens_exist(const int32_t *tokens, uint32_t n, const struct step_limits *l)
{
	for (uint32_t i = 0; i < n; i++)
		if (tokens[i] < 0 || (uint32_t)tokens[i] >= l->vocab_size)
			return false;
	return true;
}

/* Returns the number of pages that a row reads or writes: those of its tokens and of all tokens before them. The row
 * may list more pages, for later tokens. */
static uint32_t pages_touched(const struct plan_row *r, const struct step_limits *l)
{
	return CEIL_DIV(r->start + r->n_tokens, l->page_tokens);
}

static bool states_exist(const struct plan_row *r, bool prefill, const struct step_limits *l)
{
	uint32_t before = r->start;

	if (r->n_snapshots > (prefill && l->n_slots ? ROW_SNAPSHOTS_MAX : 0))
		return false;
	for (uint32_t i = 0; i < r->n_snapshots; before = r->snapshots[i++].n_tokens)
		if (r->snapshots[i].slot >= l->n_slots || r->snapshots[i].n_tokens % CHUNK_TOKENS ||
		    r->snapshots[i].n_tokens <= before ||
		    r->snapshots[i].n_tokens >= r->start + r->n_tokens)
			return false;
	if (!l->n_slots)
		return true;
	return r->state_dst < l->n_slots &&
	       (r->state_src == STATE_ZERO ||
		(r->state_src >= 0 && (uint32_t)r->state_src < l->n_slots));
}

static bool row_good(const struct plan_row *r, bool prefill, const struct step_limits *l,
		     uint32_t drawn_before)
{
	uint64_t end = (uint64_t)r->start + r->n_tokens;

	if (!r->n_tokens || end > l->max_model_len || end > (uint64_t)r->n_pages * l->page_tokens)
		return false;
	if (prefill ? r->start % CHUNK_TOKENS != 0 : r->n_tokens != 1)
		return false;
	if (r->tokens ? !tokens_exist(r->tokens, r->n_tokens, l)
		      : prefill || r->token_draw >= drawn_before)
		return false;
	for (uint32_t k = 0; k < pages_touched(r, l); k++)
		if (r->pages[k] >= l->n_pages)
			return false;
	return states_exist(r, prefill, l);
}

static bool biases_good(const struct plan_draw *d, const struct step_limits *l)
{
	int32_t before = -1;

	if (d->n_biases > PLAN_BIASES_MAX)
		return false;
	for (uint32_t i = 0; i < d->n_biases; before = d->biases[i++].token)
		if (d->biases[i].token <= before || (uint32_t)d->biases[i].token >= l->vocab_size ||
		    !isfinite(d->biases[i].value))
			return false;
	return true;
}

static bool copies_good(const struct plan_copy *copies, uint32_t n, uint32_t n_ids)
{
	for (uint32_t i = 0; i < n; i++)
		if (copies[i].src >= n_ids || copies[i].dst >= n_ids ||
		    copies[i].src == copies[i].dst)
			return false;
	return true;
}

static bool resets_good(const struct plan *p, const struct step_limits *l)
{
	for (uint32_t i = 0; i < p->n_resets; i++) {
		const struct plan_seat_reset *r = &p->resets[i];

		if (r->seat >= l->max_seqs || r->n_prompt > l->max_model_len ||
		    r->n_generated > l->max_model_len || !tokens_exist(r->prompt, r->n_prompt, l) ||
		    !tokens_exist(r->generated, r->n_generated, l))
			return false;
	}
	return true;
}

/* Checks the plan's scores: they belong to prefill rows, at most one to each, and are in the order of the rows. */
static bool scores_good(const struct plan *p, const struct step_limits *l)
{
	uint64_t tokens = 0;

	if (p->n_scores > p->n_prefill_rows)
		return false;
	for (uint32_t i = 0; i < p->n_scores; i++) {
		const struct plan_score *s = &p->scores[i];

		if (s->row >= p->n_prefill_rows || (i && s->row <= p->scores[i - 1].row) ||
		    s->first > p->rows[s->row].n_tokens ||
		    s->n_tokens > p->rows[s->row].n_tokens - s->first ||
		    s->n_top > TOP_LOGPROBS_MAX || !tokens_exist(s->next, s->n_tokens, l))
			return false;
		tokens += s->n_tokens;
	}
	return tokens == p->n_scored_tokens && tokens <= l->max_prefill_tokens;
}

/* Checks the plan's poolings: they belong to prefill rows, at most one to each, and are in the order of the rows. */
static bool poolings_good(const struct plan *p, const struct step_limits *l)
{
	if (p->n_poolings > p->n_prefill_rows)
		return false;
	for (uint32_t i = 0; i < p->n_poolings; i++) {
		const struct plan_pooling *g = &p->poolings[i];

		if (g->row >= p->n_prefill_rows || (i && g->row <= p->poolings[i - 1].row) ||
		    g->first >= p->rows[g->row].n_tokens || g->seat >= l->max_seqs)
			return false;
	}
	return true;
}

int step_check(const struct plan *p, const struct step_limits *l, uint32_t drawn_before)
{
	uint64_t tokens = 0;

	if (p->n_rows > l->max_seqs || p->n_draws > l->max_seqs || p->n_prefill_rows > p->n_rows)
		return -EINVAL;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		if (!row_good(&p->rows[i], i < p->n_prefill_rows, l, drawn_before))
			return -EINVAL;
		tokens += p->rows[i].n_tokens;
	}
	for (uint32_t i = 0; i < p->n_draws; i++) {
		const struct plan_draw *d = &p->draws[i];

		if (d->row >= p->n_rows || d->seat >= l->max_seqs ||
		    d->n_banned > PLAN_BANNED_MAX || !tokens_exist(d->banned, d->n_banned, l) ||
		    !biases_good(d, l))
			return -EINVAL;
	}
	if (tokens > (uint64_t)l->max_prefill_tokens + l->max_seqs || !resets_good(p, l) ||
	    !scores_good(p, l) || !poolings_good(p, l) ||
	    !copies_good(p->page_copies, p->n_page_copies, l->n_pages) ||
	    !copies_good(p->state_copies, p->n_state_copies, l->n_slots))
		return -EINVAL;
	return 0;
}

/* ---- the table ---- */

/* A table that is being filled, section after section. */
struct builder {
	const struct plan *plan;
	const struct step_limits *limits;
	int32_t *table, *end;
	struct model_step s;
	uint32_t
		result; /* ints of the result that draws, reports, scores and poolings have so far */
};

/* Appends a section of so many ints to the table and returns a pointer to its first int; *ret_at is the position of
 * that int in the table. */
static int32_t *section(struct builder *b, uint64_t ints, cl_int *ret_at)
{
	int32_t *begin = b->end;

	*ret_at = (cl_int)(begin - b->table);
	b->end += ints;
	return begin;
}

static int32_t *row_at(const struct builder *b, uint32_t i)
{
	return b->table + b->s.rows_at + i * ROW_INTS;
}

static void count(struct builder *b)
{
	const struct plan *p = b->plan;

	b->s = (struct model_step){.n_rows = p->n_rows,
				   .n_prefill_rows = p->n_prefill_rows,
				   .n_draws = p->n_draws,
				   .n_scores = p->n_scored_tokens,
				   .scored_logits = p->logits,
				   .n_poolings = p->n_poolings};
	for (uint32_t i = 0; i < p->n_rows; i++) {
		b->s.n_tokens += p->rows[i].n_tokens;
		if (i < p->n_prefill_rows)
			b->s.n_prefill_tokens += p->rows[i].n_tokens;
	}
}

static void build_row(const struct plan_row *r, int32_t first_token, int32_t pages_at,
		      int32_t out[ROW_INTS])
{
	int32_t row[ROW_INTS] = {
		[ROW_TOKEN] = first_token,
		[ROW_COUNT] = (int32_t)r->n_tokens,
		[ROW_START] = (int32_t)r->start,
		[ROW_STATE_SRC] = r->state_src,
		[ROW_STATE_DST] = (int32_t)r->state_dst,
		[ROW_PAGES_AT] = pages_at,
		[ROW_SNAPSHOTS] = (int32_t)r->n_snapshots,
	};

	for (uint32_t i = 0; i < r->n_snapshots; i++) {
		row[ROW_SNAPSHOT_TOKENS(i)] = (int32_t)(r->snapshots[i].n_tokens - r->start);
		row[ROW_SNAPSHOT_SLOT(i)] = (int32_t)r->snapshots[i].slot;
	}
	memcpy(out, row, sizeof(row));
}

/* Writes the tokens, their positions and rows, and the rows with their block tables. */
static void build_rows(struct builder *b)
{
	struct model_step *s = &b->s;
	int32_t *tokens = section(b, s->n_tokens, &s->tokens_at);
	int32_t *positions = section(b, s->n_tokens, &s->positions_at);
	int32_t *token_rows = section(b, s->n_tokens, &s->token_rows_at);
	uint32_t t = 0;

	section(b, (uint64_t)s->n_rows * ROW_INTS, &s->rows_at);
	for (uint32_t i = 0; i < s->n_rows; i++) {
		const struct plan_row *r = &b->plan->rows[i];
		uint32_t n_pages = pages_touched(r, b->limits);
		cl_int pages_at;
		int32_t *pages = section(b, n_pages, &pages_at);

		build_row(r, (int32_t)t, pages_at, row_at(b, i));
		for (uint32_t k = 0; k < n_pages; k++)
			pages[k] = (int32_t)r->pages[k];
		for (uint32_t k = 0; k < r->n_tokens; k++, t++) {
			tokens[t] = r->tokens ? r->tokens[k] : -1 - (int32_t)r->token_draw;
			positions[t] = (int32_t)(r->start + k);
			token_rows[t] = (int32_t)i;
		}
	}
}

static void build_tiles(struct builder *b)
{
	uint32_t most = b->limits->tile_tokens;
	uint32_t n_rows = b->limits->split_slots ? b->s.n_prefill_rows : b->s.n_rows;
	int32_t *tile = section(b, 0, &b->s.tiles_at);

	for (uint32_t i = 0; i < n_rows; i++) {
		uint32_t n = b->plan->rows[i].n_tokens;

		for (uint32_t k = 0; k < n; k += most, b->s.n_tiles++, tile += QUERY_TILE_INTS) {
			tile[QUERY_TILE_ROW] = (int32_t)i;
			tile[QUERY_TILE_TOKEN] = row_at(b, i)[ROW_TOKEN] + (int32_t)k;
			tile[QUERY_TILE_COUNT] = (int32_t)MIN(most, n - k);
		}
	}
	b->end = tile;
}

/* Writes the splits of rows that generate. If split_slots is 0, as on a CPU, there are none. All splits of a row are in
 * one batch, and a batch has at most split_slots splits. */
static void build_splits(struct builder *b, struct split_batch *batches)
{
	uint32_t slots = b->limits->split_slots;
	struct split_batch *batch = batches;

	b->s.batches = batches;
	for (uint32_t i = b->s.n_prefill_rows; i < b->s.n_rows && slots; i++) {
		uint32_t n = splits_of(b->plan->rows[i].start + 1);
		cl_int at;
		int32_t *split = section(b, (uint64_t)n * SPLIT_INTS, &at);

		if (!b->s.n_batches || batch->n_splits + n > slots) {
			batch = &batches[b->s.n_batches++];
			*batch = (struct split_batch){.splits_at = at, .first_row = i};
		}
		row_at(b, i)[ROW_SPLITS_AT] = (int32_t)batch->n_splits;
		batch->n_splits += n;
		batch->n_rows++;
		for (uint32_t k = 0; k < n; k++, split += SPLIT_INTS) {
			split[SPLIT_ROW] = (int32_t)i;
			split[SPLIT_NUMBER] = (int32_t)k;
		}
	}
}

/* ---- rings of pages ----
 *
 * In a layer with a sliding window, page k of a sequence is page k % N of its slot's ring (layers/part.h). A row needs the
 * pages from the first one that its first token sees to that of its last token. The first N of these are in the ring of the
 * slot that the row writes. Those behind, of a long row of a prompt, are in the work space behind all slots: all keys of a
 * row are written before attention reads the first. Rows that generate never need any. A row of a prompt begins at a multiple
 * of CHUNK_TOKENS, so it needs no more than its number of tokens / CHUNK_TOKENS, rounded down.
 *
 * Pages are copied, whole, in three lists:
 *
 *     resumed   to the ring of the slot that the row writes, from that of the slot that it goes on from, before the step
 *     kept      to the ring of a snapshot's slot, the pages that the token behind it sees, after attention
 *     carried   from the work space to the row's ring, the pages that the row's next token sees, after that
 *
 * `carried` comes after `kept`, because it may overwrite pages that a snapshot needs. */

/* Returns the first page that a token at a position sees. */
static uint32_t first_seen(const struct step_limits *l, uint32_t position)
{
	return position >= l->window ? (position - l->window + 1) / l->page_tokens : 0;
}

static int32_t ring_page(const struct step_limits *l, uint32_t slot, uint32_t k)
{
	return (int32_t)(slot * l->ring_pages + k % l->ring_pages);
}

static void copy_page(struct builder *b, struct page_copies *list, int32_t from, int32_t to)
{
	cl_int at;
	int32_t *copy = section(b, COPY_INTS, &at);

	copy[COPY_FROM] = from;
	copy[COPY_TO] = to;
	if (!list->n++)
		list->at = at;
}

/* Returns the end of the pages, counted from the row's first one, that are in the ring. */
static uint32_t ring_end(const struct step_limits *l, const struct plan_row *r)
{
	return first_seen(l, r->start) + l->ring_pages;
}

static void build_ring_rows(struct builder *b)
{
	const struct step_limits *l = b->limits;
	int32_t *row = section(b, (uint64_t)b->s.n_rows * ROW_INTS, &b->s.ring_rows_at);
	int32_t work = (int32_t)(l->n_slots * l->ring_pages);

	for (uint32_t i = 0; i < b->s.n_rows; i++, row += ROW_INTS) {
		const struct plan_row *r = &b->plan->rows[i];
		uint32_t n_pages = pages_touched(r, l), end = ring_end(l, r);
		cl_int pages_at;
		int32_t *pages = section(b, n_pages, &pages_at);

		memcpy(row, row_at(b, i), ROW_INTS * sizeof(*row));
		row[ROW_PAGES_AT] = pages_at;
		/* A kernel may read, and not use, pages before the first one that is seen: these must exist. */
		for (uint32_t k = 0; k < n_pages; k++)
			pages[k] = k < end ? ring_page(l, r->state_dst, k) : work++;
	}
}

static const int32_t *ring_table(const struct builder *b, uint32_t row)
{
	return b->table + b->table[b->s.ring_rows_at + (cl_int)(row * ROW_INTS) + ROW_PAGES_AT];
}

static void build_resumed(struct builder *b, const struct plan_row *r)
{
	const struct step_limits *l = b->limits;
	uint32_t n_before = CEIL_DIV(r->start, l->page_tokens);

	if (r->state_src == STATE_ZERO || (uint32_t)r->state_src == r->state_dst)
		return;
	for (uint32_t k = first_seen(l, r->start); k < n_before; k++)
		copy_page(b, &b->s.resumed, ring_page(l, (uint32_t)r->state_src, k),
			  ring_page(l, r->state_dst, k));
}

static void build_kept(struct builder *b, const struct plan_row *r, const int32_t *pages)
{
	const struct step_limits *l = b->limits;

	for (uint32_t i = 0; i < r->n_snapshots; i++) {
		const struct plan_snapshot *s = &r->snapshots[i];
		uint32_t end = CEIL_DIV(s->n_tokens, l->page_tokens);

		for (uint32_t k = first_seen(l, s->n_tokens); k < end; k++)
			copy_page(b, &b->s.kept, pages[k], ring_page(l, s->slot, k));
	}
}

static void build_carried(struct builder *b, const struct plan_row *r, const int32_t *pages)
{
	const struct step_limits *l = b->limits;
	uint32_t first = first_seen(l, r->start + r->n_tokens), end = pages_touched(r, l);

	for (uint32_t k = MAX(first, ring_end(l, r)); k < end; k++)
		copy_page(b, &b->s.carried, pages[k], ring_page(l, r->state_dst, k));
}

static void build_rings(struct builder *b)
{
	const struct plan_row *rows = b->plan->rows;

	if (!b->limits->window)
		return;
	build_ring_rows(b);
	for (uint32_t i = 0; i < b->s.n_rows; i++)
		build_resumed(b, &rows[i]);
	for (uint32_t i = 0; i < b->s.n_rows; i++)
		build_kept(b, &rows[i], ring_table(b, i));
	for (uint32_t i = 0; i < b->s.n_rows; i++)
		build_carried(b, &rows[i], ring_table(b, i));
}

/* Writes the number of the last token of each row that has draws. Draws are in the order of their rows. Several draws
 * of one row (the choices of a request) share the row's logits. */
static void build_logits(struct builder *b)
{
	const struct plan_draw *draws = b->plan->draws;
	int32_t *logits = section(b, 0, &b->s.logits_at);

	for (uint32_t i = 0; i < b->s.n_draws; i++)
		if (!i || draws[i].row != draws[i - 1].row) {
			const int32_t *row = row_at(b, draws[i].row);

			logits[b->s.n_logits++] = row[ROW_TOKEN] + row[ROW_COUNT] - 1;
		}
	b->end = logits + b->s.n_logits;
}

/* Says where the lists of a draw are in the table. */
struct draw_lists {
	cl_int banned_at, biases_at, mask_at;
};

/* Writes the lists of draw i. Draws one behind the other that have the same mask share it. */
static void build_lists(struct builder *b, uint32_t i, struct draw_lists *lists)
{
	const struct plan_draw *d = &b->plan->draws[i];
	int32_t *banned = section(b, d->n_banned, &lists->banned_at);
	int32_t *bias = section(b, (uint64_t)d->n_biases * BIAS_INTS, &lists->biases_at);
	uint32_t n = PLAN_MASK_WORDS(b->limits->vocab_size);

	for (uint32_t k = 0; k < d->n_banned; k++)
		banned[k] = d->banned[k];
	for (uint32_t k = 0; k < d->n_biases; k++, bias += BIAS_INTS) {
		bias[BIAS_TOKEN] = d->biases[k].token;
		bias[BIAS_VALUE] = (int32_t)float_bits(d->biases[k].value);
	}
	if (!d->allowed)
		lists->mask_at = DRAW_MASK_NONE;
	else if (!i || b->plan->draws[i - 1].allowed != d->allowed)
		memcpy(section(b, n, &lists->mask_at), d->allowed, n * sizeof(*d->allowed));
}

static void build_draw(const struct plan_draw *d, int32_t logits_row,
		       const struct draw_lists *lists, int32_t report_at, int32_t out[DRAW_INTS])
{
	const struct sampling *s = d->sampling;
	const int32_t draw[DRAW_INTS] = {
		[DRAW_LOGITS] = logits_row,
		[DRAW_TEMPERATURE] = (int32_t)float_bits(s->temperature),
		[DRAW_TOP_K] = s->top_k,
		[DRAW_TOP_P] = (int32_t)float_bits(s->top_p),
		[DRAW_MIN_P] = (int32_t)float_bits(s->min_p),
		[DRAW_PRESENCE] = (int32_t)float_bits(s->presence_penalty),
		[DRAW_FREQUENCY] = (int32_t)float_bits(s->frequency_penalty),
		[DRAW_REPETITION] = (int32_t)float_bits(s->repetition_penalty),
		[DRAW_SEED_LOW] = (int32_t)(uint32_t)s->seed,
		[DRAW_SEED_HIGH] = (int32_t)(uint32_t)(s->seed >> 32),
		[DRAW_CHOICE] = (int32_t)d->choice,
		[DRAW_POSITION] = (int32_t)d->position,
		[DRAW_SEAT] = sampling_penalised(s) ? (int32_t)d->seat : -1,
		[DRAW_TOP] = wanted(s).n_top,
		[DRAW_BANNED_AT] = lists->banned_at,
		[DRAW_BANNED_COUNT] = (int32_t)d->n_banned,
		[DRAW_REPORT_AT] = report_at,
		[DRAW_MASK_AT] = lists->mask_at,
		[DRAW_BIASES_AT] = lists->biases_at,
		[DRAW_BIAS_COUNT] = (int32_t)d->n_biases,
	};

	memcpy(out, draw, sizeof(draw));
}

static void build_draws(struct builder *b, struct step_draw *wants)
{
	const struct plan_draw *draws = b->plan->draws;
	int32_t *out = section(b, (uint64_t)b->s.n_draws * DRAW_INTS, &b->s.draws_at);
	struct draw_lists lists = {.mask_at = DRAW_MASK_NONE};
	int32_t logits_row = -1;

	for (uint32_t i = 0; i < b->s.n_draws; i++) {
		const struct plan_draw *d = &draws[i];
		uint32_t report;

		build_lists(b, i, &lists);
		wants[i] = wanted(d->sampling);
		report = report_ints(wants[i]);
		logits_row += !i || d->row != draws[i - 1].row;
		build_draw(d, logits_row, &lists, report ? (int32_t)b->result : 0,
			   out + i * DRAW_INTS);
		b->result += report;
	}
}

static void build_scores(struct builder *b)
{
	int32_t *score_row = section(b, b->s.n_scores, &b->s.score_rows_at);
	int32_t *score = section(b, (uint64_t)b->s.n_scores * SCORE_INTS, &b->s.scores_at);

	for (uint32_t i = 0; i < b->plan->n_scores; i++) {
		const struct plan_score *s = &b->plan->scores[i];
		int32_t first = row_at(b, s->row)[ROW_TOKEN] + (int32_t)s->first;

		for (uint32_t k = 0; k < s->n_tokens; k++, score += SCORE_INTS) {
			*score_row++ = first + (int32_t)k;
			score[SCORE_TOKEN] = s->next[k];
			score[SCORE_TOP] = (int32_t)s->n_top;
			score[SCORE_RESULT_AT] = (int32_t)b->result;
			b->result += SCORE_RESULT_INTS(s->n_top);
		}
	}
}

static void build_poolings(struct builder *b)
{
	int32_t *pooling = section(b, (uint64_t)b->s.n_poolings * POOLING_INTS, &b->s.poolings_at);

	for (uint32_t i = 0; i < b->s.n_poolings; i++, pooling += POOLING_INTS) {
		const struct plan_pooling *g = &b->plan->poolings[i];
		const int32_t *row = row_at(b, g->row);

		pooling[POOLING_TOKEN] = row[ROW_TOKEN] + (int32_t)g->first;
		pooling[POOLING_COUNT] = row[ROW_COUNT] - (int32_t)g->first;
		pooling[POOLING_SEAT] = (int32_t)g->seat;
		pooling[POOLING_BEGINS] = g->begins;
		pooling[POOLING_RESULT_AT] = g->ends ? (int32_t)b->result : -1;
		b->result += g->ends ? b->limits->hidden : 0;
	}
}

void step_build(const struct plan *p, const struct step_limits *l, bool dump, int32_t *table,
		struct step_draw *wants, struct split_batch *batches, struct step_built *ret)
{
	struct builder b = {.plan = p,
			    .limits = l,
			    .table = table,
			    .end = table,
			    .result = RESULT_IDS + p->n_draws};
	int32_t *all;

	count(&b);
	build_rows(&b);
	build_tiles(&b);
	build_splits(&b, batches);
	build_rings(&b);
	build_logits(&b);
	build_draws(&b, wants);
	build_scores(&b);
	build_poolings(&b);
	all = section(&b, dump ? b.s.n_tokens : 0, &b.s.all_at);
	for (uint32_t i = 0; dump && i < b.s.n_tokens; i++)
		all[i] = (int32_t)i;
	*ret = (struct step_built){
		.step = b.s,
		.table_ints = (uint64_t)(b.end - table),
		.result_ints = b.result,
	};
}

uint64_t step_reset_ints(const struct plan_seat_reset *r)
{
	return (uint64_t)RESET_INTS + r->n_prompt + r->n_generated;
}

void step_build_reset(const struct plan_seat_reset *r, int32_t *table)
{
	const int32_t reset[RESET_INTS] = {
		[RESET_SEAT] = (int32_t)r->seat,
		[RESET_PROMPT_AT] = RESET_INTS,
		[RESET_PROMPT_COUNT] = (int32_t)r->n_prompt,
		[RESET_GENERATED_AT] = (int32_t)(RESET_INTS + r->n_prompt),
		[RESET_GENERATED_COUNT] = (int32_t)r->n_generated,
	};

	memcpy(table, reset, sizeof(reset));
	if (r->n_prompt)
		memcpy(table + RESET_INTS, r->prompt, r->n_prompt * sizeof(*table));
	if (r->n_generated)
		memcpy(table + RESET_INTS + r->n_prompt, r->generated,
		       r->n_generated * sizeof(*table));
}

/* ---- the result ---- */

/* Reads a report (kernels/step.h) of a token and the n_top best ones. There are fewer best ones if fewer logits are
 * numbers (not NaN). If the token's log-probability is NaN, logits are not finite, and the draw or score has failed. */
static void read_report(const int32_t *report, uint32_t n_top, struct draw_result *ret)
{
	ret->logprob = bits_float((uint32_t)report[REPORT_LOGPROB]);
	if (isnan(ret->logprob))
		ret->token = -1;
	for (uint32_t k = 0; k < n_top && report[REPORT_TOP_ID(k)] >= 0; k++) {
		ret->top_ids[k] = report[REPORT_TOP_ID(k)];
		ret->top_logprobs[k] = bits_float((uint32_t)report[REPORT_TOP_LOGPROB(k, n_top)]);
		ret->n_top++;
	}
}

void step_score_results(const int32_t *scores, uint32_t n, const int32_t *result,
			struct draw_result *ret)
{
	for (uint32_t i = 0; i < n; i++, scores += SCORE_INTS) {
		const int32_t *score = result + scores[SCORE_RESULT_AT];

		ret[i] = (struct draw_result){.token = scores[SCORE_TOKEN],
					      .rank = (uint32_t)score[SCORE_RANK]};
		read_report(score + SCORE_REPORT, (uint32_t)scores[SCORE_TOP], &ret[i]);
	}
}

void step_results(const struct step_draw *draws, uint32_t n_draws, const int32_t *result,
		  struct draw_result *ret)
{
	const int32_t *ids = result + RESULT_IDS, *report = ids + n_draws;

	for (uint32_t i = 0; i < n_draws; i++) {
		ret[i] = (struct draw_result){.token = ids[i]};
		if (!draws[i].want_logprobs)
			continue;
		read_report(report, draws[i].n_top, &ret[i]);
		report += report_ints(draws[i]);
	}
}
