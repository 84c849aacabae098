#include "engine/step.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"

uint64_t step_table_ints(const struct step_limits *l)
{
	uint64_t T = (uint64_t)l->max_prefill_tokens + l->max_seqs;
	uint64_t R = l->max_seqs; /* a sequence has one row a step */
	uint64_t pages = CEIL_DIV((uint64_t)l->max_model_len, l->page_tokens) + 1;
	uint64_t step = T * 4 + R * (KERNEL_ROW_INTS + pages) + (T / l->tile_tokens + R + 1) * 3 +
			l->max_seqs * (1ull + KERNEL_DRAW_INTS + PLAN_BANNED_MAX) +
			l->max_prefill_tokens * (1ull + KERNEL_SCORE_INTS);
	uint64_t reset = KERNEL_RESET_INTS + 2ull * l->max_model_len;

	return MAX(step, reset);
}

uint64_t step_result_ints(const struct step_limits *l)
{
	return ((uint64_t)l->max_seqs + l->max_prefill_tokens) * (2 + 2 * TOP_LOGPROBS_MAX);
}

/* Ints that a scored token takes in the result. */
static uint32_t score_ints(uint32_t n_top)
{
	return 2 + 2 * n_top;
}

/* Ints that a draw's log-probabilities take in the result. */
static uint32_t extra_ints(struct step_draw d)
{
	return d.want_logprobs ? 1u + 2u * d.n_top : 0;
}

static struct step_draw wanted(const struct sampling *s)
{
	return (struct step_draw){s->want_logprobs,
				  (uint8_t)MIN((int)s->n_logprobs, (int)TOP_LOGPROBS_MAX)};
}

static void build_draw(const struct plan_draw *d, int32_t logits_row, int32_t banned_at,
		       int32_t extra_at, int32_t out[KERNEL_DRAW_INTS])
{
	const struct sampling *s = d->sampling;
	const int32_t draw[KERNEL_DRAW_INTS] = {
		logits_row,
		(int32_t)float_bits(s->temperature),
		s->top_k,
		(int32_t)float_bits(s->top_p),
		(int32_t)float_bits(s->min_p),
		(int32_t)float_bits(s->presence_penalty),
		(int32_t)float_bits(s->frequency_penalty),
		(int32_t)float_bits(s->repetition_penalty),
		(int32_t)(uint32_t)s->seed,
		(int32_t)(uint32_t)(s->seed >> 32),
		(int32_t)d->choice,
		(int32_t)d->position,
		sampling_penalised(s) ? (int32_t)d->seat : -1,
		wanted(s).n_top,
		banned_at,
		(int32_t)d->n_banned,
		extra_at,
	};

	memcpy(out, draw, sizeof(draw));
}

/* ---- what a plan may ask for ---- */

static bool tokens_exist(const int32_t *tokens, uint32_t n, const struct step_limits *l)
{
	for (uint32_t i = 0; i < n; i++)
		if (tokens[i] < 0 || (uint32_t)tokens[i] >= l->vocab_size)
			return false;
	return true;
}

/* The pages that a row reads or writes: those of its tokens and all before. It may own more, for tokens to come. */
static uint32_t pages_touched(const struct plan_row *r, const struct step_limits *l)
{
	return CEIL_DIV(r->start + r->n_tokens, l->page_tokens);
}

static bool states_exist(const struct plan_row *r, bool prefill, const struct step_limits *l)
{
	uint32_t before = r->start;

	if (r->n_snapshots > (prefill && l->n_slots ? KERNEL_ROW_SNAPSHOTS : 0))
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

/* Each belongs to a prefill row of its own. */
static bool scores_good(const struct plan *p, const struct step_limits *l)
{
	uint64_t tokens = 0;

	if (p->n_scores > p->n_prefill_rows)
		return false;
	for (uint32_t i = 0; i < p->n_scores; i++) {
		const struct plan_score *s = &p->scores[i];

		if (s->row >= p->n_prefill_rows || (i && s->row <= p->scores[i - 1].row) ||
		    s->n_tokens > p->rows[s->row].n_tokens || s->n_top > TOP_LOGPROBS_MAX ||
		    !tokens_exist(s->next, s->n_tokens, l))
			return false;
		tokens += s->n_tokens;
	}
	return tokens == p->n_scored_tokens && tokens <= l->max_prefill_tokens;
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
		    d->n_banned > PLAN_BANNED_MAX || !tokens_exist(d->banned, d->n_banned, l))
			return -EINVAL;
	}
	if (tokens > (uint64_t)l->max_prefill_tokens + l->max_seqs || !resets_good(p, l) ||
	    !scores_good(p, l) || !copies_good(p->page_copies, p->n_page_copies, l->n_pages) ||
	    !copies_good(p->state_copies, p->n_state_copies, l->n_slots))
		return -EINVAL;
	return 0;
}

/* ---- the table ---- */

static void build_row(const struct plan_row *r, int32_t first_token, int32_t pages_at,
		      int32_t out[KERNEL_ROW_INTS])
{
	int32_t row[KERNEL_ROW_INTS] = {
		first_token,
		(int32_t)r->n_tokens,
		(int32_t)r->start,
		r->state_src,
		(int32_t)r->state_dst,
		pages_at,
		(int32_t)r->n_snapshots,
	};

	for (uint32_t i = 0; i < r->n_snapshots; i++) {
		row[7 + 2 * i] = (int32_t)(r->snapshots[i].n_tokens - r->start);
		row[8 + 2 * i] = (int32_t)r->snapshots[i].slot;
	}
	memcpy(out, row, sizeof(row));
}

/* rows: those of the table. `extra`: where in the result the first of them goes. Returns where what follows would. */
static uint32_t build_scores(const struct plan *p, const int32_t *rows, uint32_t extra,
			     int32_t *score_rows, int32_t *scores)
{
	for (uint32_t i = 0; i < p->n_scores; i++) {
		const struct plan_score *s = &p->scores[i];
		int32_t first = rows[s->row * KERNEL_ROW_INTS];

		for (uint32_t k = 0; k < s->n_tokens; k++, scores += KERNEL_SCORE_INTS) {
			*score_rows++ = first + (int32_t)k;
			scores[0] = s->next[k];
			scores[1] = (int32_t)s->n_top;
			scores[2] = (int32_t)extra;
			scores[3] = 0;
			extra += score_ints(s->n_top);
		}
	}
	return extra;
}

void step_build(const struct plan *p, const struct step_limits *l, bool dump, int32_t *table,
		struct step_draw *wants, struct step_built *ret)
{
	struct model_step s = {.n_rows = p->n_rows,
			       .n_prefill_rows = p->n_prefill_rows,
			       .n_draws = p->n_draws,
			       .n_scores = p->n_scored_tokens};
	int32_t *at, *tokens, *positions, *token_rows, *rows, *logits, *draws;
	uint32_t t = 0, extra = p->n_draws, last_row = UINT32_MAX;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		s.n_tokens += p->rows[i].n_tokens;
		if (i < p->n_prefill_rows)
			s.n_prefill_tokens += p->rows[i].n_tokens;
	}
	tokens = table;
	positions = tokens + s.n_tokens;
	token_rows = positions + s.n_tokens;
	rows = token_rows + s.n_tokens;
	at = rows + p->n_rows * KERNEL_ROW_INTS;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *r = &p->rows[i];

		build_row(r, (int32_t)t, (int32_t)(at - table), rows + i * KERNEL_ROW_INTS);
		for (uint32_t k = 0; k < pages_touched(r, l); k++)
			*at++ = (int32_t)r->pages[k];
		for (uint32_t k = 0; k < r->n_tokens; k++, t++) {
			tokens[t] = r->tokens ? r->tokens[k] : -1 - (int32_t)r->token_draw;
			positions[t] = (int32_t)(r->start + k);
			token_rows[t] = (int32_t)i;
		}
	}
	s.tiles_at = (cl_int)(at - table);
	for (uint32_t i = 0; i < p->n_rows; i++)
		for (uint32_t k = 0; k < p->rows[i].n_tokens; k += l->tile_tokens, s.n_tiles++) {
			*at++ = (int32_t)i;
			*at++ = rows[i * KERNEL_ROW_INTS] + (int32_t)k;
			*at++ = (int32_t)MIN(l->tile_tokens, p->rows[i].n_tokens - k);
		}
	/* Several draws of one row (the choices of a request) share its logits; draws come in row order. */
	logits = at;
	for (uint32_t i = 0; i < p->n_draws; i++)
		if (p->draws[i].row != last_row) {
			const int32_t *row = rows + p->draws[i].row * KERNEL_ROW_INTS;

			last_row = p->draws[i].row;
			*at++ = row[0] + row[1] - 1;
			s.n_logits++;
		}
	draws = at;
	at += p->n_draws * KERNEL_DRAW_INTS;
	last_row = UINT32_MAX;
	for (uint32_t i = 0, n = 0; i < p->n_draws; i++) {
		const struct plan_draw *d = &p->draws[i];
		int32_t banned_at = (int32_t)(at - table);
		uint32_t more;

		wants[i] = wanted(d->sampling);
		more = extra_ints(wants[i]);
		n += d->row != last_row;
		last_row = d->row;
		for (uint32_t k = 0; k < d->n_banned; k++)
			*at++ = d->banned[k];
		build_draw(d, (int32_t)(n - 1), banned_at, more ? (int32_t)extra : 0,
			   draws + i * KERNEL_DRAW_INTS);
		extra += more;
	}
	s.score_rows_at = (cl_int)(at - table);
	s.scores_at = s.score_rows_at + (cl_int)s.n_scores;
	extra = build_scores(p, rows, extra, at, at + s.n_scores);
	at += s.n_scores * (1 + KERNEL_SCORE_INTS);
	s.all_at = (cl_int)(at - table);
	for (uint32_t i = 0; dump && i < s.n_tokens; i++)
		*at++ = (int32_t)i;
	s.tokens_at = (cl_int)(tokens - table);
	s.positions_at = (cl_int)(positions - table);
	s.token_rows_at = (cl_int)(token_rows - table);
	s.rows_at = (cl_int)(rows - table);
	s.logits_at = (cl_int)(logits - table);
	s.draws_at = (cl_int)(draws - table);
	*ret = (struct step_built){s, (uint64_t)(at - table), extra};
}

uint64_t step_reset_ints(const struct plan_seat_reset *r)
{
	return (uint64_t)KERNEL_RESET_INTS + r->n_prompt + r->n_generated;
}

void step_build_reset(const struct plan_seat_reset *r, int32_t *table)
{
	const int32_t head[KERNEL_RESET_INTS] = {(int32_t)r->seat, KERNEL_RESET_INTS,
						 (int32_t)r->n_prompt,
						 (int32_t)(KERNEL_RESET_INTS + r->n_prompt),
						 (int32_t)r->n_generated};

	memcpy(table, head, sizeof(head));
	if (r->n_prompt)
		memcpy(table + KERNEL_RESET_INTS, r->prompt, r->n_prompt * sizeof(*table));
	if (r->n_generated)
		memcpy(table + KERNEL_RESET_INTS + r->n_prompt, r->generated,
		       r->n_generated * sizeof(*table));
}

/* What a report says: the log-probability, the best n_top ids, theirs. */
static void read_report(const int32_t *report, uint32_t n_top, struct draw_result *ret)
{
	ret->logprob = bits_float((uint32_t)report[0]);
	for (uint32_t k = 0; k < n_top && report[1 + k] >= 0; k++) {
		ret->top_ids[k] = report[1 + k];
		ret->top_logprobs[k] = bits_float((uint32_t)report[1 + n_top + k]);
		ret->n_top++;
	}
}

void step_score_results(const int32_t *scores, uint32_t n, const int32_t *result,
			struct draw_result *ret)
{
	for (uint32_t i = 0; i < n; i++, scores += KERNEL_SCORE_INTS) {
		const int32_t *report = result + scores[2];

		ret[i] = (struct draw_result){.token = scores[0], .rank = (uint32_t)report[0]};
		read_report(report + 1, (uint32_t)scores[1], &ret[i]);
	}
}

void step_results(const struct step_draw *draws, uint32_t n_draws, const int32_t *result,
		  struct draw_result *ret)
{
	const int32_t *extra = result + n_draws;

	for (uint32_t i = 0; i < n_draws; i++) {
		ret[i] = (struct draw_result){.token = result[i]};
		if (!draws[i].want_logprobs)
			continue;
		read_report(extra, draws[i].n_top, &ret[i]);
		extra += extra_ints(draws[i]);
	}
}
