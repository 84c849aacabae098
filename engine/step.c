#include "engine/step.h"

#include <errno.h>
#include <string.h>

static int32_t float_bits(float f)
{
	int32_t i;

	memcpy(&i, &f, sizeof(i));
	return i;
}

static float bits_float(int32_t i)
{
	float f;

	memcpy(&f, &i, sizeof(f));
	return f;
}

enum { BANNED_MAX = 512 }; /* ids that one draw may ban: a request's stop tokens and the model's */

uint64_t step_table_ints(const struct step_limits *l)
{
	uint64_t T = (uint64_t)l->max_prefill_tokens + l->max_seqs;
	uint64_t R = l->max_seqs; /* a sequence has one row a step */
	uint64_t pages = CEIL_DIV((uint64_t)l->max_model_len, l->page_tokens) + 1;
	uint64_t step = T * 4 + R * (KERNEL_ROW_INTS + pages) + (T / l->tile_tokens + R + 1) * 3 +
			l->max_seqs * (1ull + KERNEL_DRAW_INTS + BANNED_MAX);
	uint64_t reset = KERNEL_RESET_INTS + 2ull * l->max_model_len;

	return MAX(step, reset);
}

uint64_t step_result_ints(const struct step_limits *l)
{
	return (uint64_t)l->max_seqs * (2 + 2 * TOP_LOGPROBS_MAX);
}

/* Ints that a draw's log-probabilities take in the result. */
static uint32_t extra_ints(const struct sampling *s)
{
	return s->want_logprobs ? 1u + 2u * MIN((uint32_t)s->n_logprobs, (uint32_t)TOP_LOGPROBS_MAX)
				: 0;
}

static void build_draw(const struct plan_draw *d, int32_t logits_row, int32_t banned_at,
		       int32_t extra_at, int32_t out[KERNEL_DRAW_INTS])
{
	const struct sampling *s = d->sampling;
	const int32_t draw[KERNEL_DRAW_INTS] = {
		logits_row,
		float_bits(s->temperature),
		s->top_k,
		float_bits(s->top_p),
		float_bits(s->min_p),
		float_bits(s->presence_penalty),
		float_bits(s->frequency_penalty),
		float_bits(s->repetition_penalty),
		(int32_t)(uint32_t)s->seed,
		(int32_t)(uint32_t)(s->seed >> 32),
		(int32_t)d->choice,
		(int32_t)d->position,
		sampling_penalised(s) ? (int32_t)d->seat : -1,
		(int32_t)MIN((uint32_t)s->n_logprobs, (uint32_t)TOP_LOGPROBS_MAX),
		banned_at,
		(int32_t)d->n_banned,
		extra_at,
	};

	memcpy(out, draw, sizeof(draw));
}

static bool within_limits(const struct plan *p, const struct step_limits *l)
{
	uint64_t tokens = 0;

	if (p->n_rows > l->max_seqs || p->n_draws > l->max_seqs || p->n_prefill_rows > p->n_rows)
		return false;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *r = &p->rows[i];

		tokens += r->n_tokens;
		if (!r->n_tokens ||
		    (uint64_t)r->start + r->n_tokens > (uint64_t)r->n_pages * l->page_tokens ||
		    (uint64_t)r->start + r->n_tokens > l->max_model_len)
			return false;
	}
	for (uint32_t i = 0; i < p->n_draws; i++)
		if (p->draws[i].row >= p->n_rows || p->draws[i].seat >= l->max_seqs ||
		    p->draws[i].n_banned > BANNED_MAX)
			return false;
	return tokens <= (uint64_t)l->max_prefill_tokens + l->max_seqs;
}

int64_t step_build(const struct plan *p, const struct step_limits *l, bool dump, int32_t *table,
		   struct model_step *ret, cl_int *ret_draws_at, uint32_t *ret_result_ints)
{
	struct model_step s = {.n_rows = p->n_rows, .n_prefill_rows = p->n_prefill_rows};
	int32_t *at, *tokens, *positions, *token_rows, *rows, *logits, *draws;
	uint32_t t = 0, extra = p->n_draws, last_row = UINT32_MAX;

	if (!within_limits(p, l))
		return -EINVAL;
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
		const int32_t row[KERNEL_ROW_INTS] = {
			(int32_t)t,   (int32_t)r->n_tokens,  (int32_t)r->start,
			r->state_src, (int32_t)r->state_dst, (int32_t)(at - table),
		};
		/* The pages a row touches, no more: a sequence may own pages for tokens to come. */
		uint32_t n_pages = CEIL_DIV(r->start + r->n_tokens, l->page_tokens);

		memcpy(rows + i * KERNEL_ROW_INTS, row, sizeof(row));
		for (uint32_t k = 0; k < n_pages; k++)
			*at++ = (int32_t)r->pages[k];
		for (uint32_t k = 0; k < r->n_tokens; k++, t++) {
			tokens[t] = r->tokens[k];
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
		uint32_t more = extra_ints(d->sampling);
		int32_t banned_at = (int32_t)(at - table);

		n += d->row != last_row;
		last_row = d->row;
		for (uint32_t k = 0; k < d->n_banned; k++)
			*at++ = d->banned[k];
		build_draw(d, (int32_t)(n - 1), banned_at, more ? (int32_t)extra : 0,
			   draws + i * KERNEL_DRAW_INTS);
		extra += more;
	}
	s.all_at = (cl_int)(at - table);
	for (uint32_t i = 0; dump && i < s.n_tokens; i++)
		*at++ = (int32_t)i;
	s.tokens_at = (cl_int)(tokens - table);
	s.positions_at = (cl_int)(positions - table);
	s.token_rows_at = (cl_int)(token_rows - table);
	s.rows_at = (cl_int)(rows - table);
	s.logits_at = (cl_int)(logits - table);
	*ret = s;
	*ret_draws_at = (cl_int)(draws - table);
	*ret_result_ints = extra;
	return at - table;
}

int64_t step_build_reset(const struct plan_seat_reset *r, int32_t *table)
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
	return (int64_t)KERNEL_RESET_INTS + r->n_prompt + r->n_generated;
}

void step_results(const struct plan *p, const int32_t *result, struct draw_result *ret)
{
	const int32_t *extra = result + p->n_draws;

	for (uint32_t i = 0; i < p->n_draws; i++) {
		const struct sampling *s = p->draws[i].sampling;
		uint32_t n = s->want_logprobs
				     ? MIN((uint32_t)s->n_logprobs, (uint32_t)TOP_LOGPROBS_MAX)
				     : 0;

		ret[i] = (struct draw_result){.token = result[i]};
		if (!s->want_logprobs)
			continue;
		ret[i].logprob = bits_float(extra[0]);
		for (uint32_t k = 0; k < n && extra[1 + k] >= 0; k++) {
			ret[i].top_ids[k] = extra[1 + k];
			ret[i].top_logprobs[k] = bits_float(extra[1 + n + k]);
			ret[i].n_top++;
		}
		extra += extra_ints(s);
	}
}
