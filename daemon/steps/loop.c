#include "daemon/steps/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/problem.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/identity.h"
#include "daemon/lifecycle.h"
#include "daemon/steps/mover.h"
#include "daemon/steps/record.h"
#include "daemon/threads.h"
#include "engine/store/key.h"
#include "engine/engine.h"
#include "scheduler/scheduler.h"

/* The time at which a step was planned is needed until the first token of the requests that it admitted: for more steps than
 * any prompt takes. */
enum { STEPS_KEPT = 4096 };

/* At the end, for writing the rest of the cache to disk. */
#define CLOSE_NS UINT64_C(5000000000)

struct loop {
	struct server *server;
	pthread_t thread;
	_Atomic bool draining;
	_Atomic bool quit, failing; /* set once; failing: nothing runs any more, everything fails */
	_Atomic bool ended;
	pthread_mutex_t failure_lock;
	struct err failure; /* guarded by failure_lock; why */

	/* the engine thread's */
	struct engine *engine;
	struct scheduler *scheduler;
	struct mover *mover;		  /* NULL: no tiers below the device */
	struct identity identity;	  /* theirs */
	struct handoff *handoff;	  /* NULL: prompts and answers are both computed here */
	struct record *record;		  /* NULL: not recording */
	uint64_t committed;		  /* the newest step that was */
	uint32_t draws[ENGINE_STEPS_OUT]; /* of step s at s % ENGINE_STEPS_OUT, while it is out */
	uint32_t n_out;			  /* steps that the device has: planned, not committed */
	struct call *live;		  /* calls the scheduler has; each a work reference */
	struct metrics_steps published;	  /* last */
	struct draw_result *results;	  /* [max_num_seqs + max_batched_tokens] */
	struct scheduler_event *events;	  /* [2 max_num_seqs] */
	struct call **touched;		  /* [max_num_seqs] */
	struct {
		uint64_t step, planned_ns;
	} times[STEPS_KEPT]; /* of step s at s % STEPS_KEPT */
};

static void start_failing(struct loop *l, const struct err *e)
{
	pthread_mutex_lock(&l->failure_lock);
	if (!atomic_load(&l->failing)) {
		l->failure = *e;
		atomic_store(&l->failing, true);
	}
	pthread_mutex_unlock(&l->failure_lock);
}

static void failure_of(struct loop *l, struct err *ret)
{
	pthread_mutex_lock(&l->failure_lock);
	*ret = l->failure;
	pthread_mutex_unlock(&l->failure_lock);
}

static struct sampling default_sampling(const struct model_config *m)
{
	return (struct sampling){
		.temperature = m->default_temperature,
		.top_p = m->default_top_p,
		.min_p = m->default_min_p,
		.top_k = m->default_top_k,
		.repetition_penalty = m->default_repetition_penalty,
	};
}

/* The library of hashes does not fail once it has worked; a key of zeros would only never be found.
 */
static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	if (content_key_next(before, tokens, n, ret) < 0)
		*ret = (struct content_key){0};
}

static int open_scheduler(struct loop *l, struct err *e)
{
	struct server *s = l->server;
	const struct options *o = &s->options;
	int r;
	struct scheduler_config config = {
		.page_tokens = (uint32_t)o->page_size,
		.state_tokens = s->info.slot_bytes ? (uint32_t)o->page_size : 0,
		.n_pages = s->info.n_pages,
		.n_slots = s->info.slot_bytes ? s->info.n_slots : 0,
		.page_bytes = s->info.page_bytes,
		.slot_bytes = s->info.slot_bytes,
		.cache_bytes = o->cache_memory.bytes,
		.cache_disabled = o->prefix_cache == OPTION_OFF,
		.refuse_decoded = o->cache_decoded == OPTION_OFF,
		.max_waiting = (uint32_t)o->max_queued_requests,
		.max_plans_out = ENGINE_STEPS_OUT,
		.max_seqs = (uint32_t)o->max_num_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = s->info.max_model_len,
		.vocab_size = s->info.model.vocab_size,
		.handoff_min_tokens = (uint32_t)o->disaggregation_min_tokens,
	};

	if (options_want_tiers(o))
		config.content_key = next_key;
	l->published.budget_bytes =
		config.n_pages * config.page_bytes + config.n_slots * config.slot_bytes;
	if (config.cache_bytes)
		l->published.budget_bytes = MIN(l->published.budget_bytes, config.cache_bytes);
	l->results =
		calloc((size_t)config.max_seqs + config.max_prefill_tokens, sizeof(*l->results));
	l->events = calloc(config.max_seqs, 2 * sizeof(*l->events));
	l->touched = calloc(config.max_seqs, sizeof(struct call *));
	if (!l->results || !l->events || !l->touched)
		return err_set(e, ENOMEM, "out of memory");
	r = scheduler_new(&config, &l->scheduler, e);
	if (r == 0 && o->record)
		r = record_open(o->record, &config, &l->record, e);
	return r;
}

/* The fingerprint of everything that may change the answer to the same request with the same seed: the program, the model (by
 * its name), the device, the element type. */
static void take_fingerprint(struct server *s)
{
	const struct options *o = &s->options;
	struct hash128 h = HASH128_INIT;
	char hex[33];

	hash128_text(&h, TIGON_VERSION);
	hash128_text(&h, s->base_name);
	hash128_text(&h, s->info.device_name);
	hash128_text(&h, s->info.driver);
	hash128_text(&h, s->info.kernels);
	if (s->info.other_bits[0])
		hash128_text(&h, s->info.other_bits);
	hash128_update(&h, &o->dtype, sizeof(o->dtype));
	if (o->synthetic)
		hash128_update(&h, &o->synthetic_seed, sizeof(o->synthetic_seed));
	hash128_hex(&h, hex);
	snprintf(s->fingerprint, sizeof(s->fingerprint), "fp_%.16s", hex);
}

static int open_engine(struct loop *l, struct err *e) ON(role_engine)
{
	struct server *s = l->server;
	const struct options *o = &s->options;
	struct engine_options eo = {
		.model_dir = o->model,
		.device = o->device,
		.program_cache = o->program_cache,
		.dump_activations = o->dump_activations,
		.dtype = (enum engine_dtype)o->dtype,
		.kernels = (enum engine_kernels)o->kernels,
		.device_memory = o->device_memory.bytes,
		.device_memory_share = o->device_memory.share,
		.cache_memory = o->cache_memory.bytes,
		.cache_memory_share = o->cache_memory.share,
		.page_tokens = (uint32_t)o->page_size,
		.max_seqs = (uint32_t)o->max_num_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = (uint32_t)o->max_model_len,
		.synthetic = o->synthetic,
		.synthetic_seed = o->synthetic_seed,
		.tuning = {.table = s->tuning, .any_bits = o->batch_invariant == OPTION_OFF},
	};
	uint64_t opened_ns = clock_read_ns(CLOCK_REALTIME);
	int r;

	if (o->record && options_want_tiers(o))
		return err_set(e, EINVAL,
			       "--record goes without --cache-dir and --host-cache-memory");
	r = engine_open(&eo, &l->engine, e);
	if (r < 0)
		return r;
	s->info = *engine_info(l->engine);
	l->identity.opened_ns = opened_ns;
	take_fingerprint(s);
	s->limits = (struct openai_limits){
		.vocab_size = s->info.model.vocab_size,
		.max_choices = (uint32_t)o->max_num_seqs,
		.defaults = default_sampling(&s->info.model),
	};
	l->published.pages = s->info.n_pages;
	r = open_scheduler(l, e);
	if (r == 0)
		r = mover_open(s, &l->identity, &l->server->inbox, &l->mover, e);
	if (r == 0)
		r = handoff_open(&(struct handoff_config){.server = s,
							  .engine = l->engine,
							  .scheduler = l->scheduler,
							  .record = l->record,
							  .inbox = &l->server->inbox,
							  .identity = &l->identity},
				 &l->handoff, e);
	return r;
}

/* Publishes for /metrics the state after this step or message. */
static void publish(struct loop *l) ON(role_engine)
{
	struct metrics_steps *m = &l->published;

	scheduler_stats(l->scheduler, &m->scheduler);
	engine_counters(l->engine, &m->device);
	if (l->mover)
		store_stats(mover_store(l->mover), &m->store);
	m->pages_used =
		m->pages - m->scheduler.cache.free_pages - m->scheduler.cache.evictable_pages;
	m->tree_tokens = m->scheduler.cache.tree_pages * l->server->options.page_size;
	metrics_publish(&l->server->metrics, m);
}

/* When this step was planned; `now` for one that is not known. */
static uint64_t planned_ns(const struct loop *l, uint64_t step, uint64_t now)
{
	return step && l->times[step % STEPS_KEPT].step == step
		       ? l->times[step % STEPS_KEPT].planned_ns
		       : now;
}

static void link_live(struct loop *l, struct call *c) ON(role_engine)
{
	c->engine.prev = NULL;
	c->engine.next = l->live;
	if (l->live)
		l->live->engine.prev = c;
	l->live = c;
}

static void unlink_live(struct loop *l, struct call *c) ON(role_engine)
{
	if (c->engine.prev)
		c->engine.prev->engine.next = c->engine.next;
	else
		l->live = c->engine.next;
	if (c->engine.next)
		c->engine.next->engine.prev = c->engine.prev;
}

/* A live call is over for the engine: drops the work's reference. */
static void finish_call(struct loop *l, struct call *c) ON(role_engine)
{
	c->engine.n_running = 0;
	unlink_live(l, c);
	call_end(c);
	call_unqueue(c);
	call_wake(c);
	call_unref(c);
}

/* A choice ends. Does not finish the call. */
static void end_choice(struct loop *l, struct call *c, uint32_t choice, enum metrics_finish why,
		       uint64_t now) ON(role_engine)
{
	struct call_part *p = &c->text.parts[choice / c->text.n];
	struct metrics *m = &l->server->metrics;

	c->text.choices[choice].ended = true;
	c->engine.n_running--;
	p->run.n_running--;
	call_count(c, why);
	if (!p->run.n_running) {
		handoff_forget(l->handoff, p->run.id);
		metrics_time(m, METRICS_E2E, now - c->arrived_ns);
		if (p->run.first_ns)
			metrics_time(m, METRICS_DECODE, now - p->run.first_ns);
	}
}

static void abort_part(struct loop *l, const struct call_part *p) ON(role_engine)
{
	handoff_forget(l->handoff, p->run.id);
	record_abort(l->record, p->run.id);
	scheduler_abort(l->scheduler, p->run.id);
}

/* Ends everything of a live call at once. */
static void stop_call(struct loop *l, struct call *c, enum metrics_finish why) ON(role_engine)
{
	for (uint32_t i = 0; i < c->text.n_parts; i++)
		if (c->text.parts[i].run.id)
			abort_part(l, &c->text.parts[i]);
	call_count(c, why);
	finish_call(l, c);
}

static int submit_part(struct loop *l, struct call *c, struct call_part *p, struct err *e)
	ON(role_engine)
{
	struct scheduler_request r = {
		.prompt = p->prompt.v,
		.n_prompt = (uint32_t)p->prompt.len,
		.max_tokens = p->max_tokens,
		.min_tokens = c->text.ask.min_tokens,
		.n_choices = c->text.n,
		.end_tokens = c->text.end_tokens,
		.n_end_tokens = c->text.n_end_tokens,
		.boundaries = p->boundaries,
		.n_boundaries = p->n_boundaries,
		.priority = c->text.ask.priority,
		.space = c->text.space,
		.root_key = p->root_key,
		.page_keys = p->page_keys,
		.cache_disabled = !c->text.ask.cache_prompt,
		.handoff = handoff_of(l->handoff, (uint32_t)p->prompt.len),
		.sampling = c->text.ask.sampling,
		.user = p,
	};

	int rc;

	r.prompt_logprobs = openai_wants_scores(&c->text.ask, &r.n_prompt_logprobs);
	r.sampling.seed = p->seed;
	rc = scheduler_submit(l->scheduler, &r, &p->run.id, e);
	if (rc == -EAGAIN)
		e->code = PROBLEM_QUEUE_FULL;
	if (rc == 0)
		record_submit(l->record, p->run.id, &r);
	return rc;
}

static void submit_call(struct loop *l, struct call *c) ON(role_engine)
{
	struct err e = {0};

	if (atomic_load(&l->failing)) {
		failure_of(l, &e);
		call_fail(c, &e);
		call_count(c, METRICS_ERROR);
		call_unref(c);
		return;
	}
	if (atomic_load(&c->aborted)) {
		call_count(c, METRICS_ABORT);
		call_unref(c);
		return;
	}
	for (uint32_t i = 0; i < c->text.n_parts; i++) {
		struct call_part *p = &c->text.parts[i];

		p->run.call = c;
		p->run.n_running = c->text.n;
		if (!submit_part(l, c, p, &e))
			continue;
		while (i--)
			abort_part(l, &c->text.parts[i]);
		call_fail(c, &e);
		/* A full queue is mostly found before there is a call; here as there, it is counted among the
		 * responses only. */
		if (e.code == PROBLEM_QUEUE_FULL)
			atomic_fetch_add(&c->report.finished[METRICS_ERROR], 1);
		else
			call_count(c, METRICS_ERROR);
		call_unref(c);
		return;
	}
	c->engine.n_running = c->text.n_choices;
	link_live(l, c);
	call_accept(c);
}

/* The client left, or a stop string ended choices. */
static void control_call(struct loop *l, struct call *c) ON(role_engine)
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

static void take_event(struct loop *l, const struct scheduler_event *ev, uint64_t now,
		       uint32_t *n_touched) ON(role_engine)
{
	struct call_part *p = ev->user;
	struct call *c = p->run.call;
	uint32_t choice = (uint32_t)(p - c->text.parts) * c->text.n + ev->choice;
	struct call_choice *ch = &c->text.choices[choice];
	struct metrics *m = &l->server->metrics;
	uint64_t none = 0;

	if (!p->run.hit_known) {
		p->run.hit_known = true;
		call_hit(c, &ev->hit);
	}
	if (!c->engine.touched) {
		c->engine.touched = true;
		l->touched[(*n_touched)++] = c;
	}
	if (ev->scores) {
		if (call_push_scores(c, (uint32_t)(p - c->text.parts), ev->scores, ev->n_scores) <
		    0)
			c->engine.broken = true;
		return;
	}
	if (!p->run.first_ns) {
		uint64_t admitted = planned_ns(l, ev->hit.step, now);

		p->run.first_ns = now;
		metrics_time(m, METRICS_QUEUE, admitted - c->arrived_ns);
		metrics_time(m, METRICS_TTFT, now - c->arrived_ns);
		metrics_time(m, METRICS_PREFILL, now - admitted);
		atomic_compare_exchange_strong(&c->report.first_token_ns, &none, now);
		call_unqueue(c);
	}
	if (ch->last_ns)
		metrics_time(m, METRICS_ITL, now - ch->last_ns);
	ch->last_ns = now;
	if (!c->text.ask.prompt_only) {
		atomic_fetch_add(&m->generation_tokens, 1);
		atomic_fetch_add(&c->report.n_generated, 1);
	}
	if (call_push(c, choice, ev->finish, ev->draw) < 0)
		c->engine.broken = true;
	if (ev->finish != FINISH_NONE)
		end_choice(l, c, choice, ev->finish == FINISH_STOP ? METRICS_STOP : METRICS_LENGTH,
			   now);
}

/* Hands the tokens of a step to their calls, then wakes each call once. */
static void deliver(struct loop *l, uint32_t n_events) ON(role_engine)
{
	uint64_t now = clock_now_ns();
	uint32_t n_touched = 0;

	for (uint32_t i = 0; i < n_events; i++)
		if (l->server->options.role == ROLE_PREFILL)
			handoff_event(l->handoff, &l->events[i]);
		else
			take_event(l, &l->events[i], now, &n_touched);
	for (uint32_t i = 0; i < n_touched; i++) {
		struct call *c = l->touched[i];

		c->engine.touched = false;
		if (c->engine.broken) {
			struct err e;

			err_set(&e, ENOMEM, "out of memory");
			call_fail(c, &e);
		}
		if (!c->engine.n_running)
			finish_call(l, c);
		else if (c->engine.broken)
			stop_call(l, c, METRICS_ERROR);
		else if (call_wants_tokens(c))
			call_wake(c);
	}
}

static void fail_live(struct loop *l) ON(role_engine)
{
	struct err e;

	failure_of(l, &e);
	while (l->live) {
		call_fail(l->live, &e);
		stop_call(l, l->live, METRICS_ERROR);
	}
}

static void lose_device(struct loop *l, struct err *e) ON(role_engine)
{
	log_error("a step failed: %s", e->text);
	/* Whatever it was, clients see that the server is at fault and may come again. */
	e->code = EIO;
	start_failing(l, e);
	lifecycle_fail(l->server->lifecycle, e);
	handoff_fail(l->handoff, e);
	/* fail_live fails all calls, in the plans that are out and waiting. */
	if (!l->n_out)
		return;
	record_fail(l->record);
	scheduler_fail(l->scheduler, l->events);
	l->n_out = 0;
}

/* Plans a step and hands it to the device. False: there is nothing to run, or not before a commit.
 */
static bool begin_step(struct loop *l) ON(role_engine)
{
	const struct plan *plan = scheduler_plan(l->scheduler);
	struct err e = {0};

	record_plan(l->record, plan);
	if (!plan)
		return false;
	l->draws[plan->step % ENGINE_STEPS_OUT] = plan->n_draws;
	l->times[plan->step % STEPS_KEPT].step = plan->step;
	l->times[plan->step % STEPS_KEPT].planned_ns = clock_now_ns();
	l->n_out++;
	if (engine_submit(l->engine, plan, &e) < 0)
		lose_device(l, &e);
	return true;
}

/* Waits for the oldest step that the device has, and hands its tokens out. */
static void end_step(struct loop *l) ON(role_engine)
{
	struct err e = {0};

	if (engine_wait(l->engine, l->results, &e) < 0) {
		lose_device(l, &e);
		return;
	}
	l->n_out--;
	record_commit(l->record, l->results, l->draws[++l->committed % ENGINE_STEPS_OUT]);
	deliver(l, scheduler_commit(l->scheduler, l->results, l->events));
}

int loop_flush(struct loop *l, struct prefix_stats *ret_held, struct err *e)
{
	struct scheduler_stats stats;

	/* Steps with rows of sequences that have ended meanwhile hold some of it. */
	while (!l->live && l->n_out)
		end_step(l);
	if (atomic_load(&l->failing)) {
		failure_of(l, e);
		return -e->code;
	}
	scheduler_stats(l->scheduler, &stats);
	if (l->live || scheduler_flush(l->scheduler) < 0)
		return err_set(
			e, PROBLEM_REQUESTS_RUNNING,
			"%u sequences are running and %u requests waiting; the cache can be flushed when all have ended",
			stats.running, stats.waiting);
	record_flush(l->record);
	mover_clear(l->mover, l->scheduler);
	handoff_flushed(l->handoff);
	publish(l);
	*ret_held = stats.cache;
	return 0;
}

const struct scheduler *loop_scheduler(const struct loop *l)
{
	return l->scheduler;
}

const struct metrics_steps *loop_stats(struct loop *l)
{
	publish(l);
	return &l->published;
}

static void let_visit(struct loop *l, struct call *c) ON(role_engine)
{
	struct err e = {0};

	if (atomic_load(&l->failing)) {
		failure_of(l, &e);
		call_fail(c, &e);
	} else {
		c->endpoint->visit(c, l);
	}
}

static void read_inbox(struct loop *l) ON(role_engine)
{
	struct queue_node *node;

	while ((node = queue_pop(&l->server->inbox))) {
		struct call_message *m = container_of(node, struct call_message, node);
		struct call *c = m->call;

		if (m == &c->submit && !c->endpoint->visit) {
			submit_call(l, c);
			continue;
		}
		if (m == &c->control)
			control_call(l, c);
		else
			let_visit(l, c);
		call_unref(c);
	}
}

/* Copies items to the tiers below the device and from there. True if more may come without a wake. */
static bool move_items(struct loop *l) ON(role_engine)
{
	struct err e = {0};
	bool more;

	if (mover_run(l->mover, l->engine, l->scheduler, &more, &e) < 0)
		lose_device(l, &e);
	return more;
}

/* Takes prompts and data from other workers. */
static void take_notes(struct loop *l) ON(role_engine)
{
	struct err e = {0};
	uint32_t n;
	int r;

	if (atomic_load(&l->draining))
		handoff_drain(l->handoff);
	while ((r = handoff_take(l->handoff, l->events, &n, &e)) > 0)
		deliver(l, n);
	if (r < 0)
		lose_device(l, &e);
}

/* Gives them prompts and data. */
static void give_notes(struct loop *l) ON(role_engine)
{
	struct err e = {0};

	if (handoff_run(l->handoff, &e) < 0)
		lose_device(l, &e);
}

static bool is_writing(const struct loop *l)
{
	return l->published.store.queued_items > 0;
}

/* While a step runs the next one is planned and handed over, so that the device does not wait for
 * us. */
static void run_steps(struct loop *l) ON(role_engine)
{
	for (;;) {
		enum { POLL_NS = 1000000, WRITING_NS = 100000000 };
		bool begun = false, ended = false, moving;

		read_inbox(l);
		take_notes(l);
		if (atomic_load(&l->failing) || atomic_load(&l->quit))
			break;
		/* Pages that the last commit published are read before the next plan may write
		 * there. */
		moving = move_items(l);
		if (l->n_out < ENGINE_STEPS_OUT)
			begun = begin_step(l);
		give_notes(l);
		if (l->n_out && (!begun || l->n_out == ENGINE_STEPS_OUT)) {
			end_step(l);
			ended = true;
		}
		publish(l);
		if (begun || ended)
			continue;
		/* Planning may have found something to fetch. */
		moving = move_items(l);
		publish(l);
		/* While files are written the gauges go on. */
		queue_wait(&l->server->inbox, moving ? POLL_NS : is_writing(l) ? WRITING_NS : 0);
	}
}

static void *engine_main(void *arg)
{
	struct loop *l = arg;
	struct err e = {0};

	role_begin(&role_engine);
	if (open_engine(l, &e) < 0) {
		start_failing(l, &e);
		lifecycle_fail(l->server->lifecycle, &e);
	} else {
		lifecycle_loaded(l->server->lifecycle);
		run_steps(l);
		/* Quitting with calls alive happens only when the drain gave up on them. */
		err_set(&e, ESHUTDOWN, "the server is shutting down");
		start_failing(l, &e);
		fail_live(l);
		handoff_fail(l->handoff, &e);
		while (l->n_out)
			end_step(l);
		publish(l);
	}
	/* Prompts of other workers are refused, and those under way end, so that no worker waits for them. */
	while (!atomic_load(&l->quit)) {
		queue_wait(&l->server->inbox, 0);
		read_inbox(l);
		take_notes(l);
	}
	read_inbox(l);
	handoff_close(l->handoff);
	if (l->engine)
		mover_close(l->mover, l->engine, l->scheduler, CLOSE_NS);
	record_close(l->record);
	scheduler_free(l->scheduler);
	if (l->engine)
		engine_close(l->engine);
	atomic_store(&l->ended, true);
	lifecycle_notify(l->server->lifecycle);
	return NULL;
}

int loop_start(struct server *s, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_set(e, ENOMEM, "out of memory");
	l->server = s;
	queue_init(&l->server->inbox);
	identity_init(&l->identity, s);
	pthread_mutex_init(&l->failure_lock, NULL);
	s->loop = l;
	r = pthread_create(&l->thread, NULL, engine_main, l);
	if (r) {
		s->loop = NULL;
		pthread_mutex_destroy(&l->failure_lock);
		identity_release(&l->identity);
		queue_release(&l->server->inbox);
		free(l);
		return err_set(e, r, "cannot start the engine thread: %s", strerror(r));
	}
	return 0;
}

void loop_fail_all(struct loop *l, const struct err *e)
{
	start_failing(l, e);
	queue_wake(&l->server->inbox);
}

void loop_drain(struct loop *l)
{
	atomic_store(&l->draining, true);
	queue_wake(&l->server->inbox);
}

void loop_quit(struct loop *l)
{
	atomic_store(&l->quit, true);
	queue_wake(&l->server->inbox);
}

bool loop_ended(const struct loop *l)
{
	return atomic_load(&l->ended);
}

void loop_free(struct loop *l)
{
	pthread_join(l->thread, NULL);
	free(l->results);
	free(l->events);
	free(l->touched);
	pthread_mutex_destroy(&l->failure_lock);
	identity_release(&l->identity);
	queue_release(&l->server->inbox);
	free(l);
}
