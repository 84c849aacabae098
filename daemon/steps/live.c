#include "daemon/steps/live.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
#include "engine/engine.h"
#include "protocol/output/steering.h"

void live_refuse(struct live *l, struct call *c, const struct err *why)
{
	call_drop_steering(c);
	call_fail(c, why);
	call_count_error(c, why->code);
	call_unref(c);
}

/* ---- ending calls ---- */

/* Takes the prompts of a call that are ahead or behind out of the sums. */
static void forget_prompts(struct live *l, const struct call *c) ON(role_engine)
{
	l->n_ahead -= c->engine.n_submitted - c->engine.n_prefilled;
	l->n_behind -= c->text.n_parts - c->engine.n_submitted;
}

/* Ends a live call, for which no token will come any more. Drops the work's reference (call.h). */
static void finish_call(struct live *l, struct call *c) ON(role_engine)
{
	forget_prompts(l, c);
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
	finish_call(l, c);
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
	enum openai_task task = c->text.ask.task;
	struct scheduler_request q = {
		.prompt = p->prompt.v,
		.n_prompt = p->n_prompt,
		.max_tokens = p->max_tokens,
		.min_tokens = c->text.ask.min_tokens,
		/* A request that draws nothing has one end, which is that of all choices (take_end). */
		.n_choices = p->max_tokens ? c->text.n : 1,
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
		.handoff = p->max_tokens ? handoff_of(l->handoff, p->n_prompt) : HANDOFF_NONE,
		.pooling = task == TASK_EMBED ? c->text.ask.embed.pooling : POOLING_NONE,
		.sampling = c->text.ask.sampling,
		.biases = c->text.ask.biases,
		.n_biases = c->text.ask.n_biases,
		.user = p,
	};
	int r = 0;

	if (c->text.steering) {
		q.needs_last = steering_depends(c->text.steering);
		r = steering_mask(c->text.steering, (uint32_t)(p - c->text.parts) * c->text.n,
				  &q.allowed, e);
		if (r < 0)
			return r;
	}
	q.prompt_logprobs = openai_wants_scores(&c->text.ask, &q.n_prompt_logprobs);
	if (task == TASK_SCORE) {
		q.prompt_logprobs = true;
		q.first_score = p->first_score;
	}
	q.sampling.seed = p->seed;
	/* Then the answer needs the likelihood of each choice. */
	q.sampling.want_logprobs |= c->text.ask.best_of > c->text.ask.n;
	p->run.call = c;
	p->run.n_running = c->text.n;
	r = scheduler_submit(l->scheduler, &q, &p->run.id, e);
	if (r == 0)
		record_submit(l->record, p->run.id, &q);
	return r;
}

/* Returns whether the call has a further prompt that may be ahead (live.h). */
static bool may_submit(const struct live *l, const struct call *c) ON(role_engine)
{
	const struct options *o = &l->server->options;
	const uint32_t ahead = c->engine.n_submitted - c->engine.n_prefilled;

	if (c->engine.n_submitted == c->text.n_parts)
		return false;
	return !ahead || (ahead < 2 * o->max_num_seqs && l->n_ahead < o->max_queued_requests);
}

static int submit_parts(struct live *l, struct call *c, struct err *e) ON(role_engine)
{
	while (may_submit(l, c)) {
		struct call_part *p = &c->text.parts[c->engine.n_submitted];
		int r = submit_part(l, c, p, e);

		if (r < 0)
			return r;
		if (!call_shows_ids(c))
			ids_release(&p->prompt);
		c->engine.n_submitted++;
		l->n_behind--;
		l->n_ahead++;
	}
	return 0;
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
	if (c->text.steering)
		steering_share(c->text.steering, &l->matchers);
	l->n_behind += c->text.n_parts;
	if (submit_parts(l, c, &e) < 0) {
		for (uint32_t i = 0; i < c->engine.n_submitted; i++)
			abort_part(l, &c->text.parts[i]);
		forget_prompts(l, c);
		live_refuse(l, c, &e);
		return;
	}
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
			finish_call(l, c);
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
	c->engine.broken = -steering_take(c->text.steering, choice, token, &c->engine.why);
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
		c->engine.broken = -steering_mask(c->text.steering, i, &mask, &c->engine.why);
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

/* Notes that a part's prompt has been computed. */
static void note_prefilled(struct live *l, struct call_part *p, uint64_t step, uint64_t now)
	ON(role_engine)
{
	struct metrics *m = &l->server->metrics;
	struct call *c = p->run.call;
	uint64_t none = 0;

	p->run.begun_ns = planned_ns(l, step, now);
	metrics_observe(m, METRICS_QUEUE, p->run.begun_ns - c->arrived_ns);
	metrics_observe(m, METRICS_PREFILL, now - p->run.begun_ns);
	atomic_compare_exchange_strong(&c->report.begun_ns, &none, p->run.begun_ns);
	l->n_ahead--;
	if (++c->engine.n_prefilled == c->text.n_parts)
		call_unqueue(c);
}

static void note_first_token(struct live *l, struct call_part *p, uint64_t step, uint64_t now)
	ON(role_engine)
{
	struct call *c = p->run.call;
	uint64_t none = 0;

	p->run.first_ns = now;
	metrics_observe(&l->server->metrics, METRICS_TTFT, now - c->arrived_ns);
	atomic_compare_exchange_strong(&c->report.first_token_ns, &none, now);
	note_prefilled(l, p, step, now);
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
	ch->n_tokens++;
	atomic_fetch_add(&m->generation_tokens, 1);
	atomic_fetch_add(&c->report.n_generated, 1);
	if (!c->engine.broken)
		c->engine.broken = -call_push(c, choice, ev->finish, ev->draw);
	if (ev->finish == FINISH_NONE)
		steer(c, choice, ev->draw->token);
	else
		end_choice(l, c, choice, ev->finish == FINISH_STOP ? METRICS_STOP : METRICS_LENGTH,
			   now);
}

/* Takes scores of tokens: adds them to the sum of a part that wants no more, or hands them to http. */
static void take_scores(struct call *c, struct call_part *p, const struct scheduler_event *ev)
	ON(role_engine)
{
	if (c->text.ask.task == TASK_SCORE) {
		for (uint32_t i = 0; i < ev->n_scores; i++)
			p->logprobs += (double)ev->scores[i].logprob;
	} else if (!c->engine.broken) {
		c->engine.broken = -call_push_scores(c, (uint32_t)(p - c->text.parts), ev->scores,
						     ev->n_scores);
	}
}

/* Copies the vector of a part whose prompt has been computed. */
static void take_vector(struct live *l, struct call_part *p, const struct scheduler_event *ev)
	ON(role_engine)
{
	uint32_t n = l->server->info.model.hidden_size;

	memcpy(p->vector, engine_pooled(l->engine, ev->pooling), n * sizeof(*p->vector));
	for (uint32_t i = 0; i < n; i++)
		if (!isfinite(p->vector[i]))
			p->run.call->engine.broken = EDOM;
}

/* Takes the end of a part that draws nothing, as that of all its choices. A vector or a score is all that was asked for,
 * so the part has stopped, though the scheduler says that it has all its tokens, none. An answer of max_tokens 0 is
 * cut. */
static void take_end(struct live *l, const struct scheduler_event *ev, struct call_part *p,
		     uint64_t now) ON(role_engine)
{
	struct metrics *m = &l->server->metrics;
	struct call *c = p->run.call;
	const enum openai_task task = c->text.ask.task;
	const bool stopped = task != TASK_GENERATE;
	const uint32_t first = (uint32_t)(p - c->text.parts) * c->text.n;

	if (ev->pooled)
		take_vector(l, p, ev);
	if (c->engine.broken)
		return;
	note_prefilled(l, p, ev->hit.step, now);
	if (task == TASK_EMBED)
		atomic_fetch_add(&m->embeddings, 1);
	if (task == TASK_SCORE)
		atomic_fetch_add(&m->scored_texts, 1);
	for (uint32_t i = first; i < first + c->text.n; i++) {
		if (!c->engine.broken)
			c->engine.broken = -call_push(c, i, stopped ? FINISH_STOP : FINISH_LENGTH,
						      &(struct draw_result){0});
		end_choice(l, c, i, stopped ? METRICS_STOP : METRICS_LENGTH, now);
	}
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
	else if (ev->scores)
		take_scores(c, p, ev);
	else if (ev->draw)
		take_token(l, ev, p, now);
	else
		take_end(l, ev, p, now);
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
		e = c->engine.why;
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
		if (!c->engine.broken && !atomic_load(&c->aborted) &&
		    submit_parts(l, c, &c->engine.why) < 0)
			c->engine.broken = c->engine.why.code;
		if (c->engine.broken)
			fail_call(l, c);
		if (!c->engine.n_running) {
			finish_call(l, c);
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
