#include "daemon/steps/live.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
#include "protocol/output/steering.h"

void live_refuse(struct live *l, struct call *c, const struct err *why)
{
	call_drop_steering(c);
	call_fail(c, why);
	call_count_error(c, why->code);
	call_unref(c);
}

/* ---- ending calls ---- */

/* Ends a live call, for which no token will come any more. Drops the work's reference (call.h). */
static void finish_call(struct call *c) ON(role_engine)
{
	c->engine.n_running = 0;
	list_remove(&c->engine.live);
	call_drop_steering(c);
	call_end(c);
	call_unqueue(c);
	call_wake(c);
	call_unref(c);
}

/* Ends a choice. If it was the last choice of its prompt (struct call_part) that ran, ends the work for that prompt,
 * too. Does not end the call. */
static void end_choice(struct live *l, struct call *c, uint32_t choice, enum metrics_finish why,
		       uint64_t now) ON(role_engine)
{
	struct call_part *p = &c->text.parts[choice / c->text.n];
	struct call_choice *ch = &c->text.choices[choice];
	struct metrics *m = &l->server->metrics;

	ch->ended = true;
	c->engine.n_running--;
	p->run.n_running--;
	p->run.most_tokens = MAX(p->run.most_tokens, ch->n_tokens);
	call_count(c, why);
	metrics_observe(m, METRICS_GENERATION_TOKENS, ch->n_tokens);
	if (ch->n_tokens > 1)
		metrics_observe(m, METRICS_TOKEN_TIME,
				(ch->last_ns - ch->first_ns) / (ch->n_tokens - 1));
	if (p->run.n_running)
		return;
	handoff_forget(l->handoff, p->run.id);
	metrics_observe(m, METRICS_PROMPT_TOKENS, p->n_prompt);
	metrics_observe(m, METRICS_MOST_TOKENS, p->run.most_tokens);
	metrics_observe(m, METRICS_N, c->text.n);
	metrics_observe(m, METRICS_MAX_TOKENS, p->max_tokens);
	metrics_observe(m, METRICS_E2E, now - c->arrived_ns);
	if (!p->run.first_ns)
		return;
	metrics_observe(m, METRICS_DECODE, now - p->run.first_ns);
	metrics_observe(m, METRICS_INFERENCE, now - p->run.begun_ns);
}

static void abort_part(struct live *l, const struct call_part *p) ON(role_engine)
{
	handoff_forget(l->handoff, p->run.id);
	record_abort(l->record, p->run.id);
	scheduler_abort(l->scheduler, p->run.id);
}

/* Ends a live call at once, whatever its state. */
static void stop_call(struct live *l, struct call *c, enum metrics_finish why) ON(role_engine)
{
	for (uint32_t i = 0; i < c->text.n_parts; i++)
		if (c->text.parts[i].run.id)
			abort_part(l, &c->text.parts[i]);
	call_count(c, why);
	finish_call(c);
}

void live_fail_all(struct live *l, const struct err *why)
{
	while (!list_empty(&l->calls)) {
		struct call *c = container_of(l->calls.next, struct call, engine.live);

		call_fail(c, why);
		stop_call(l, c, METRICS_ERROR);
	}
}

/* ---- messages ---- */

static int submit_part(struct live *l, struct call *c, struct call_part *p, struct err *e)
	ON(role_engine)
{
	struct scheduler_request q = {
		.prompt = p->prompt.v,
		.n_prompt = p->n_prompt,
		.max_tokens = p->max_tokens,
		.min_tokens = c->text.ask.min_tokens,
		.n_choices = c->text.n,
		.end_tokens = c->text.end_tokens,
		.n_end_tokens = c->text.n_end_tokens,
		.boundaries = p->boundaries,
		.n_boundaries = p->n_boundaries,
		.priority = c->text.ask.priority,
		.owner = c->owner,
		.space = c->text.space,
		.root_key = p->root_key,
		.page_keys = p->page_keys,
		.cache_disabled = !c->text.ask.cache_prompt,
		.handoff = handoff_of(l->handoff, p->n_prompt),
		.sampling = c->text.ask.sampling,
		.biases = c->text.ask.biases,
		.n_biases = c->text.ask.n_biases,
		.user = p,
	};
	int r = 0;

	if (c->text.steering) {
		q.needs_last = steering_depends(c->text.steering);
		r = steering_mask(c->text.steering, 0, &q.allowed, e);
		if (r < 0)
			return r;
	}
	q.prompt_logprobs = openai_wants_scores(&c->text.ask, &q.n_prompt_logprobs);
	q.sampling.seed = p->seed;
	p->run.call = c;
	p->run.n_running = c->text.n;
	r = scheduler_submit(l->scheduler, &q, &p->run.id, e);
	if (r == -EAGAIN)
		e->code = PROBLEM_QUEUE_FULL;
	if (r == 0)
		record_submit(l->record, p->run.id, &q);
	return r;
}

void live_submit(struct live *l, struct call *c)
{
	struct err e = {0};

	if (atomic_load(&c->aborted)) {
		call_drop_steering(c);
		call_count(c, METRICS_ABORT);
		call_unref(c);
		return;
	}
	for (uint32_t i = 0; i < c->text.n_parts; i++) {
		if (submit_part(l, c, &c->text.parts[i], &e) == 0)
			continue;
		while (i--)
			abort_part(l, &c->text.parts[i]);
		live_refuse(l, c, &e);
		return;
	}
	for (uint32_t i = 0; !call_shows_ids(c) && i < c->text.n_parts; i++)
		ids_release(&c->text.parts[i].prompt);
	c->engine.n_running = c->text.n_choices;
	list_append(&l->calls, &c->engine.live);
	call_accept(c);
}

void live_control(struct live *l, struct call *c)
{
	uint64_t now = clock_now_ns();

	call_control_taken(c);
	for (uint32_t i = 0; c->engine.n_running && i < c->text.n_choices; i++) {
		const struct call_part *p = &c->text.parts[i / c->text.n];

		if (c->text.choices[i].ended || !call_stop_wanted(c, i))
			continue;
		record_finish(l->record, p->run.id, i % c->text.n);
		scheduler_finish_choice(l->scheduler, p->run.id, i % c->text.n);
		end_choice(l, c, i, METRICS_STOP, now);
		if (!c->engine.n_running) {
			finish_call(c);
			return;
		}
	}
	if (c->engine.n_running && atomic_load(&c->aborted))
		stop_call(l, c, METRICS_ABORT);
}

/* ---- events ---- */

/* Lets the steering of a call take a token. The mask of the choice's next draw is then due. */
static void steer(struct call *c, uint32_t choice, int32_t token) ON(role_engine)
{
	if (!c->text.steering || !steering_depends(c->text.steering) || c->engine.broken)
		return;
	c->engine.broken = -steering_take(c->text.steering, choice, token, &c->engine.steering);
	c->text.choices[choice].mask_due = c->engine.masks_due = true;
}

/* Makes the masks of a call that are due, and gives them to the scheduler. On failure notes it in engine.broken. */
static void make_masks(struct live *l, struct call *c) ON(role_engine)
{
	c->engine.masks_due = false;
	for (uint32_t i = 0; i < c->text.n_choices && !c->engine.broken; i++) {
		struct call_choice *ch = &c->text.choices[i];
		const uint32_t *mask;

		if (!ch->mask_due || ch->ended)
			continue;
		ch->mask_due = false;
		c->engine.broken = -steering_mask(c->text.steering, i, &mask, &c->engine.steering);
		if (!c->engine.broken)
			scheduler_allow(l->scheduler, c->text.parts[i / c->text.n].run.id,
					i % c->text.n, mask);
	}
}

void live_planned(struct live *l, uint64_t step)
{
	l->planned[step % LIVE_STEPS].step = step;
	l->planned[step % LIVE_STEPS].ns = clock_now_ns();
}

/* Returns the time at which a step was planned. Returns `now` if that time is not kept any more (live.h), or if the
 * step is not planned yet, because the prompt came from another worker. */
static uint64_t planned_ns(const struct live *l, uint64_t step, uint64_t now)
{
	return step && l->planned[step % LIVE_STEPS].step == step ? l->planned[step % LIVE_STEPS].ns
								  : now;
}

static void note_first_token(struct live *l, struct call_part *p, uint64_t step, uint64_t now)
	ON(role_engine)
{
	uint64_t begun = planned_ns(l, step, now), none = 0;
	struct metrics *m = &l->server->metrics;
	struct call *c = p->run.call;

	p->run.first_ns = now;
	p->run.begun_ns = begun;
	metrics_observe(m, METRICS_QUEUE, begun - c->arrived_ns);
	metrics_observe(m, METRICS_TTFT, now - c->arrived_ns);
	metrics_observe(m, METRICS_PREFILL, now - begun);
	atomic_compare_exchange_strong(&c->report.first_token_ns, &none, now);
	call_unqueue_one(c);
}

static void take_token(struct live *l, const struct scheduler_event *ev, struct call_part *p,
		       uint64_t now) ON(role_engine)
{
	struct call *c = p->run.call;
	uint32_t choice = (uint32_t)(p - c->text.parts) * c->text.n + ev->choice;
	struct call_choice *ch = &c->text.choices[choice];
	struct metrics *m = &l->server->metrics;

	if (!p->run.first_ns)
		note_first_token(l, p, ev->hit.step, now);
	if (ch->last_ns)
		metrics_observe(m, METRICS_ITL, now - ch->last_ns);
	else
		ch->first_ns = now;
	ch->last_ns = now;
	if (!c->text.ask.prompt_only) {
		ch->n_tokens++;
		atomic_fetch_add(&m->generation_tokens, 1);
		atomic_fetch_add(&c->report.n_generated, 1);
	}
	if (!c->engine.broken)
		c->engine.broken = -call_push(c, choice, ev->finish, ev->draw);
	if (ev->finish == FINISH_NONE)
		steer(c, choice, ev->draw->token);
	else
		end_choice(l, c, choice, ev->finish == FINISH_STOP ? METRICS_STOP : METRICS_LENGTH,
			   now);
}

/* Returns whether the logits of the event's draw, or of one of its scores, are not finite. */
static bool has_failed(const struct scheduler_event *ev)
{
	for (uint32_t i = 0; i < ev->n_scores; i++)
		if (ev->scores[i].token < 0)
			return true;
	return ev->draw && ev->draw->token < 0;
}

static void take_event(struct live *l, const struct scheduler_event *ev, uint64_t now,
		       uint32_t *n_touched) ON(role_engine)
{
	struct call_part *p = ev->user;
	struct call *c = p->run.call;

	if (!p->run.hit_known) {
		p->run.hit_known = true;
		call_hit(c, &ev->hit);
	}
	if (!c->engine.touched) {
		c->engine.touched = true;
		l->touched[(*n_touched)++] = c;
	}
	if (has_failed(ev))
		c->engine.broken = EDOM;
	else if (!ev->scores)
		take_token(l, ev, p, now);
	else if (!c->engine.broken)
		c->engine.broken = -call_push_scores(c, (uint32_t)(p - c->text.parts), ev->scores,
						     ev->n_scores);
}

static void fail_call(struct live *l, struct call *c) ON(role_engine)
{
	struct err e;

	if (c->engine.broken == EDOM) {
		err_set(&e, PROBLEM_INTERNAL,
			"the model computed NaN or infinite numbers for this request");
		log_error("%s: %s", c->id, e.text);
		atomic_fetch_add(&l->server->metrics.not_finite, 1);
	} else if (c->engine.broken == ENOBUFS) {
		err_set(&e, PROBLEM_UNREAD, "the answer is read too slowly");
		log_warning("%s: %s", c->id, e.text);
		atomic_fetch_add(&l->server->metrics.unread, 1);
	} else if (c->engine.broken != ENOMEM) {
		e = c->engine.steering;
	} else {
		err_no_memory(&e);
	}
	call_fail(c, &e);
}

/* Masks of requests that run are dropped when they are used, if memory is tight. Here they are dropped of those that
 * wait. */
static void trim_steering(struct live *l) ON(role_engine)
{
	const struct server *s = l->server;

	/* An owner may have half, of which three quarters are tight (base/account.h). */
	if (atomic_load(&s->metrics.constraint_bytes) <= s->options.constraint_memory / 8 * 3)
		return;
	list_for_each (c, &l->calls, struct call, engine.live)
		if (c->text.steering)
			steering_trim(c->text.steering);
}

void live_deliver(struct live *l, const struct scheduler_event *events, uint32_t n)
{
	uint64_t now = clock_now_ns();
	uint32_t n_touched = 0, n_wake = 0, n_steered = 0;

	for (uint32_t i = 0; i < n; i++)
		take_event(l, &events[i], now, &n_touched);
	for (uint32_t i = 0; i < n_touched; i++) {
		struct call *c = l->touched[i];

		c->engine.touched = false;
		if (c->engine.broken)
			fail_call(l, c);
		if (!c->engine.n_running) {
			finish_call(c);
			continue;
		}
		if (c->engine.broken) {
			stop_call(l, c, METRICS_ERROR);
			continue;
		}
		if (call_wants_tokens(c))
			l->touched[n_wake++] = c;
		if (c->engine.masks_due)
			l->steered[n_steered++] = c;
	}
	call_wake_all(l->touched, n_wake);
	/* Clients have their tokens before the masks of the next ones are made. */
	for (uint32_t i = 0; i < n_steered; i++) {
		struct call *c = l->steered[i];

		make_masks(l, c);
		if (!c->engine.broken)
			continue;
		fail_call(l, c);
		stop_call(l, c, METRICS_ERROR);
	}
	trim_steering(l);
}
