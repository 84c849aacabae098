#include "daemon/steps/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
#include "daemon/lifecycle.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/identity.h"
#include "daemon/steps/live.h"
#include "daemon/steps/mover.h"
#include "daemon/steps/record.h"
#include "daemon/steps/setup.h"
#include "scheduler/prefill_pace.h"

/* The time that mover_close has at the end to write the cache's files. */
#define CLOSE_NS UINT64_C(5000000000)

/* A step, from its plan to its commit. */
struct loop_step {
	uint32_t n_draws, n_prompt_tokens, n_decode_rows;
	uint64_t begun_ns; /* when it was queued on the device */
};

struct loop {
	struct server *server;
	pthread_t thread;
	_Atomic bool draining, quit; /* each is set once */
	_Atomic bool failing;	     /* set once: run_steps ends, and every call fails */
	pthread_mutex_t failure_lock;
	struct err failure; /* the reason why the loop is failing; guarded by failure_lock */

	/* used by the engine thread alone, except `identity`, which has a lock */
	struct engine *engine;
	struct scheduler *scheduler;
	struct mover *mover; /* NULL: no cache below the device */
	struct identity identity;
	struct handoff *handoff; /* NULL: this worker is unified */
	struct record *record;	 /* NULL: not recording */
	struct live live;
	struct prefill_pace pace;
	uint64_t committed;			  /* number of the last committed step */
	uint64_t ended_ns;			  /* when that step had ended */
	struct loop_step steps[ENGINE_STEPS_OUT]; /* step s is steps[s % ENGINE_STEPS_OUT] */
	uint32_t n_out;				  /* steps that are planned and not yet committed */
	struct metrics_steps published;
	struct draw_result *results;	/* [max_num_seqs + max_batched_tokens] */
	struct scheduler_event *events; /* [2 max_num_seqs] */
};

/* ---- failure ---- */

/* Returns whether the loop was not failing before. */
static bool start_failing(struct loop *l, const struct err *e)
{
	bool first;

	pthread_mutex_lock(&l->failure_lock);
	first = !atomic_load(&l->failing);
	if (first) {
		l->failure = *e;
		atomic_store(&l->failing, true);
	}
	pthread_mutex_unlock(&l->failure_lock);
	return first;
}

/* Returns whether the loop is failing; *ret then has the reason. */
static bool has_failed(struct loop *l, struct err *ret)
{
	bool failing = atomic_load(&l->failing);

	if (failing) {
		pthread_mutex_lock(&l->failure_lock);
		*ret = l->failure;
		pthread_mutex_unlock(&l->failure_lock);
	}
	return failing;
}

static void lose_device(struct loop *l, struct err *e) ON(role_engine)
{
	err_prefix(e, e->code == EIO ? "the device is lost" : "a step failed");
	/* Whatever the cause, clients get the error of a lost device (status 503 if no answer has begun): the server is
	 * at fault, and they may try again. */
	e->code = EIO;
	/* On a lost device all that is still called fails. */
	if (start_failing(l, e))
		log_error("%s", e->text);
	lifecycle_fail(l->server->lifecycle, e);
	handoff_fail(l->handoff, e);
	if (!l->n_out)
		return;
	/* The events of scheduler_fail are not delivered: end_steps fails all live calls. */
	record_fail(l->record);
	scheduler_fail(l->scheduler, l->events);
	l->n_out = 0;
}

/* ---- steps ---- */

/* Publishes the statistics for /metrics. */
static void publish(struct loop *l) ON(role_engine)
{
	struct metrics_steps *m = &l->published;

	scheduler_stats(l->scheduler, &m->scheduler);
	m->waiting = m->scheduler.waiting + l->live.n_behind;
	engine_counters(l->engine, &m->device);
	if (l->mover)
		store_stats(mover_store(l->mover), &m->store);
	m->pages_used =
		m->pages - m->scheduler.cache.free_pages - m->scheduler.cache.evictable_pages;
	m->tree_tokens = m->scheduler.cache.tree_pages * l->server->options.page_size;
	metrics_publish(&l->server->metrics, m);
}

static void deliver_events(struct loop *l, uint32_t n) ON(role_engine)
{
	if (l->server->options.role != ROLE_PREFILL)
		live_deliver(&l->live, l->events, n);
	else
		handoff_deliver(l->handoff, l->events, n);
}

/* Plans a step and queues it on the device. False: there is nothing that can run now, so no step was planned. */
static bool begin_step(struct loop *l) ON(role_engine)
{
	const struct plan *plan;
	uint32_t n_decode_rows;
	struct err e = {0};

	if (l->pace.limit_s > 0) {
		uint32_t n_tokens = prefill_pace_tokens(&l->pace);

		record_pace(l->record, n_tokens);
		scheduler_pace(l->scheduler, n_tokens);
	}
	plan = scheduler_plan(l->scheduler);
	record_plan(l->record, plan);
	if (!plan)
		return false;
	n_decode_rows = plan->n_rows - plan->n_prefill_rows;
	l->steps[plan->step % ENGINE_STEPS_OUT] =
		(struct loop_step){.n_draws = plan->n_draws,
				   .n_prompt_tokens = plan->n_prefill_tokens,
				   .n_decode_rows = n_decode_rows,
				   .begun_ns = clock_now_ns()};
	live_planned(&l->live, plan->step);
	/* A decode row has one token. */
	metrics_observe(&l->server->metrics, METRICS_STEP_TOKENS,
			plan->n_prefill_tokens + n_decode_rows);
	l->n_out++;
	if (engine_submit(l->engine, plan, &e) < 0)
		lose_device(l, &e);
	return true;
}

/* Notes how long a step took that has just ended. It began when it was queued, or when the step before it ended. */
static void measure_step(struct loop *l, const struct loop_step *t) ON(role_engine)
{
	uint64_t now_ns = clock_now_ns();

	prefill_pace_note(&l->pace, t->n_prompt_tokens, t->n_decode_rows,
			  (double)(now_ns - MAX(l->ended_ns, t->begun_ns)) / 1e9);
	l->ended_ns = now_ns;
}

/* Waits for the oldest step that is out, commits it, and hands out its tokens. */
static void end_step(struct loop *l) ON(role_engine)
{
	const struct loop_step *t;
	struct err e = {0};

	if (engine_wait(l->engine, l->results, &e) < 0) {
		lose_device(l, &e);
		return;
	}
	l->n_out--;
	t = &l->steps[++l->committed % ENGINE_STEPS_OUT];
	measure_step(l, t);
	record_commit(l->record, l->results, t->n_draws);
	deliver_events(l, scheduler_commit(l->scheduler, l->results, l->events));
}

/* Moves pages and states between the device and the cache below it; does nothing without such a cache. True: copies are
 * under way, whose ends wake no thread, or a request may be able to run since one has ended, so plan and call this
 * function again soon. */
static bool move_items(struct loop *l) ON(role_engine)
{
	struct err e = {0};
	bool more;

	if (mover_run(l->mover, l->engine, l->scheduler, &more, &e) < 0)
		lose_device(l, &e);
	return more;
}

/* Passes loop_drain on to the transfer thread, and handles the notes of that thread. Does nothing in a unified
 * worker. */
static void take_notes(struct loop *l) ON(role_engine)
{
	struct err e = {0};
	uint32_t n;
	int r;

	if (atomic_load(&l->draining))
		handoff_drain(l->handoff);
	while ((r = handoff_take(l->handoff, l->events, &n, &e)) > 0)
		deliver_events(l, n);
	if (r < 0)
		lose_device(l, &e);
}

/* In a decode worker: hands prompts to the transfer thread. In a prefill worker: queues the reads of parcels that
 * waited for a block, as far as blocks are free now. Does nothing in a unified worker. */
static void run_handoff(struct loop *l) ON(role_engine)
{
	struct err e = {0};

	if (handoff_run(l->handoff, &e) < 0)
		lose_device(l, &e);
}

/* ---- messages ---- */

static void take_message(struct loop *l, const struct call_message *m) ON(role_engine)
{
	struct call *c = m->call;
	bool submits = m == &c->submit && !c->endpoint->visit;
	struct err e;

	if (submits && has_failed(l, &e)) {
		live_refuse(&l->live, c, &e);
		return;
	}
	if (submits) {
		live_submit(&l->live, c);
		return;
	}
	if (m == &c->control)
		live_control(&l->live, c);
	else if (has_failed(l, &e))
		call_fail(c, &e);
	else
		c->endpoint->visit(c, l);
	call_unref(c);
}

static void read_inbox(struct loop *l) ON(role_engine)
{
	struct queue_node *node;

	while ((node = queue_pop(&l->server->inbox)))
		take_message(l, container_of(node, struct call_message, node));
}

int loop_flush(struct loop *l, struct prefix_stats *ret_held, struct err *e)
{
	bool live = !list_empty(&l->live.calls);
	struct scheduler_stats stats;

	/* Steps that are out may have rows of sequences that have ended. The pages of these sequences are in use until
	 * their steps are committed, so all steps are committed first. */
	while (!live && l->n_out)
		end_step(l);
	if (has_failed(l, e))
		return -e->code;
	scheduler_stats(l->scheduler, &stats);
	if (live || scheduler_flush(l->scheduler) < 0)
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

/* ---- the thread ---- */

static int open_scheduler(struct loop *l, struct err *e) ON(role_engine)
{
	struct server *s = l->server;
	struct scheduler_config config = setup_scheduler(s);
	uint64_t budget = config.n_pages * config.page_bytes + config.n_slots * config.slot_bytes;
	int r;

	if (config.cache_bytes)
		budget = MIN(budget, config.cache_bytes);
	l->published.budget_bytes = budget;
	l->published.pages = config.n_pages;
	l->published.loaded = 1;
	l->published.page_tokens = config.page_tokens;
	l->published.prefix_cache = !config.cache_disabled;
	l->results =
		calloc((size_t)config.max_seqs + config.max_prefill_tokens, sizeof(*l->results));
	l->events = calloc(config.max_seqs, 2 * sizeof(*l->events));
	l->live.touched = calloc(config.max_seqs, sizeof(struct call *));
	l->live.steered = calloc(config.max_seqs, sizeof(struct call *));
	if (!l->results || !l->events || !l->live.touched || !l->live.steered)
		return err_no_memory(e);
	l->pace.limit_s = (double)s->options.max_prefill_ms / 1e3;
	r = scheduler_new(&config, &l->scheduler, e);
	if (r == 0 && s->options.record)
		r = record_open(s->options.record, &config, &l->record, e);
	return r;
}

static int open_all(struct loop *l, struct err *e) ON(role_engine)
{
	struct server *s = l->server;
	int r = setup_engine(s, &l->engine, &l->identity.opened_ns, e);

	if (r == 0)
		r = open_scheduler(l, e);
	if (r == 0)
		r = mover_open(s, l->engine, &l->identity, &s->inbox, &l->mover, e);
	if (r == 0)
		r = handoff_open(&(struct handoff_config){.server = s,
							  .engine = l->engine,
							  .scheduler = l->scheduler,
							  .record = l->record,
							  .inbox = &s->inbox,
							  .identity = &l->identity},
				 &l->handoff, e);
	l->live.scheduler = l->scheduler;
	l->live.record = l->record;
	l->live.handoff = l->handoff;
	l->live.engine = l->engine;
	return r;
}

/* Runs steps until the device is lost or the daemon ends. */
static void run_steps(struct loop *l) ON(role_engine)
{
	for (;;) {
		enum { POLL_NS = 100000, WRITING_NS = 100000000 };
		bool begun = false, ended = false, moving;

		read_inbox(l);
		take_notes(l);
		if (atomic_load(&l->failing) || atomic_load(&l->quit))
			break;
		/* The next plan may evict and overwrite pages that are to be copied to the store. So move_items queues
		 * the reads of these pages before the plan is made. */
		moving = move_items(l);
		if (l->n_out < ENGINE_STEPS_OUT)
			begun = begin_step(l);
		run_handoff(l);
		if (l->n_out && (!begun || l->n_out == ENGINE_STEPS_OUT)) {
			end_step(l);
			ended = true;
		}
		publish(l);
		if (begun || ended)
			continue;
		/* Planning may have found items to load. */
		moving = move_items(l);
		publish(l);
		/* While the store writes files, the metrics change without a wake of this thread, so do not sleep for
		 * long. */
		queue_wait(&l->server->inbox, moving				? POLL_NS
					      : l->published.store.queued_items ? WRITING_NS
										: 0);
	}
}

/* Fails the calls that are still live: the device was lost, or the calls took longer than the drain allows. Drops the
 * prompts that are under way between workers. Then waits for the steps that are out, and commits them. */
static void end_steps(struct loop *l) ON(role_engine)
{
	struct err end = {0}, why;

	err_set(&end, ESHUTDOWN, "the server is shutting down");
	start_failing(l, &end);
	if (has_failed(l, &why))
		live_fail_all(&l->live, &why);
	handoff_fail(l->handoff, &end);
	while (l->n_out)
		end_step(l);
	publish(l);
}

static void close_all(struct loop *l) ON(role_engine)
{
	handoff_close(l->handoff);
	if (l->engine)
		mover_close(l->mover, l->engine, l->scheduler, CLOSE_NS);
	record_close(l->record);
	scheduler_free(l->scheduler);
	if (l->engine)
		engine_close(l->engine);
}

static void *engine_main(void *arg)
{
	struct loop *l = arg;
	struct lifecycle *lifecycle = l->server->lifecycle;
	struct err e = {0};

	role_begin(&role_engine);
	if (open_all(l, &e) < 0) {
		start_failing(l, &e);
		lifecycle_fail(lifecycle, &e);
	} else {
		lifecycle_loaded(lifecycle);
		run_steps(l);
		end_steps(l);
	}
	/* Until loop_free, new calls fail and new prompts of other workers are refused, so that none of them waits in
	 * vain. */
	while (!atomic_load(&l->quit)) {
		queue_wait(&l->server->inbox, 0);
		read_inbox(l);
		take_notes(l);
	}
	read_inbox(l);
	close_all(l);
	return NULL;
}

static void release(struct loop *l)
{
	free(l->results);
	free(l->events);
	free(l->live.touched);
	free(l->live.steered);
	pthread_mutex_destroy(&l->failure_lock);
	identity_release(&l->identity);
	queue_release(&l->server->inbox);
	l->server->loop = NULL;
	free(l);
}

int loop_start(struct server *s, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_no_memory(e);
	l->server = l->live.server = s;
	list_init(&l->live.calls);
	list_init(&l->live.matchers);
	queue_init(&s->inbox);
	identity_init(&l->identity, s);
	pthread_mutex_init(&l->failure_lock, NULL);
	s->loop = l;
	r = pthread_create(&l->thread, NULL, engine_main, l);
	if (r) {
		release(l);
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

void loop_free(struct loop *l)
{
	if (!l)
		return;
	atomic_store(&l->quit, true);
	queue_wake(&l->server->inbox);
	pthread_join(l->thread, NULL);
	release(l);
}
