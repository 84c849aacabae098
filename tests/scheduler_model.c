#include "tests/scheduler_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/scheduler.h"
#include "tests/fake_device.h"

enum {
	LEN_MAX = 512,	   /* longest sequence */
	SEQS_MAX = 8,	   /* most seats */
	PAGES_MAX = 64,	   /* most pages, slots or seats */
	REQUESTS_MAX = 24, /* requests alive at the same time */
	VOCAB = 4096,
};

/*
 * A choice is alive until it ends, and holds seat, slot and pages from admission until it has ended
 * and no plan that uses it is out.
 */
struct model_choice {
	bool ended, held;
	uint32_t n_generated, seat;
	int32_t generated[LEN_MAX];
};

struct model_request {
	uint64_t id, twin_id; /* in the two schedulers */
	struct scheduler_request r;
	int32_t prompt[LEN_MAX + 8], ends[3];
	bool admitted, aborted;
	uint32_t n_prefilled;
	struct model_choice choices[SEQS_MAX];
};

/* What a row of the next plan should be. */
struct model_row {
	struct model_request *request;
	struct model_choice *choice; /* of a decode row; NULL: a window */
	uint32_t start, n_tokens;
};

struct names {
	uint32_t to[PAGES_MAX], from[PAGES_MAX]; /* id + 1 in the other scheduler; 0: not seen */
};

struct model {
	struct source *src;
	struct model_counts *counts;
	struct scheduler_config config;
	struct scheduler *s, *twin;
	struct fake_device *device;
	const struct plan *plan, *twin_plan;	      /* while out */
	struct model_request *requests[REQUESTS_MAX]; /* oldest first */
	uint32_t n_requests;
	struct model_row rows[SEQS_MAX];
	uint32_t n_rows;
	struct model_request *draw_requests[SEQS_MAX]; /* what the draws of the plan belong to */
	struct model_choice *draw_choices[SEQS_MAX];
	struct draw_result results[SEQS_MAX];
	struct scheduler_event events[SEQS_MAX], twin_events[SEQS_MAX];
	struct names pages, slots, seats;
	uint64_t next_user;
};

static uint32_t below(struct source *src, uint32_t n)
{
	uint32_t v = 0;

	if (src->bytes) {
		for (uint32_t k = n; k > 1 && src->n_bytes; k /= 256, src->n_bytes--)
			v = v << 8 | *src->bytes++;
		return v % n;
	}
	src->state = src->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(src->state >> 33) % n;
}

static bool chance(struct model *m, uint32_t one_in)
{
	return below(m->src, one_in) == 0;
}

static bool is_over(const struct model_request *q)
{
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			return false;
	return true;
}

static bool holds(const struct model_request *q)
{
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (q->choices[i].held)
			return true;
	return false;
}

/* Pages of a request if the choices in `mask` hold some. */
static uint32_t pages_of(const struct model *m, const struct model_request *q, uint32_t mask)
{
	uint32_t shared = 0, all = 0, n = 0;

	while ((shared + 1) * m->config.page_tokens <= q->r.n_prompt)
		shared++;
	while (all * m->config.page_tokens < q->r.n_prompt + q->r.max_tokens)
		all++;
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (mask >> i & 1)
			n += all - shared;
	return mask ? n + shared : 0;
}

static uint32_t held_mask(const struct model_request *q)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < MIN(q->r.n_choices, (uint32_t)SEQS_MAX); i++)
		mask |= (uint32_t)q->choices[i].held << i;
	return mask;
}

static uint32_t live_mask(const struct model_request *q)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < MIN(q->r.n_choices, (uint32_t)SEQS_MAX); i++)
		mask |= (uint32_t)!q->choices[i].ended << i;
	return mask;
}

static uint32_t bits(uint32_t mask)
{
	return (uint32_t)__builtin_popcount(mask);
}

static struct scheduler_stats expected_stats(const struct model *m)
{
	struct scheduler_stats st = {.free_pages = m->config.n_pages,
				     .free_slots = m->config.n_slots};

	for (uint32_t i = 0; i < m->n_requests; i++) {
		const struct model_request *q = m->requests[i];
		uint32_t held = held_mask(q);

		st.running += bits(held);
		st.free_slots -= bits(held);
		st.free_pages -= pages_of(m, q, held);
		st.waiting += !q->admitted;
	}
	return st;
}

static const char *check_stats(const struct model *m)
{
	struct scheduler_stats want = expected_stats(m), got, twin;

	scheduler_stats(m->s, &got);
	scheduler_stats(m->twin, &twin);
	EXPECT(got.running == want.running);
	EXPECT(got.waiting == want.waiting);
	EXPECT(got.free_pages == want.free_pages);
	EXPECT(got.free_slots == want.free_slots);
	EXPECT(!memcmp(&got, &twin, sizeof(got)));
	return NULL;
}

/* Ended choices hold nothing any more, requests that are over are gone, unless a plan is out. */
static void settle(struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n_requests; i++) {
		struct model_request *q = m->requests[i];

		for (uint32_t k = 0; !m->plan && k < q->r.n_choices; k++)
			if (q->choices[k].ended)
				q->choices[k].held = false;
		if (is_over(q) && !holds(q))
			free(q);
		else
			m->requests[n++] = q;
	}
	m->n_requests = n;
}

/* The row of q's next window, if the budget has one; also says whether it ends the prompt. */
static bool next_window(const struct model *m, const struct model_request *q, uint32_t *budget,
			uint32_t *ret)
{
	uint32_t n = 0;

	if (q->r.n_prompt - q->n_prefilled <= *budget)
		n = q->r.n_prompt - q->n_prefilled;
	else
		while (n + m->config.page_tokens <= *budget)
			n += m->config.page_tokens;
	*budget -= n;
	*ret = n;
	return q->n_prefilled + n == q->r.n_prompt;
}

/* The rows that the next plan should have, by the rules; admits who is admitted. */
static void expect_rows(struct model *m)
{
	uint32_t budget = m->config.max_prefill_tokens;
	bool through_before[REQUESTS_MAX];

	m->n_rows = 0;
	for (uint32_t i = 0; i < m->n_requests; i++)
		through_before[i] = m->requests[i]->n_prefilled == m->requests[i]->r.n_prompt;
	for (uint32_t i = 0; i < m->n_requests; i++) {
		struct model_request *q = m->requests[i];
		uint32_t n_tokens;
		bool through;

		if (through_before[i])
			continue;
		through = next_window(m, q, &budget, &n_tokens);
		if (!n_tokens)
			break;
		if (!q->admitted) {
			struct scheduler_stats st = expected_stats(m);
			uint32_t live = live_mask(q);

			if (st.free_pages < pages_of(m, q, live) || st.free_slots < bits(live) ||
			    m->config.max_seqs - st.running < bits(live)) {
				m->counts->admissions_refused++;
				break;
			}
			q->admitted = true;
			for (uint32_t k = 0; k < q->r.n_choices; k++)
				q->choices[k].held = !q->choices[k].ended;
		}
		m->rows[m->n_rows++] = (struct model_row){q, NULL, q->n_prefilled, n_tokens};
		if (!through) {
			m->counts->cut_prompts++;
			break;
		}
	}
	for (uint32_t i = 0; i < m->n_requests; i++) {
		struct model_request *q = m->requests[i];

		for (uint32_t k = 0; through_before[i] && k < q->r.n_choices; k++) {
			struct model_choice *c = &q->choices[k];

			if (!c->ended)
				m->rows[m->n_rows++] =
					(struct model_row){q, c, q->r.n_prompt + c->n_generated - 1,
							   1};
		}
	}
}

static const char *check_draw(struct model *m, const struct plan_draw *d, struct model_request *q,
			      struct model_choice *c)
{
	EXPECT(d->choice == c - q->choices);
	EXPECT(d->position == c->n_generated);
	EXPECT(!memcmp(d->sampling, &q->r.sampling, sizeof(*d->sampling)));
	if (c->n_generated < q->r.min_tokens) {
		EXPECT(d->n_banned == q->r.n_end_tokens);
		for (uint32_t i = 0; i < d->n_banned; i++)
			EXPECT(d->banned[i] == q->ends[i]);
	} else {
		EXPECT(d->n_banned == 0);
	}
	/* A choice keeps its seat, and nobody else alive has it. */
	EXPECT(d->seat < m->config.max_seqs);
	EXPECT(c->n_generated == 0 || c->seat == d->seat);
	c->seat = d->seat;
	for (uint32_t i = 0; i < m->n_requests; i++)
		for (uint32_t k = 0; k < m->requests[i]->r.n_choices; k++) {
			const struct model_choice *other = &m->requests[i]->choices[k];

			EXPECT(other == c || !other->held || other->n_generated == 0 ||
			       other->seat != d->seat);
		}
	return NULL;
}

/* The plan that is out, row by row and draw by draw, against what the rules say. */
static const char *check_plan(struct model *m)
{
	const struct plan *p = m->plan;
	uint32_t d = 0, n_resets = 0, n_prefill_rows = 0, n_prefill_tokens = 0;

	EXPECT(p->n_rows == m->n_rows);
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct model_row *want = &m->rows[i];
		const struct plan_row *row = &p->rows[i];
		struct model_request *q = want->request;
		struct model_choice *c = want->choice;

		EXPECT(row->decode == !!c);
		EXPECT(row->start == want->start && row->n_tokens == want->n_tokens);
		if (c) {
			EXPECT(row->tokens[0] == c->generated[c->n_generated - 1]);
		} else {
			EXPECT(!memcmp(row->tokens, q->prompt + row->start,
				       row->n_tokens * sizeof(*row->tokens)));
			n_prefill_rows++;
			n_prefill_tokens += row->n_tokens;
		}
		for (uint32_t k = 0; k < q->r.n_choices; k++) {
			const char *failed;

			if (q->choices[k].ended || (c && c != &q->choices[k]) ||
			    (!c && row->start + row->n_tokens < q->r.n_prompt))
				continue;
			EXPECT(d < p->n_draws && p->draws[d].row == i);
			m->draw_requests[d] = q;
			m->draw_choices[d] = &q->choices[k];
			failed = check_draw(m, &p->draws[d], q, &q->choices[k]);
			if (failed)
				return failed;
			if (!c && sampling_penalised(&q->r.sampling)) {
				EXPECT(n_resets < p->n_resets);
				EXPECT(p->resets[n_resets].seat == p->draws[d].seat);
				n_resets++;
			}
			d++;
		}
	}
	EXPECT(d == p->n_draws && n_resets == p->n_resets);
	EXPECT(n_prefill_rows == p->n_prefill_rows && n_prefill_tokens == p->n_prefill_tokens);
	EXPECT(n_prefill_tokens <= m->config.max_prefill_tokens);
	return NULL;
}

/* A copy goes to each choice that decodes for the first time, except the first of its request. */
static const char *check_copies(const struct model *m)
{
	uint32_t n_states = 0, n_pages = 0;

	for (uint32_t i = 1; i < m->n_rows; i++) {
		const struct model_row *row = &m->rows[i];

		if (row->choice && row->choice->n_generated == 1 &&
		    m->rows[i - 1].request == row->request) {
			n_states++;
			n_pages += row->request->r.n_prompt % m->config.page_tokens != 0;
		}
	}
	EXPECT(m->plan->n_state_copies == n_states);
	EXPECT(m->plan->n_page_copies == n_pages);
	return NULL;
}

/* a in one scheduler is b in the other, as it was before. */
static bool same_name(struct names *n, uint32_t a, uint32_t b)
{
	if (a >= PAGES_MAX || b >= PAGES_MAX)
		return false;
	if (!n->to[a] && !n->from[b]) {
		n->to[a] = b + 1;
		n->from[b] = a + 1;
	}
	return n->to[a] == b + 1 && n->from[b] == a + 1;
}

static const char *compare_twin(struct model *m)
{
	const struct plan *a = m->plan, *b = m->twin_plan;

	EXPECT(b);
	EXPECT(a->step == b->step && a->n_rows == b->n_rows && a->n_draws == b->n_draws);
	EXPECT(a->n_prefill_rows == b->n_prefill_rows && a->n_resets == b->n_resets);
	EXPECT(a->n_prefill_tokens == b->n_prefill_tokens);
	EXPECT(a->n_page_copies == b->n_page_copies && a->n_state_copies == b->n_state_copies);
	for (uint32_t i = 0; i < a->n_rows; i++) {
		const struct plan_row *ra = &a->rows[i], *rb = &b->rows[i];

		EXPECT(ra->n_tokens == rb->n_tokens && ra->start == rb->start);
		EXPECT(ra->decode == rb->decode && ra->n_pages == rb->n_pages);
		EXPECT(!memcmp(ra->tokens, rb->tokens, ra->n_tokens * sizeof(*ra->tokens)));
		for (uint32_t k = 0; k < ra->n_pages; k++)
			EXPECT(same_name(&m->pages, ra->pages[k], rb->pages[k]));
		EXPECT(same_name(&m->slots, ra->state_dst, rb->state_dst));
		EXPECT((ra->state_src == STATE_ZERO) == (rb->state_src == STATE_ZERO));
		EXPECT(ra->state_src == STATE_ZERO ||
		       same_name(&m->slots, (uint32_t)ra->state_src, (uint32_t)rb->state_src));
	}
	for (uint32_t i = 0; i < a->n_draws; i++) {
		const struct plan_draw *da = &a->draws[i], *db = &b->draws[i];

		EXPECT(da->row == db->row && da->choice == db->choice);
		EXPECT(da->position == db->position && da->n_banned == db->n_banned);
		EXPECT(same_name(&m->seats, da->seat, db->seat));
	}
	for (uint32_t i = 0; i < a->n_resets; i++)
		EXPECT(same_name(&m->seats, a->resets[i].seat, b->resets[i].seat));
	for (uint32_t i = 0; i < a->n_page_copies; i++)
		EXPECT(same_name(&m->pages, a->page_copies[i].src, b->page_copies[i].src) &&
		       same_name(&m->pages, a->page_copies[i].dst, b->page_copies[i].dst));
	for (uint32_t i = 0; i < a->n_state_copies; i++)
		EXPECT(same_name(&m->slots, a->state_copies[i].src, b->state_copies[i].src) &&
		       same_name(&m->slots, a->state_copies[i].dst, b->state_copies[i].dst));
	return NULL;
}

/* Draws a token for every draw, and runs the plan on the fake device. */
static const char *run_plan(struct model *m)
{
	struct fake_history rows[SEQS_MAX], draws[SEQS_MAX];
	const struct plan *p = m->plan;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct model_row *row = &m->rows[i];

		rows[i] = (struct fake_history){.prompt = row->request->prompt};
		rows[i].n_prompt = MIN(row->start + row->n_tokens, row->request->r.n_prompt);
		if (row->choice) {
			rows[i].generated = row->choice->generated;
			rows[i].n_generated = row->choice->n_generated;
		}
	}
	for (uint32_t i = 0; i < p->n_draws; i++) {
		const struct model_request *q = m->draw_requests[i];
		const struct model_choice *c = m->draw_choices[i];
		int32_t token = (int32_t)below(m->src, VOCAB - 8);

		draws[i] = (struct fake_history){q->prompt, c->generated, q->r.n_prompt,
						 c->n_generated};
		if (q->r.n_end_tokens && !p->draws[i].n_banned && chance(m, 12))
			token = q->ends[below(m->src, q->r.n_end_tokens)];
		m->results[i] = (struct draw_result){.token = token};
	}
	m->counts->plans++;
	m->counts->rows += p->n_rows;
	m->counts->draws += p->n_draws;
	m->counts->page_copies += p->n_page_copies;
	m->counts->state_copies += p->n_state_copies;
	m->counts->resets += p->n_resets;
	return fake_device_run(m->device, p, rows, draws, m->results);
}

/* Sometimes, when nothing runs, the second scheduler's ids get other names. */
static void shuffle_twin(struct model *m)
{
	if (!chance(m, 4) || scheduler_shuffle(m->twin, below(m->src, 256)) < 0)
		return;
	memset(&m->pages, 0, sizeof(m->pages));
	memset(&m->slots, 0, sizeof(m->slots));
	memset(&m->seats, 0, sizeof(m->seats));
}

static const char *do_plan(struct model *m)
{
	const char *failed;

	shuffle_twin(m);
	expect_rows(m);
	m->plan = scheduler_plan(m->s);
	m->twin_plan = scheduler_plan(m->twin);
	EXPECT(!!m->plan == !!m->n_rows && !!m->twin_plan == !!m->n_rows);
	/* Whoever waits alone can run: nothing that was accepted is ever stuck. */
	EXPECT(m->plan || m->n_requests == 0);
	if (!m->plan)
		return NULL;
	failed = check_plan(m);
	if (!failed)
		failed = check_copies(m);
	if (!failed)
		failed = compare_twin(m);
	return failed ? failed : run_plan(m);
}

/* What a token does to a choice. */
static enum finish_reason apply_draw(const struct model_request *q, struct model_choice *c,
				     int32_t token)
{
	c->generated[c->n_generated++] = token;
	for (uint32_t i = 0; i < q->r.n_end_tokens; i++)
		if (q->ends[i] == token) {
			c->ended = true;
			return FINISH_STOP;
		}
	if (c->n_generated < q->r.max_tokens)
		return FINISH_NONE;
	c->ended = true;
	return FINISH_LENGTH;
}

static const char *do_commit(struct model *m)
{
	uint32_t n = scheduler_commit(m->s, m->results, m->events);
	uint32_t n_twin = scheduler_commit(m->twin, m->results, m->twin_events);
	uint32_t e = 0;

	EXPECT(n == n_twin);
	for (uint32_t i = 0; i < m->n_rows; i++)
		if (!m->rows[i].choice)
			m->rows[i].request->n_prefilled += m->rows[i].n_tokens;
	for (uint32_t i = 0; i < m->plan->n_draws; i++) {
		struct model_request *q = m->draw_requests[i];
		struct model_choice *c = m->draw_choices[i];
		const struct scheduler_event *ev = &m->events[e];

		if (c->ended) {
			m->counts->late_results++;
			continue;
		}
		EXPECT(e < n);
		EXPECT(ev->request == q->id && ev->user == q->r.user);
		EXPECT(ev->choice == c - q->choices && ev->draw == &m->results[i]);
		EXPECT(ev->finish == apply_draw(q, c, m->results[i].token));
		EXPECT(ev->request_finished == is_over(q));
		EXPECT(m->twin_events[e].request == q->twin_id);
		m->counts->finished += is_over(q);
		e++;
	}
	EXPECT(e == n);
	m->plan = m->twin_plan = NULL;
	settle(m);
	return NULL;
}

static const char *do_fail(struct model *m)
{
	uint32_t n = scheduler_fail(m->s, m->events), e = 0;

	EXPECT(scheduler_fail(m->twin, m->twin_events) == n && n <= m->n_rows);
	m->counts->failed_steps++;
	for (uint32_t i = 0; i < m->n_rows; i++) {
		struct model_request *q = m->rows[i].request;

		if (is_over(q))
			continue;
		for (uint32_t k = 0; k < q->r.n_choices; k++)
			q->choices[k].ended = true;
		EXPECT(e < n);
		EXPECT(m->events[e].request == q->id && m->events[e].user == q->r.user);
		EXPECT(!m->events[e].draw && m->events[e].request_finished);
		EXPECT(m->events[e].finish == FINISH_NONE);
		e++;
	}
	EXPECT(e == n);
	m->plan = m->twin_plan = NULL;
	settle(m);
	return NULL;
}

/* Lengths around page ends are as likely as all others. */
static uint32_t draw_length(struct model *m)
{
	switch (below(m->src, 4)) {
	case 0: return below(m->src, 40);
	case 1: return m->config.page_tokens * below(m->src, 4) + below(m->src, 3);
	case 2: return m->config.page_tokens * (1 + below(m->src, 4)) - 1;
	default: return below(m->src, m->config.max_model_len + 4);
	}
}

static struct model_request *draw_request(struct model *m)
{
	struct model_request *q = calloc(1, sizeof(*q));
	struct scheduler_request *r = &q->r;

	r->n_prompt = draw_length(m);
	r->max_tokens = chance(m, 6) ? draw_length(m) : below(m->src, 24);
	r->min_tokens = chance(m, 3) ? below(m->src, 8) : 0;
	r->n_choices = chance(m, 2) ? below(m->src, m->config.max_seqs + 2) : 1;
	r->n_end_tokens = below(m->src, 4);
	r->sampling = (struct sampling){.seed = m->next_user, .repetition_penalty = 1};
	if (chance(m, 3))
		r->sampling.presence_penalty = 1;
	r->user = (void *)(uintptr_t)++m->next_user;
	r->prompt = q->prompt;
	r->end_tokens = q->ends;
	for (uint32_t i = 0; i < r->n_prompt; i++)
		q->prompt[i] = (int32_t)((m->next_user * 31 + i * 7) % VOCAB);
	for (uint32_t i = 0; i < r->n_end_tokens; i++)
		q->ends[i] = (int32_t)(VOCAB - 8 + i);
	return q;
}

static bool acceptable(const struct model *m, const struct model_request *q)
{
	const struct scheduler_request *r = &q->r;

	return r->n_prompt && r->max_tokens && r->n_choices && r->n_choices <= m->config.max_seqs &&
	       r->n_prompt + r->max_tokens <= m->config.max_model_len &&
	       pages_of(m, q, (1u << r->n_choices) - 1) <= m->config.n_pages;
}

static const char *do_submit(struct model *m)
{
	struct model_request *q;
	int err, twin_err;

	if (m->n_requests == REQUESTS_MAX)
		return NULL;
	q = draw_request(m);
	err = scheduler_submit(m->s, &q->r, &q->id, NULL);
	twin_err = scheduler_submit(m->twin, &q->r, &q->twin_id, NULL);
	if (!acceptable(m, q)) {
		bool untouched = err == -EINVAL && twin_err == -EINVAL && !q->id;

		free(q);
		EXPECT(untouched);
		m->counts->refused++;
		return NULL;
	}
	m->requests[m->n_requests++] = q;
	EXPECT(err == 0 && twin_err == 0 && q->id);
	for (uint32_t i = 0; i + 1 < m->n_requests; i++)
		EXPECT(m->requests[i]->id < q->id);
	m->counts->submitted++;
	return NULL;
}

static const char *do_abort(struct model *m)
{
	struct model_request *q;

	if (!m->n_requests) {
		scheduler_abort(m->s, below(m->src, 100));
		return NULL;
	}
	q = m->requests[below(m->src, m->n_requests)];
	scheduler_abort(m->s, q->id);
	scheduler_abort(m->twin, q->twin_id);
	if (chance(m, 4)) {
		scheduler_abort(m->s, q->id);
		scheduler_finish_choice(m->s, q->id, 0);
	}
	for (uint32_t k = 0; k < q->r.n_choices; k++)
		q->choices[k].ended = true;
	m->counts->aborted++;
	settle(m);
	return NULL;
}

static const char *do_finish_choice(struct model *m)
{
	struct model_request *q;
	uint32_t k;

	if (!m->n_requests)
		return NULL;
	q = m->requests[below(m->src, m->n_requests)];
	k = below(m->src, q->r.n_choices + 1);
	scheduler_finish_choice(m->s, q->id, k);
	scheduler_finish_choice(m->twin, q->twin_id, k);
	if (k < q->r.n_choices)
		q->choices[k].ended = true;
	m->counts->choices_ended++;
	settle(m);
	return NULL;
}

static const char *do_something(struct model *m)
{
	uint32_t op = below(m->src, 32);

	m->counts->events++;
	if (op < 6)
		return do_submit(m);
	if (op == 6)
		return do_abort(m);
	if (op < 9)
		return do_finish_choice(m);
	if (!m->plan)
		return do_plan(m);
	return op == 9 && chance(m, 4) ? do_fail(m) : do_commit(m);
}

/* Every request that is left completes within the steps that its tokens need when it runs alone. */
static const char *drain(struct model *m)
{
	uint64_t steps = 1;

	for (uint32_t i = 0; i < m->n_requests; i++)
		steps += m->requests[i]->r.n_prompt / m->config.page_tokens + 1 +
			 m->requests[i]->r.max_tokens;
	for (;;) {
		const char *failed = m->plan ? do_commit(m) : NULL;

		failed = failed ? failed : check_stats(m);
		failed = failed ? failed : do_plan(m);
		if (failed)
			return failed;
		if (!m->plan)
			return NULL;
		m->counts->events += 2;
		EXPECT(steps-- > 0);
	}
}

static const char *check_baseline(const struct model *m)
{
	struct scheduler_stats st;

	EXPECT(m->n_requests == 0);
	scheduler_stats(m->s, &st);
	EXPECT(st.running == 0 && st.waiting == 0);
	EXPECT(st.free_pages == m->config.n_pages && st.free_slots == m->config.n_slots);
	return NULL;
}

static const char *run(struct model *m, uint32_t n_events)
{
	const char *failed = NULL;

	for (uint32_t i = 0; !failed && i < n_events; i++) {
		if (m->src->bytes && !m->src->n_bytes)
			break;
		failed = do_something(m);
		if (!failed)
			failed = check_stats(m);
	}
	if (!failed && chance(m, 16)) /* ends with whatever there is, a plan out or not */
		return NULL;
	if (!failed)
		failed = drain(m);
	return failed ? failed : check_baseline(m);
}

const char *model_run(struct source *src, uint32_t n_events, struct model_counts *counts)
{
	struct model *m = calloc(1, sizeof(*m));
	struct scheduler_config *c = &m->config;
	const char *failed;

	m->src = src;
	m->counts = counts;
	c->page_tokens = chance(m, 4) ? 128 : 64;
	c->max_seqs = 1 + below(src, SEQS_MAX);
	c->n_slots = c->max_seqs + below(src, 3);
	c->n_pages = 1 + below(src, chance(m, 2) ? 12 : 48);
	c->max_prefill_tokens = c->page_tokens + below(src, 3 * c->page_tokens);
	c->max_model_len = chance(m, 8) ? 2 + below(src, 60) : LEN_MAX - below(src, 200);
	c->vocab_size = VOCAB;
	if (scheduler_new(c, &m->s, NULL) < 0 || scheduler_new(c, &m->twin, NULL) < 0)
		abort();
	m->device = fake_device_new(c);
	failed = run(m, n_events);
	scheduler_free(m->s);
	scheduler_free(m->twin);
	fake_device_free(m->device);
	for (uint32_t i = 0; i < m->n_requests; i++)
		free(m->requests[i]);
	free(m);
	return failed;
}
