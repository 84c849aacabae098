/* Makes a plan. First decoding sequences get the pages that their next tokens need, so that admissions cannot take
 * them. Then come windows of prompts, with the admissions of their requests. Then come admissions of further requests
 * whose prompt another worker computes, then the rows of decoding sequences. Slots for checkpoints are taken last,
 * because they are worth least. Resets and copies are added with the rows that need them. */
#include <assert.h>
#include <stdlib.h>

#include "scheduler/admission.h"
#include "scheduler/chunking.h"
#include "scheduler/fairness.h"
#include "scheduler/handoff.h"
#include "scheduler/publish.h"
#include "scheduler/retract.h"
#include "scheduler/scheduler_internal.h"
#include "scheduler/sharing.h"
#include "scheduler/tiering.h"

/* The most requests that a call of try_build may make followers (sharing.h), so that its cost does not grow with their
 * number. */
enum { FOLLOWING_MAX = 64 };

struct plan_builder {
	struct scheduler *s;
	struct step *t;
	uint64_t number;
	uint32_t n_following; /* requests that became followers */
	bool refused;	      /* the request that is next stays in the queue */
	bool paced;	/* sequences decode, and scheduler_pace has limited the prefill budget */
	bool paused;	/* a decoding sequence got no page */
	bool gathering; /* no sequence that draws gets a decode row (must_gather) */
};

/* Adds the next row of q. The row reads slot q->source and writes q->slot, which is the source of the row after it. */
static void add_row(struct plan_builder *b, struct sequence *q, const int32_t *tokens,
		    uint32_t n_tokens, bool decode)
{
	uint32_t i = b->t->plan.n_rows++;
	struct plan_row *row = &b->t->rows[i];
	struct step_row *more = &b->t->more[i];

	/* The members are set one by one, because a step may have a thousand rows. Assigning the whole row would also
	 * write its snapshots, a third of its bytes, which most rows do not have. */
	assert(i < b->s->config.max_seqs);
	row->tokens = tokens;
	row->token_draw = tokens ? 0 : q->draw_index;
	row->n_tokens = n_tokens;
	row->start = q->n_planned;
	row->pages = q->pages;
	row->n_pages = CEIL_DIV(row->start + n_tokens, b->s->config.page_tokens);
	row->state_src = q->source == POOL_NONE ? STATE_ZERO : (int32_t)q->source;
	row->state_dst = q->slot == POOL_NONE ? 0 : q->slot;
	row->n_snapshots = 0;
	row->decode = decode;
	row->leaves_state = false;
	more->owner = q;
	more->handover = POOL_NONE;
	more->unpin = q->source_pinned ? q->source : POOL_NONE;
	q->source = q->slot;
	q->source_pinned = false;
	q->n_planned += n_tokens;
	q->last_plan = b->number;
}

/* Adds a reset of the token counts of q's seat, if q's draws use them and they are not q's yet. */
static void reset_counts(struct plan_builder *b, struct sequence *q)
{
	const struct request *r = q->request;
	struct plan_seat_reset *reset = &b->t->resets[b->t->plan.n_resets];

	if (!sampling_penalised(&r->ask.sampling) || q->counts_valid)
		return;
	/* A sequence that has draws in plans that are out got valid counts with an earlier draw. */
	assert(!q->n_drawing);
	*reset = (struct plan_seat_reset){
		.prompt = r->ask.prompt,
		.generated = q->generated,
		.n_prompt = r->ask.n_prompt,
		.n_generated = q->n_generated,
		.seat = q->seat,
	};
	b->t->plan.n_resets++;
	q->counts_valid = true;
}

/* Whether a token mask leaves a token that does not end the request's choices. allowed NULL: every token. */
static bool leaves_other(const struct scheduler *s, const struct request *r,
			 const uint32_t *allowed)
{
	uint32_t vocab_size = s->config.vocab_size;

	for (uint32_t i = 0; allowed && i < PLAN_MASK_WORDS(vocab_size); i++)
		for (uint32_t left = allowed[i]; left; left &= left - 1) {
			uint32_t id = i * 32 + (uint32_t)__builtin_ctz(left);

			if (id < vocab_size && !request_ends_with(r, (int32_t)id))
				return true;
		}
	return !allowed;
}

/* Adds a draw of q from the logits of the last row. */
static void add_draw(struct plan_builder *b, struct sequence *q)
{
	const struct request *r = q->request;
	struct plan *p = &b->t->plan;
	struct plan_draw *d = &b->t->draws[p->n_draws];

	assert(p->n_draws < b->s->config.max_seqs);
	reset_counts(b, q);
	*d = (struct plan_draw){
		.sampling = &r->ask.sampling,
		.biases = r->ask.biases,
		.n_biases = r->ask.n_biases,
		.allowed = q->allowed,
		.row = p->n_rows - 1,
		.seat = q->seat,
		.choice = q->choice,
		.position = q->n_generated + q->n_drawing,
	};
	if (d->position < r->ask.min_tokens && leaves_other(b->s, r, q->allowed)) {
		d->banned = r->ask.end_tokens;
		d->n_banned = r->ask.n_end_tokens;
	}
	q->draw_index = p->n_draws;
	q->n_drawing++;
	q->last_plan = b->number;
	b->t->draw_owners[p->n_draws++] = q;
}

/* ---- prompts ---- */

/* To be called when the prompt is planned to its end, or the request resumes behind it: from now on the request's
 * living choices may decode. */
static void end_prompt(struct plan_builder *b, struct request *r)
{
	request_advance(r, REQUEST_PROMPT_PLANNED);
	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			list_append(&b->s->decoding, &r->choices[i].node);
}

/* If the request wants scores of tokens behind those of the last row, adds one plan_score for the row. It asks for the
 * log-probability of each token from first_score on that follows one of the row. */
static void add_score(struct plan_builder *b, struct request *r)
{
	struct plan *p = &b->t->plan;
	const struct plan_row *row = &b->t->rows[p->n_rows - 1];
	uint32_t first = MAX(row->start + 1, r->ask.first_score),
		 behind = MIN(row->start + row->n_tokens + 1, r->ask.n_prompt);

	if (!request_scores(r))
		return;
	r->n_scored = row->start + row->n_tokens;
	if (first >= behind)
		return;
	b->t->scores[p->n_scores++] = (struct plan_score){.next = r->ask.prompt + first,
							  .first = first - 1 - row->start,
							  .n_tokens = behind - first,
							  .row = p->n_rows - 1,
							  .n_top = r->ask.n_prompt_logprobs};
	p->n_scored_tokens += behind - first;
}

/* If the request wants a vector, adds one plan_pooling for the last row: of the mean for each row, else for the row
 * with the prompt's last token alone. */
static void add_pooling(struct plan_builder *b, const struct request *r)
{
	struct plan *p = &b->t->plan;
	const struct plan_row *row = &b->t->rows[p->n_rows - 1];
	bool mean = r->ask.pooling == POOLING_MEAN,
	     ends = row->start + row->n_tokens == r->ask.n_prompt;

	if (!mean && !(r->ask.pooling == POOLING_LAST && ends))
		return;
	b->t->poolings[p->n_poolings++] =
		(struct plan_pooling){.row = p->n_rows - 1,
				      .first = mean ? 0 : row->n_tokens - 1,
				      .seat = r->trunk->seat,
				      .begins = !mean || !row->start,
				      .ends = ends};
}

/* Returns the number of tokens of the next window of r's prompt, and sets its span (chunking.h). A window that is
 * smaller because of the pace is a part of a span as large as the window would be without. 0: the budget is too
 * small. */
static uint32_t next_window(const struct plan_builder *b, struct request *r, uint32_t budget)
{
	const struct scheduler *s = b->s;
	uint32_t start = r->trunk->n_planned, n;

	if (!b->paced || start >= r->span_end) {
		n = b->paced ? s->config.max_prefill_tokens : budget;
		n = chunking_window(s->align, start, r->ask.n_prompt, n);
		r->span_start = start;
		r->span_end = start + n;
	}
	return chunking_window(s->align, start, r->span_end, budget);
}

/* Adds the next window of a prompt. With the prompt's last window every living choice draws its first token, unless it
 * has drawn before or the request draws nothing. */
static void add_window(struct plan_builder *b, struct request *r, uint32_t n_tokens)
{
	r->window_start = r->trunk->n_planned;
	add_row(b, r->trunk, r->ask.prompt + r->trunk->n_planned, n_tokens, false);
	b->t->plan.n_prefill_rows++;
	b->t->plan.n_prefill_tokens += n_tokens;
	add_score(b, r);
	add_pooling(b, r);
	if (r->ask.handoff == HANDOFF_SEND)
		handoff_ship(b->s, r, &b->t->plan, b->t->ships);
	if (r->trunk->n_planned < r->ask.n_prompt)
		return;
	for (uint32_t i = 0; i < r->ask.n_choices; i++) {
		struct sequence *q = &r->choices[i];

		if (q->ended)
			continue;
		/* Choices that draw nothing in this plan count as used by it, too. So their decode rows, and the fork
		 * that copies the page that this row writes, are left to a later plan. */
		q->last_plan = b->number;
		if (!q->n_generated && r->ask.max_tokens)
			add_draw(b, q);
	}
	end_prompt(b, r);
}

/* Handles the request that is to be admitted next (fairness.h): it is admitted to compute its prompt, becomes a
 * follower, waits for a load, or waits for its prompt from another worker (Receiving). Sets *admitted to whether it was
 * admitted to compute its prompt. False: it stays in the queue, and all requests behind it wait too. */
static bool admit_first(struct plan_builder *b, struct request *r, bool *admitted)
{
	struct prefix_match m;

	*admitted = false;
	if (b->n_following == FOLLOWING_MAX)
		return false;
	admission_match(b->s, r, &m);
	if (handoff_wanted(b->s, r, &m))
		return tiering_load(b->s, r, &m) || admission_receive(b->s, r, m.miss);
	if (sharing_follow(b->s, r, &m)) {
		b->n_following++;
		return true;
	}
	if (tiering_load(b->s, r, &m))
		return true;
	*admitted = admission_admit(b->s, r, &m);
	return *admitted;
}

/* Makes waiting requests followers of the prompt that is begun and not planned to its end, as far as they are next and
 * can be. With the whole budget they would be looked at when the prompt's span is planned. */
static void follow_head(struct plan_builder *b)
{
	struct request *r;
	struct prefix_match m;

	while (b->n_following < FOLLOWING_MAX && (r = fairness_first(b->s))) {
		admission_match(b->s, r, &m);
		if (handoff_wanted(b->s, r, &m) || !sharing_follow(b->s, r, &m))
			return;
		b->n_following++;
	}
}

static void plan_prefills(struct plan_builder *b)
{
	struct scheduler *s = b->s;
	uint32_t budget = b->paced ? s->pace : s->config.max_prefill_tokens;

	while (budget) {
		struct request *r = s->head;
		uint32_t n_tokens;

		if (!r) {
			bool admitted;

			r = fairness_first(s);
			/* A rest of the budget below `align` is only enough for a whole short prompt. */
			if (!r || b->paused || (budget < s->align && r->ask.n_prompt > budget))
				return;
			b->refused = !admit_first(b, r, &admitted);
			if (b->refused)
				return;
			if (!admitted)
				continue;
			if (r->trunk->n_planned >= r->ask.n_prompt) {
				/* It resumes behind its prompt, so it is no leader and has no window. Its rows
				 * are in this plan. */
				sharing_end(s, r);
				end_prompt(b, r);
				b->gathering = false;
				continue;
			}
		}
		n_tokens = next_window(b, r, budget);
		s->head = r;
		if (!n_tokens || request_reserve_first_draws(r) < 0)
			return;
		add_window(b, r, n_tokens);
		budget -= n_tokens;
		if (r->trunk && r->trunk->n_planned < r->ask.n_prompt) {
			if (b->paced)
				follow_head(b);
			return;
		}
		s->head = NULL;
	}
}

/* Admits the requests that are next (fairness.h), as long as another worker computes their prompts. They use none of
 * the prefill budget, and need not wait until a prompt that was begun here is planned to its end. */
static void plan_receives(struct plan_builder *b)
{
	struct scheduler *s = b->s;
	struct request *r;
	struct prefix_match m;

	while (!b->paused && !b->refused && (r = fairness_first(s)) && handoff_possible(r)) {
		admission_match(s, r, &m);
		if (!handoff_wanted(s, r, &m) ||
		    !(tiering_load(s, r, &m) || admission_receive(s, r, m.miss)))
			return;
	}
}

/* ---- decoding ---- */

/* Whether q may get a decode row in this plan: q has not ended, the plan does not use q yet, and q has a further token
 * to draw. */
static bool can_decode(const struct plan_builder *b, const struct sequence *q)
{
	return !q->ended && q->last_plan != b->number &&
	       q->n_generated + q->n_drawing < q->request->ask.max_tokens;
}

/* Whether q may get no row now, because its next draw needs a token that a plan which is out draws. */
static bool awaits_token(const struct sequence *q)
{
	return q->request->ask.needs_last && q->n_drawing;
}

/* Prefetches the sequence two places behind this one in the list, because sequences are scattered in memory. */
static void prefetch_sequence(const struct list *node)
{
	const char *next = (const char *)node->next->next;

	__builtin_prefetch(next);
	__builtin_prefetch(next + 64);
	__builtin_prefetch(next + 128);
}

/* Whether the sequences that can decode wait for the plan that is out: each of them needs the token before, and that
 * plan draws for some of them. If the others went on without these, their steps would never come together. */
static bool must_gather(const struct plan_builder *b)
{
	bool awaited = false;

	list_for_each (q, &b->s->decoding, struct sequence, node) {
		if (!can_decode(b, q))
			continue;
		if (!q->request->ask.needs_last)
			return false;
		awaited |= awaits_token(q);
	}
	return awaited;
}

/* Gives each sequence that can decode a page for its next token, if it has none and one can be had, also if its row has
 * to wait for the token before. If there is such a sequence, the pace limits the prefill budget. */
static void grow_sequences(struct plan_builder *b)
{
	list_for_each (q, &b->s->decoding, struct sequence, node) {
		prefetch_sequence(&q->node);
		if (!can_decode(b, q))
			continue;
		b->paced = true;
		/* Before the fork every choice still has the pages of its admission, which are enough. */
		if (!q->request->trunk && !admission_has_page(b->s, q) && !admission_grow(b->s, q))
			b->paused = true;
	}
}

/* Whether the next row of q, whose request has forked, computes a token again that was generated before. */
static bool computes_again(const struct sequence *q)
{
	return q->n_planned + 1 < request_known(q) + q->n_drawing;
}

/* Adds a decode row of q for its newest token, or for a token that is computed again. */
static void add_decode(struct plan_builder *b, struct sequence *q)
{
	struct request *r = q->request;
	uint32_t at = q->n_planned - r->ask.n_prompt; /* index of the row's token in `generated` */
	bool again = computes_again(q);

	add_row(b, q, at < q->n_generated ? &q->generated[at] : NULL, 1, true);
	if (again)
		b->s->stats.replayed_tokens++;
	else
		add_draw(b, q);
}

static void plan_decodes(struct plan_builder *b)
{
	/* A step of rows that compute tokens again would keep the gathering sequences waiting; in a prompt's step such
	 * rows take little time. */
	if (b->gathering && !b->t->plan.n_rows)
		return;
	list_for_each (q, &b->s->decoding, struct sequence, node) {
		struct request *r = q->request;

		prefetch_sequence(&q->node);
		if (!can_decode(b, q) || awaits_token(q))
			continue;
		if (b->gathering && (r->trunk || !computes_again(q)))
			continue;
		if (r->trunk)
			admission_fork(b->s, r, &b->t->plan, b->t->page_copies, b->t->state_copies);
		if (!admission_has_page(b->s, q) || request_reserve_draw(q) < 0)
			continue; /* paused */
		request_advance(r, REQUEST_ROW_PLANNED);
		add_decode(b, q);
	}
}

/* ---- checkpoints ---- */

/* Makes a checkpoint of the state that row i leaves, if the row's sequence can have another slot for its next row to
 * write. */
static void hand_over(struct plan_builder *b, uint32_t i, enum prefix_checkpoint kind)
{
	struct step_row *more = &b->t->more[i];

	more->handover = publish_give_slot(b->s, more->owner);
	b->t->rows[i].leaves_state = more->handover != POOL_NONE;
	more->handover_kind = kind;
}

/* Adds a snapshot to a row, sorted by token count. */
static void add_snapshot(struct plan_row *row, struct step_row *more, const struct kept_state *c,
			 uint32_t slot)
{
	uint32_t k = row->n_snapshots++;

	for (; k > 0 && row->snapshots[k - 1].n_tokens > c->n_tokens; k--) {
		row->snapshots[k] = row->snapshots[k - 1];
		more->snapshot_kinds[k] = more->snapshot_kinds[k - 1];
	}
	row->snapshots[k] = (struct plan_snapshot){.n_tokens = c->n_tokens, .slot = slot};
	more->snapshot_kinds[k] = c->kind;
}

/* Keeps states of a prefill row, as long as there are slots: the most valuable ones of the row's span that lie in the
 * row, and the state at the end of the span. So small windows leave no more checkpoints than a large one. */
static void keep_window_states(struct plan_builder *b, uint32_t i)
{
	const struct scheduler_config *c = &b->s->config;
	struct plan_row *row = &b->t->rows[i];
	struct request *r = b->t->more[i].owner->request;
	uint32_t end = row->start + row->n_tokens;
	struct kept_state kept[SNAPSHOTS_MAX];
	uint32_t n = chunking_checkpoints(r, r->span_start, r->span_end, c->state_tokens, kept);
	enum prefix_checkpoint at_end =
		end == r->ask.n_prompt ? PREFIX_CHECKPOINT_PROMPT : PREFIX_CHECKPOINT_CHUNK;
	bool keeps_end = end == r->span_end && end % c->state_tokens == 0;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t slot;

		if (kept[k].n_tokens == end) {
			at_end = kept[k].kind;
			keeps_end = true;
		}
		if (kept[k].n_tokens <= row->start || kept[k].n_tokens >= end)
			continue;
		slot = prefix_cache_take_slot(b->s->cache);
		if (slot == POOL_NONE)
			break;
		add_snapshot(row, &b->t->more[i], &kept[k], slot);
	}
	if (keeps_end)
		hand_over(b, i, at_end);
	r->window_start = end;
}

static void keep_states(struct plan_builder *b)
{
	const struct scheduler_config *c = &b->s->config;

	if (!c->state_tokens)
		return;
	for (uint32_t i = 0; i < b->t->plan.n_rows; i++) {
		const struct plan_row *row = &b->t->rows[i];
		struct sequence *q = b->t->more[i].owner;

		if (!q->path)
			continue;
		if (!row->decode)
			keep_window_states(b, i);
		else if (!c->refuse_decoded && (row->start + 1) % c->state_tokens == 0)
			hand_over(b, i, PREFIX_CHECKPOINT_DECODE);
	}
}

static bool try_build(struct scheduler *s)
{
	uint64_t number = s->planned + 1;
	struct step *t = step_of(s, number);
	struct plan_builder b = {.s = s, .t = t, .number = number};

	t->plan = (struct plan){
		.step = number,
		.rows = t->rows,
		.draws = t->draws,
		.scores = t->scores,
		.poolings = t->poolings,
		.ships = t->ships,
		.resets = t->resets,
		.page_copies = t->page_copies,
		.state_copies = t->state_copies,
	};
	b.gathering = must_gather(&b);
	grow_sequences(&b);
	b.paced &= s->pace < s->config.max_prefill_tokens;
	plan_prefills(&b);
	plan_receives(&b);
	plan_decodes(&b);
	if (!t->plan.n_rows)
		return false;
	keep_states(&b);
	s->planned = number;
	return true;
}

bool plan_build(struct scheduler *s)
{
	struct request *r;

	while ((r = fairness_victim(s))) {
		if (plans_out(s))
			return false;
		retract(s, r);
	}
	while (!try_build(s))
		if (plans_out(s) || !retract_one(s))
			return false;
	return true;
}
