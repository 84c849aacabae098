#include "daemon/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/lifecycle.h"
#include "daemon/threads.h"
#include "engine/engine.h"
#include "scheduler/scheduler.h"

struct loop {
	struct server *server;
	struct queue inbox; /* call_message.node */
	pthread_t thread;
	_Atomic bool quit, failing; /* set once; failing: nothing runs any more, everything fails */
	_Atomic bool ended;
	pthread_mutex_t failure_lock;
	struct err failure; /* guarded by failure_lock; why */

	/* the engine thread's */
	struct engine *engine;
	struct scheduler *scheduler;
	struct call *live; /* calls the scheduler has; each a work reference */
	struct call_part *waiting, **waiting_end; /* parts not yet admitted, in their order */
	struct draw_result *results;		  /* [max_num_seqs] */
	struct scheduler_event *events;		  /* [max_num_seqs] */
	struct call **touched;			  /* [max_num_seqs] */
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

static int open_scheduler(struct loop *l, struct err *e)
{
	struct server *s = l->server;
	const struct options *o = &s->options;
	struct scheduler_config config = {
		.page_tokens = (uint32_t)o->page_size,
		.n_pages = s->info.n_pages,
		.n_slots = s->info.n_slots,
		.max_seqs = (uint32_t)o->max_num_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = s->info.max_model_len,
		.vocab_size = s->info.model.vocab_size,
	};

	l->results = calloc(config.max_seqs, sizeof(*l->results));
	l->events = calloc(config.max_seqs, sizeof(*l->events));
	l->touched = calloc(config.max_seqs, sizeof(struct call *));
	if (!l->results || !l->events || !l->touched)
		return err_set(e, ENOMEM, "out of memory");
	return scheduler_new(&config, &l->scheduler, e);
}

/* What the same request with the same seed may answer differently under another of: the program,
 * the model (by its name), the device, the element type. */
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
		.page_tokens = (uint32_t)o->page_size,
		.max_seqs = (uint32_t)o->max_num_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = (uint32_t)o->max_model_len,
		.synthetic = o->synthetic,
		.synthetic_seed = o->synthetic_seed,
	};
	int r = engine_open(&eo, &l->engine, e);

	if (r < 0)
		return r;
	s->info = *engine_info(l->engine);
	take_fingerprint(s);
	s->limits = (struct openai_limits){
		.vocab_size = s->info.model.vocab_size,
		.max_choices = (uint32_t)o->max_num_seqs,
		.defaults = default_sampling(&s->info.model),
	};
	atomic_store(&s->metrics.pages_total, s->info.n_pages);
	return open_scheduler(l, e);
}

/* What the gauges and the device's counters say after this step or message. */
static void publish(struct loop *l) ON(role_engine)
{
	struct metrics *m = &l->server->metrics;
	struct scheduler_stats stats;
	struct engine_counters counters;

	scheduler_stats(l->scheduler, &stats);
	engine_counters(l->engine, &counters);
	atomic_store(&m->running, stats.running);
	atomic_store(&m->waiting, stats.waiting);
	atomic_store(&m->pages_used, l->server->info.n_pages - stats.free_pages);
	atomic_store(&m->steps, counters.steps);
	atomic_store(&m->launches, counters.launches);
	atomic_store(&m->bytes_to_device, counters.bytes_to_device);
	atomic_store(&m->bytes_from_device, counters.bytes_from_device);
}

static void wait_part(struct loop *l, struct call_part *p)
{
	p->next = NULL;
	*l->waiting_end = p;
	l->waiting_end = &p->next;
}

/* Takes the parts of a call that ends out of the list. */
static void forget_waiting(struct loop *l, const struct call *c)
{
	struct call_part **at = &l->waiting;

	while (*at)
		if ((*at)->call == c)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	l->waiting_end = at;
}

/* Requests are admitted in the order of their submission (scheduler_plan is first come, first
 * served), so as many parts as the number of waiting requests fell by were admitted now. */
static void note_admitted(struct loop *l, uint32_t n, uint64_t now)
{
	struct metrics *m = &l->server->metrics;

	for (; n && l->waiting; n--) {
		struct call_part *p = l->waiting;

		l->waiting = p->next;
		if (!l->waiting)
			l->waiting_end = &l->waiting;
		p->admitted_ns = now;
		metrics_time(m, METRICS_QUEUE, now - p->call->arrived_ns);
		atomic_fetch_add(&m->prompt_tokens, p->prompt.len);
	}
}

static void link_live(struct loop *l, struct call *c)
{
	c->prev = NULL;
	c->next = l->live;
	if (l->live)
		l->live->prev = c;
	l->live = c;
}

static void unlink_live(struct loop *l, struct call *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		l->live = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

/* A live call is over for the engine: drops the work's reference. */
static void finish_call(struct loop *l, struct call *c)
{
	c->n_running = 0;
	unlink_live(l, c);
	forget_waiting(l, c);
	call_end(c);
	call_unqueue(c);
	call_wake(c);
	call_unref(c);
}

/* A choice ends. Does not finish the call. */
static void end_choice(struct loop *l, struct call *c, uint32_t choice, enum metrics_finish why,
		       uint64_t now)
{
	struct call_part *p = &c->parts[choice / c->n];
	struct metrics *m = &l->server->metrics;

	c->choices[choice].ended = true;
	c->n_running--;
	p->n_running--;
	call_count(c, why);
	if (!p->n_running) {
		metrics_time(m, METRICS_E2E, now - c->arrived_ns);
		if (p->first_ns)
			metrics_time(m, METRICS_DECODE, now - p->first_ns);
	}
}

/* Ends everything of a live call at once. */
static void stop_call(struct loop *l, struct call *c, enum metrics_finish why)
{
	for (uint32_t i = 0; i < c->n_parts; i++)
		if (c->parts[i].id)
			scheduler_abort(l->scheduler, c->parts[i].id);
	call_count(c, why);
	finish_call(l, c);
}

static int submit_part(struct loop *l, struct call *c, struct call_part *p, struct err *e)
{
	struct scheduler_request r = {
		.prompt = p->prompt.v,
		.n_prompt = (uint32_t)p->prompt.len,
		.max_tokens = p->max_tokens,
		.min_tokens = c->ask.min_tokens,
		.n_choices = c->n,
		.end_tokens = c->end_tokens,
		.n_end_tokens = c->n_end_tokens,
		.sampling = c->ask.sampling,
		.user = p,
	};

	r.sampling.seed = p->seed;
	return scheduler_submit(l->scheduler, &r, &p->id, e);
}

static void submit(struct loop *l, struct call *c) ON(role_engine)
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
	for (uint32_t i = 0; i < c->n_parts; i++) {
		struct call_part *p = &c->parts[i];

		p->call = c;
		p->n_running = c->n;
		if (!submit_part(l, c, p, &e))
			continue;
		while (i--)
			scheduler_abort(l->scheduler, c->parts[i].id);
		call_fail(c, &e);
		call_count(c, METRICS_ERROR);
		call_unref(c);
		return;
	}
	for (uint32_t i = 0; i < c->n_parts; i++)
		wait_part(l, &c->parts[i]);
	c->n_running = c->n_choices;
	link_live(l, c);
	call_accept(c);
}

/* The client left, or a stop string ended choices. */
static void control(struct loop *l, struct call *c) ON(role_engine)
{
	uint64_t now = clock_now_ns();

	pthread_mutex_lock(&c->lock);
	c->control_queued = false;
	for (uint32_t i = 0; c->n_running && i < c->n_choices; i++) {
		if (!c->stop_wanted[i] || c->choices[i].ended)
			continue;
		scheduler_finish_choice(l->scheduler, c->parts[i / c->n].id, i % c->n);
		end_choice(l, c, i, METRICS_STOP, now);
		if (!c->n_running) {
			pthread_mutex_unlock(&c->lock);
			finish_call(l, c);
			return;
		}
	}
	pthread_mutex_unlock(&c->lock);
	if (c->n_running && atomic_load(&c->aborted))
		stop_call(l, c, METRICS_ABORT);
}

static void read_inbox(struct loop *l) ON(role_engine)
{
	struct queue_node *node;

	while ((node = queue_pop(&l->inbox))) {
		struct call_message *m = container_of(node, struct call_message, node);
		struct call *c = m->call;

		if (m->type == CALL_SUBMIT) {
			submit(l, c);
		} else {
			control(l, c);
			call_unref(c);
		}
	}
}

static void take_event(struct loop *l, const struct scheduler_event *ev, uint64_t now,
		       uint32_t *n_touched) ON(role_engine)
{
	struct call_part *p = ev->user;
	struct call *c = p->call;
	uint32_t choice = (uint32_t)(p - c->parts) * c->n + ev->choice;
	struct call_choice *ch = &c->choices[choice];
	struct metrics *m = &l->server->metrics;
	uint64_t none = 0;

	if (!p->first_ns) {
		p->first_ns = now;
		metrics_time(m, METRICS_TTFT, now - c->arrived_ns);
		metrics_time(m, METRICS_PREFILL, now - p->admitted_ns);
		atomic_compare_exchange_strong(&c->first_token_ns, &none, now);
		call_unqueue(c);
	}
	if (ch->last_ns)
		metrics_time(m, METRICS_ITL, now - ch->last_ns);
	ch->last_ns = now;
	atomic_fetch_add(&m->generation_tokens, 1);
	atomic_fetch_add(&c->n_generated, 1);
	if (!c->touched) {
		c->touched = true;
		l->touched[(*n_touched)++] = c;
	}
	if (call_push(c, choice, ev->finish, ev->draw) < 0)
		c->broken = true;
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
		take_event(l, &l->events[i], now, &n_touched);
	for (uint32_t i = 0; i < n_touched; i++) {
		struct call *c = l->touched[i];

		c->touched = false;
		if (c->broken) {
			struct err e;

			err_set(&e, ENOMEM, "out of memory");
			call_fail(c, &e);
		}
		if (!c->n_running)
			finish_call(l, c);
		else if (c->broken)
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

/* One step. False: there was nothing to run. */
static bool step(struct loop *l) ON(role_engine)
{
	struct scheduler_stats before, after;
	const struct plan *plan;
	struct err e = {0};
	int r;

	scheduler_stats(l->scheduler, &before);
	plan = scheduler_plan(l->scheduler);
	scheduler_stats(l->scheduler, &after);
	note_admitted(l, before.waiting - after.waiting, clock_now_ns());
	if (!plan)
		return false;
	r = engine_step(l->engine, plan, l->results, &e);
	if (r < 0) {
		log_error("step %llu failed: %s", (unsigned long long)plan->step, e.text);
		/* Whatever it was, clients see that the server is at fault and may come again. */
		e.code = EIO;
		start_failing(l, &e);
		lifecycle_fail(l->server->lifecycle, &e);
		scheduler_fail(l->scheduler, l->events);
		return true;
	}
	deliver(l, scheduler_commit(l->scheduler, l->results, l->events));
	return true;
}

static void run(struct loop *l) ON(role_engine)
{
	for (;;) {
		bool busy;

		read_inbox(l);
		if (atomic_load(&l->failing) || atomic_load(&l->quit))
			break;
		busy = step(l);
		publish(l);
		if (!busy)
			queue_wait(&l->inbox, 0);
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
		run(l);
		/* Quitting with calls alive happens only when the drain gave up on them. */
		err_set(&e, ESHUTDOWN, "the server is shutting down");
		start_failing(l, &e);
		fail_live(l);
		publish(l);
	}
	while (!atomic_load(&l->quit)) {
		queue_wait(&l->inbox, 0);
		read_inbox(l);
	}
	read_inbox(l);
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
	l->waiting_end = &l->waiting;
	queue_init(&l->inbox);
	pthread_mutex_init(&l->failure_lock, NULL);
	s->loop = l;
	r = pthread_create(&l->thread, NULL, engine_main, l);
	if (r) {
		s->loop = NULL;
		pthread_mutex_destroy(&l->failure_lock);
		queue_release(&l->inbox);
		free(l);
		return err_set(e, r, "cannot start the engine thread: %s", strerror(r));
	}
	return 0;
}

void loop_submit(struct loop *l, struct call *c)
{
	queue_push(&l->inbox, &c->submit.node);
}

void loop_control(struct loop *l, struct call *c)
{
	queue_push(&l->inbox, &c->control.node);
}

void loop_fail_all(struct loop *l, const struct err *e)
{
	start_failing(l, e);
	queue_wake(&l->inbox);
}

void loop_quit(struct loop *l)
{
	atomic_store(&l->quit, true);
	queue_wake(&l->inbox);
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
	queue_release(&l->inbox);
	free(l);
}
