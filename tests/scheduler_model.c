#include "tests/scheduler_model_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t model_n_alive(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		n += m->rules.requests[i].used;
	return n;
}

static bool transfers(const struct rule_request *q)
{
	return q->used && (q->ships || (q->place == RULE_RECEIVES && !rules_over(q)));
}

static uint32_t n_transfers(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		n += transfers(&m->rules.requests[i]);
	return n;
}

/* Returns the k-th request that is used, from 0. */
static struct rule_request *alive(struct model *m, uint32_t k)
{
	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		if (m->rules.requests[i].used && k-- == 0)
			return &m->rules.requests[i];
	return NULL;
}

static void take_mirror(struct model *m)
{
	struct mirror *swap = m->now;

	m->now = m->other;
	m->other = swap;
	mirror_take(m->now, scheduler_cache(m->s), &m->rules.cache);
}

/* ---- plans ---- */

static void count_plan(struct model *m, const struct plan *p)
{
	struct model_counts *n = m->counts;
	const struct rule_plan *plan = &m->rules.plans[m->rules.planned % 2];

	n->plans++;
	n->rows += p->n_rows;
	n->draws += p->n_draws;
	n->page_copies += p->n_page_copies;
	n->state_copies += p->n_state_copies;
	n->resets += p->n_resets;
	n->scored_tokens += p->n_scored_tokens;
	n->ship_rows += p->n_ships;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];

		n->snapshots += p->rows[i].n_snapshots;
		n->paced_windows +=
			!row->decode && row->start > m->rules.requests[row->q].span_start;
		n->unseen_tokens += !p->rows[i].tokens;
	}
}

/* Draws a token for every draw, and runs the plan on the fake device. */
static const char *run_plan(struct model *m, const struct plan *p)
{
	struct rules *r = &m->rules;
	const struct rule_plan *plan = &r->plans[r->planned % 2];
	struct draw_result *results = m->results[r->planned % 2];
	struct fake_history rows[RULES_SEQS], draws[RULES_SEQS];
	const char *failed;
	uint32_t d = 0;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		struct rule_request *q = &r->requests[row->q];
		struct rule_choice *c = &q->choices[row->c];
		uint32_t end = row->start + row->n_tokens, n_prompt = MIN(end, q->r.n_prompt);

		rows[i] = (struct fake_history){.prompt = q->prompt,
						.generated = c->generated,
						.n_prompt = n_prompt,
						.n_generated = end - n_prompt,
						.decoded = c->decoded,
						.learn = row->learn};
		for (uint32_t k = 0; k < row->n_draws; k++, d++) {
			struct rule_choice *drawn = &q->choices[row->draws[k]];
			int32_t token = (int32_t)model_below(m->src, LETTERS);

			if (q->r.n_end_tokens && !p->draws[d].n_banned && model_chance(m, 12))
				token = q->ends[model_below(m->src, q->r.n_end_tokens)];
			draws[d] = (struct fake_history){.prompt = q->prompt,
							 .generated = drawn->generated,
							 .n_prompt = q->r.n_prompt,
							 .n_generated = row->positions[k]};
			drawn->generated[row->positions[k]] = token;
			results[d] = (struct draw_result){.token = token};
		}
	}
	failed = model_check_scores(m, p, plan, results + p->n_draws);
	failed = failed ? failed : model_check_poolings(m, p, plan);
	failed = failed ? failed : fake_device_run(m->device, p, rows);
	failed = failed ? failed : fake_device_draw(m->device, p, draws, results);
	for (uint32_t i = 0; !failed && i < p->n_ships; i++)
		failed = model_check_ship(m, &r->requests[plan->rows[p->ships[i].row].q]);
	for (uint32_t i = 0; !failed && i < p->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		const struct rule_request *q = &r->requests[row->q];
		bool decoded = false;

		for (uint32_t k = 0; row->learn && k < MIN(row->start, q->r.n_prompt); k++)
			decoded |= q->choices[row->c].decoded[k];
		EXPECT(!decoded || !q->clean);
		m->counts->decoded_hits += decoded;
	}
	return failed;
}

/* Sometimes flushes the first scheduler's cache, and shuffles the second one's ids, which empties its cache. While
 * there is a request, both must refuse. */
static const char *shuffle_twin(struct model *m)
{
	bool alive_any = model_n_alive(m) > 0;

	if (!model_chance(m, alive_any ? 256 : 32))
		return NULL;
	m->counts->flushes++;
	EXPECT(scheduler_flush(m->s) == (alive_any ? -EBUSY : 0));
	EXPECT(scheduler_shuffle(m->twin, model_below(m->src, 256)) == (alive_any ? -EBUSY : 0));
	if (alive_any)
		return NULL;
	m->names = (struct plan_names){.n_slots = m->config.n_slots};
	m->marks = (struct rule_marks){0};
	take_mirror(m);
	EXPECT(m->now->n == 0);
	return NULL;
}

/* Moves r to the next combination of answers in doubt (rules.tried); false: all have been tried. */
static bool next_try(struct rules *r, const struct rules *tried)
{
	for (uint32_t k = tried->n_tried; k-- > 0;) {
		if (r->tried[k] + 1 < tried->of[k]) {
			r->tried[k]++;
			return true;
		}
		r->tried[k] = 0;
	}
	return false;
}

/* Lets the rules plan, too, with the answers of rules.tried. Returns NULL if it is the plan that was made (p), or the
 * condition that failed. */
static const char *try_plan(struct model *m, const struct plan *p)
{
	const char *failed;

	m->trial = m->rules;
	failed = model_check_made(m, p, rules_plan(&m->trial));
	if (!failed && p)
		failed = plan_check(&m->trial, p);
	if (failed)
		return failed;
	m->rules = m->trial;
	if (p)
		plan_learn_ids(&m->rules, p);
	return NULL;
}

/* Finds, of the plans that may be right, the one that was made (p). Returns NULL, or the condition that failed for the
 * first of them. */
static const char *follow_plan(struct model *m, const struct plan *p)
{
	const char *first;
	uint32_t n = 0;

	memset(m->rules.tried, 0, sizeof(m->rules.tried));
	m->rules.before = m->other;
	m->rules.after = m->now;
	first = try_plan(m, p);
	if (!first)
		return NULL;
	m->counts->doubts += next_try(&m->rules, &m->trial);
	memset(m->rules.tried, 0, sizeof(m->rules.tried));
	while (++n < TRIES_MAX && next_try(&m->rules, &m->trial))
		if (!try_plan(m, p))
			return NULL;
	/* The first answers were those of the cache before the plan. The last are those of the cache after it: the first
	 * of many admissions may have evicted all that the others could have used. */
	memset(m->rules.tried, 0xff, sizeof(m->rules.tried));
	return try_plan(m, p) ? first : NULL;
}

static const char *do_plan(struct model *m)
{
	const char *failed = shuffle_twin(m);
	bool pinned[RULES_SLOTS] = {0};
	uint64_t retractions = m->rules.retractions, waits = m->rules.shared_waits;
	uint64_t receives = m->rules.receives, grown = m->rules.grown;
	struct scheduler_stats before, after;
	const struct plan *p, *twin;

	if (failed)
		return failed;
	rules_mark_slots(&m->rules, pinned);
	scheduler_stats(m->s, &before);
	p = scheduler_plan(m->s);
	twin = scheduler_plan(m->twin);
	failed = plan_compare(&m->names, p, twin);
	if (failed)
		return failed;
	take_mirror(m);
	model_mark_evicted(m);
	failed = follow_plan(m, p);
	model_forget_marks(m);
	/* If a request was retracted, the states that it was to read may leave the cache. */
	if (!failed && retractions == m->rules.retractions)
		failed = model_check_pinned(m, pinned);
	if (failed)
		return failed;
	if (p) {
		count_plan(m, p);
		failed = run_plan(m, p);
		return failed ? failed : model_check_published(m);
	}
	scheduler_stats(m->s, &after);
	/* No plan, and no request was retracted, or has begun to follow or to receive, or got a page for a draw that
	 * waits for the token before: nothing changed. */
	if (retractions == m->rules.retractions && waits == m->rules.shared_waits &&
	    receives == m->rules.receives && grown == m->rules.grown)
		EXPECT(!memcmp(&before, &after, sizeof(before)));
	/* If no plan is out and no prompt is to come or to be sent, a request can run: none is ever stuck. */
	EXPECT(m->rules.planned > m->rules.committed || !model_n_alive(m) || n_transfers(m));
	return NULL;
}

/* ---- commits ---- */

/* Sometimes gives a choice that needs it another token mask. */
static void allow(struct model *m, struct rule_request *q, uint32_t choice)
{
	if (!q->r.needs_last || !model_chance(m, 2))
		return;
	q->choices[choice].allowed = model_mask(m);
	scheduler_allow(m->s, q->id, choice, q->choices[choice].allowed);
	scheduler_allow(m->twin, q->twin_id, choice, q->choices[choice].allowed);
}

static const char *do_commit(struct model *m)
{
	struct scheduler_event events[2 * RULES_SEQS], twin_events[2 * RULES_SEQS];
	struct rules *r = &m->rules;
	uint64_t number = r->committed + 1;
	const struct draw_result *results = m->results[number % 2];
	struct rule_event want[RULES_SEQS];
	uint32_t n = scheduler_commit(m->s, results, events), e = 0, n_want, n_draws = 0;
	uint32_t n_twin = scheduler_commit(m->twin, results, twin_events);
	const char *failed = NULL;

	EXPECT(n == n_twin);
	m->trial = *r; /* the requests as they were: those that end are gone afterwards */
	n_want = rules_commit(r, want);
	for (uint32_t i = 0; i < n_want; i++)
		n_draws += !want[i].undrawn;
	failed = model_take_scores(m, &m->trial.plans[number % 2], results + n_draws, events, &n);
	if (!failed)
		failed = model_take_scores(m, &m->trial.plans[number % 2], results + n_draws,
					   twin_events, &n_twin);
	for (uint32_t i = 0; !failed && i < n_want; i++) {
		const struct rule_request *q = &m->trial.requests[want[i].q];
		const struct draw_result *draw = want[i].undrawn ? NULL : results++;

		m->counts->undrawn += want[i].undrawn;
		if (!want[i].event) {
			m->counts->late_results++;
			continue;
		}
		EXPECT(e < n && twin_events[e].request == q->twin_id);
		failed = model_check_event(m, &events[e++], &want[i], q, draw);
		if (want[i].finish != FINISH_NONE)
			model_remember(m, q, &r->requests[want[i].q].choices[want[i].c]);
		else
			allow(m, &r->requests[want[i].q], want[i].c);
	}
	if (failed)
		return failed;
	EXPECT(e == n);
	take_mirror(m);
	model_forget_marks(m);
	failed = model_check_published(m);
	failed = failed ? failed : model_check_kept(m, &r->plans[number % 2]);
	return failed ? failed : model_check_cache(m);
}

static const char *do_fail(struct model *m)
{
	struct scheduler_event events[2 * RULES_SEQS], twin_events[2 * RULES_SEQS];
	uint32_t n = scheduler_fail(m->s, events), want[2 * RULES_SEQS], n_want;

	EXPECT(scheduler_fail(m->twin, twin_events) == n);
	m->counts->failed_steps++;
	m->trial = m->rules;
	n_want = rules_fail(&m->rules, want);
	EXPECT(n == n_want && n <= m->config.max_seqs);
	for (uint32_t i = 0; i < n; i++) {
		const struct rule_request *q = &m->trial.requests[want[i]];

		EXPECT(events[i].request == q->id && events[i].user == q->r.user);
		EXPECT(!events[i].draw && events[i].request_finished);
		EXPECT(events[i].finish == FINISH_NONE &&
		       events[i].hit.n_cached == q->hit.n_cached);
	}
	take_mirror(m);
	EXPECT(!rules_seats(&m->rules) && m->now->n == 0);
	m->marks = (struct rule_marks){0};
	return model_check_cache(m);
}

/* ---- between workers ---- */

/* Takes every prompt that is to come from another worker; they must come in the order of admission. */
static const char *take_prepares(struct model *m)
{
	struct scheduler_prepare p, twin;

	for (;;) {
		struct rule_request *next = NULL;
		struct rule_choice *t;
		uint32_t P = m->config.page_tokens, n_choices;
		const char *failed;

		each_request (q, &m->rules) {
			if (transfers(q) && !q->ships && !q->prepared &&
			    (!next || q->order < next->order))
				next = q;
		}
		EXPECT(scheduler_next_prepare(m->s, &p) == !!next);
		EXPECT(scheduler_next_prepare(m->twin, &twin) == !!next);
		if (!next)
			return NULL;
		EXPECT(p.request == next->id && twin.request == next->twin_id &&
		       p.user == next->r.user);
		EXPECT(p.ask.n_prompt == next->r.n_prompt && p.ask.n_have == next->have &&
		       !memcmp(p.ask.prompt, next->prompt, p.ask.n_prompt * sizeof(int32_t)));
		for (n_choices = next->r.n_choices; next->choices[n_choices - 1].ended;)
			n_choices--;
		EXPECT(p.ask.n_choices == n_choices && p.ask.max_tokens == 1 &&
		       p.ask.handoff == HANDOFF_SEND);
		EXPECT(p.n_pages == CEIL_DIV(next->r.n_prompt, P) - next->have / P);
		EXPECT((p.slot != POOL_NONE) == (m->config.n_slots > 0));
		failed = plan_compare_prepare(&m->names, &p, &twin);
		if (failed)
			return failed;
		t = &next->choices[next->trunk];
		for (uint32_t i = 0; i < p.n_pages; i++)
			t->pages[next->have / P + i] = p.pages[i];
		t->slot = p.slot;
		next->prepared = true;
		m->counts->pages_not_sent += next->have / P;
		/* The data arrive at once here; the request reads them later. */
		fake_device_receive(m->device, &p);
	}
}

/* Lets q's prompt and its first tokens arrive. */
static const char *receive(struct model *m, struct rule_request *q)
{
	struct scheduler_event events[RULES_SEQS], twin_events[RULES_SEQS];
	struct draw_result results[RULES_SEQS];
	struct rule_event want[RULES_SEQS];
	int32_t tokens[RULES_SEQS];
	uint64_t id = q->id, twin_id = q->twin_id;
	uint32_t n, n_want;
	const char *failed = NULL;

	for (uint32_t k = 0; k < q->r.n_choices; k++) {
		tokens[k] = (int32_t)model_below(m->src, LETTERS);
		if (q->r.n_end_tokens && !q->r.min_tokens && model_chance(m, 12))
			tokens[k] = q->ends[model_below(m->src, q->r.n_end_tokens)];
		results[k] = (struct draw_result){.token = tokens[k]};
	}
	n = scheduler_received(m->s, id, results, events);
	EXPECT(scheduler_received(m->twin, twin_id, results, twin_events) == n);
	take_mirror(m);
	model_mark_evicted(m);
	model_forget_marks(m);
	m->rules.after = m->now;
	n_want = rules_received(&m->rules, q, tokens, want);
	EXPECT(n == n_want && n > 0);
	for (uint32_t i = 0; !failed && i < n; i++) {
		EXPECT(twin_events[i].request == twin_id);
		failed = model_check_event(m, &events[i], &want[i], q, &results[want[i].c]);
		if (want[i].finish != FINISH_NONE)
			model_remember(m, q, &q->choices[want[i].c]);
	}
	if (failed)
		return failed;
	EXPECT(scheduler_received(m->s, id, results, events) == 0);
	scheduler_receive_failed(m->s, id, false);
	m->counts->received++;
	m->counts->received_checkpoints += q->used && q->choices[0].pinned;
	failed = model_check_published(m);
	return failed ? failed : model_check_cache(m);
}

/* Takes a request that receives or ships: its prompt arrives or fails, or its ships are read, or it is aborted. */
static const char *do_transfer(struct model *m)
{
	struct rule_request *q = NULL;
	const char *failed = take_prepares(m);
	uint32_t k = n_transfers(m);

	if (failed || !k)
		return failed;
	k = model_below(m->src, k);
	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		if (transfers(&m->rules.requests[i]) && k-- == 0)
			q = &m->rules.requests[i];
	if (q->ships) {
		failed = model_check_ship(m, q);
		if (failed)
			return failed;
		/* Counts the pages in whose place the cache had equal ones: the request's own pages are read. */
		for (uint32_t i = 0; i < q->n_shipped; i++)
			m->counts->exchanged_pages +=
				q->ship_pages[i] != POOL_NONE &&
				q->ship_pages[i] != q->choices[q->trunk].pages[i];
		if (model_chance(m, 8)) {
			scheduler_abort(m->s, q->id);
			scheduler_abort(m->twin, q->twin_id);
			m->counts->ships_aborted++;
		} else {
			EXPECT(scheduler_received(m->s, q->id, NULL, NULL) == 0);
			scheduler_shipped(m->s, q->id);
			scheduler_shipped(m->twin, q->twin_id);
			m->counts->shipped++;
		}
		scheduler_shipped(m->s, q->id);
		rules_shipped(&m->rules, q);
	} else {
		bool again = model_chance(m, 2);

		scheduler_shipped(m->s, q->id);
		if (!model_chance(m, 4))
			return receive(m, q);
		scheduler_receive_failed(m->s, q->id, again);
		scheduler_receive_failed(m->s, q->id, again);
		scheduler_receive_failed(m->twin, q->twin_id, again);
		rules_receive_failed(&m->rules, q, again);
		*(again ? &m->counts->receives_again : &m->counts->receives_local) += 1;
	}
	take_mirror(m);
	return model_check_cache(m);
}

/* ---- requests ---- */

static bool queue_full(const struct model *m)
{
	uint32_t n = 0;

	each_request (q, &m->rules) {
		n += !rules_over(q) && q->place != RULE_ADMITTED && q->place != RULE_RECEIVES &&
		     !q->retracted;
	}
	return m->config.max_waiting && n >= m->config.max_waiting;
}

static const char *do_submit(struct model *m)
{
	struct rule_request *q = NULL;
	struct scheduler_request r;
	int want, err, twin_err;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		if (!m->rules.requests[i].used)
			q = &m->rules.requests[i];
	if (!q)
		return NULL;
	model_draw_request(m, q);
	r = q->r;
	r.prompt = q->prompt;
	r.end_tokens = q->ends;
	r.boundaries = q->boundaries;
	err = scheduler_submit(m->s, &r, &q->id, NULL);
	twin_err = scheduler_submit(m->twin, &r, &q->twin_id, NULL);
	want = !model_acceptable(m, q) ? -EINVAL : queue_full(m) ? -EAGAIN : 0;
	EXPECT(err == want && twin_err == want && !q->id == !!want);
	m->counts->refused += want == -EINVAL;
	m->counts->queue_full += want == -EAGAIN;
	if (want)
		return NULL;
	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		EXPECT(!m->rules.requests[i].used || m->rules.requests[i].id < q->id);
	q->used = true;
	m->counts->submitted++;
	return NULL;
}

static const char *do_abort(struct model *m)
{
	struct rule_request *q;
	uint64_t id;

	if (!model_n_alive(m)) {
		scheduler_abort(m->s, model_below(m->src, 100));
		return NULL;
	}
	q = alive(m, model_below(m->src, model_n_alive(m)));
	id = q->id;
	scheduler_abort(m->s, id);
	scheduler_abort(m->twin, q->twin_id);
	m->counts->aborted++;
	rules_abort(&m->rules, q);
	if (model_chance(m, 4)) {
		scheduler_abort(m->s, id);
		scheduler_finish_choice(m->s, id, 0);
	}
	take_mirror(m);
	return NULL;
}

static const char *do_finish_choice(struct model *m)
{
	struct rule_request *q;
	uint32_t k;

	if (!model_n_alive(m))
		return NULL;
	q = alive(m, model_below(m->src, model_n_alive(m)));
	k = model_below(m->src, q->r.n_choices + 1);
	scheduler_finish_choice(m->s, q->id, k);
	scheduler_finish_choice(m->twin, q->twin_id, k);
	rules_finish_choice(&m->rules, q, k);
	m->counts->choices_ended++;
	take_mirror(m);
	return NULL;
}

static uint64_t n_out(const struct model *m)
{
	return m->rules.planned - m->rules.committed;
}

static const char *do_pace(struct model *m)
{
	m->rules.pace = 1 + model_below(m->src, 2 * m->config.max_prefill_tokens);
	scheduler_pace(m->s, m->rules.pace);
	scheduler_pace(m->twin, m->rules.pace);
	return NULL;
}

static const char *do_something(struct model *m)
{
	uint32_t op = model_below(m->src, 40);

	m->counts->events++;
	if (op < 7)
		return do_submit(m);
	if (op == 7)
		return do_abort(m);
	if (op == 8)
		return do_finish_choice(m);
	if (op == 10 && model_chance(m, 4))
		return do_pace(m);
	if (op >= 36 && n_transfers(m))
		return do_transfer(m);
	if (!n_out(m))
		return do_plan(m);
	if (op == 9 && model_chance(m, 6))
		return do_fail(m);
	return n_out(m) < m->config.max_plans_out && op % 2 ? do_plan(m) : do_commit(m);
}

/* Checks that every request that is left completes in a bounded number of steps. */
static const char *drain(struct model *m)
{
	uint64_t steps = 50 + 100 * model_n_alive(m);

	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		const struct scheduler_request *r = &m->rules.requests[i].r;

		if (m->rules.requests[i].used)
			steps += 2 * (r->n_prompt + (uint64_t)r->n_choices * r->max_tokens) *
				 (model_n_alive(m) + 1);
	}
	for (;;) {
		const char *failed = n_out(m) ? do_commit(m) : NULL;

		if (!failed && n_transfers(m) && (!n_out(m) || model_chance(m, 2)))
			failed = do_transfer(m);
		failed = failed ? failed : model_check_stats(m);
		while (!failed && n_out(m) < m->config.max_plans_out) {
			uint64_t n = n_out(m);

			failed = do_plan(m);
			m->counts->events++;
			if (n_out(m) == n)
				break;
		}
		if (failed || (!n_out(m) && !n_transfers(m)))
			return failed;
		m->counts->events++;
		EXPECT(steps-- > 0);
	}
}

static const char *run(struct model *m, uint32_t n_events)
{
	const char *failed = NULL;

	for (uint32_t i = 0; !failed && i < n_events; i++) {
		if (m->src->bytes && !m->src->n_bytes)
			break;
		failed = do_something(m);
		if (!failed)
			failed = model_check_stats(m);
	}
	/* Some lives end here, in any state, with plans out or without. */
	if (!failed && model_chance(m, 16))
		return NULL;
	if (!failed)
		failed = drain(m);
	return failed ? failed : model_check_baseline(m);
}

static void add_up(struct model *m)
{
	struct model_counts *n = m->counts;
	struct scheduler_stats st;

	scheduler_stats(m->s, &st);
	n->shared_waits += m->rules.shared_waits;
	n->retractions += m->rules.retractions;
	n->receives += m->rules.receives;
	n->replayed_tokens += m->rules.replayed_tokens;
	n->admissions_refused += m->rules.admissions_refused;
	n->cut_prompts += m->rules.cut_prompts;
	n->paused += m->rules.paused;
	n->awaited += m->rules.awaited;
	n->gathered += m->rules.gathered;
	n->joined += m->rules.joined;
	n->alone += m->rules.alone;
	n->held_back += m->rules.held_back;
	n->gave_way += m->rules.gave_way;
	n->evicted_pages += st.cache.evicted_pages;
	n->evicted_slots += st.cache.evicted_slots;
}

const char *model_run(struct source *src, uint32_t n_events, struct model_counts *counts)
{
	struct model *m = calloc(1, sizeof(*m));
	const char *failed;

	m->src = src;
	m->counts = counts;
	m->now = &m->mirrors[0];
	m->other = &m->mirrors[1];
	model_draw_config(m);
	if (scheduler_new(&m->config, &m->s, NULL) < 0 ||
	    scheduler_new(&m->config, &m->twin, NULL) < 0)
		abort();
	m->device = fake_device_new(&m->config);
	m->rules.config = m->config;
	m->names.n_slots = m->config.n_slots;
	m->rules.cache.page_tokens = m->config.page_tokens;
	m->rules.cache.state_tokens = m->config.state_tokens;
	m->rules.align = MAX(m->config.page_tokens, m->config.state_tokens);
	m->rules.head = -1;
	m->rules.evicted = &m->marks;
	take_mirror(m);
	failed = run(m, n_events);
	add_up(m);
	scheduler_free(m->s);
	scheduler_free(m->twin);
	fake_device_free(m->device);
	free(m);
	return failed;
}
