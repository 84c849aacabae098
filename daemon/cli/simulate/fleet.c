#include "daemon/cli/simulate/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/heap.h"
#include "base/mix.h"
#include "protocol/transfer/gossip.h"
#include "protocol/transfer/peers.h"

/* A prompt on its way through a prefill worker. */
struct attempt {
	struct scheduler_request ask; /* arrays borrowed from the decode worker's scheduler */
	uint64_t decode_id, prefill_id;
	uint32_t decode, prefill; /* indexes of the workers */
	struct peers_prompt load; /* of the prefill worker, as far as the decode worker can tell */
	struct wire_key *keys;	  /* [n_keys] owned */
	uint32_t n_keys;
	uint32_t n_computed; /* prompt tokens that the prefill worker computed */
	/* the times when it was sent, when all data have arrived, and when the first token was drawn */
	double sent, arrived, drawn;
	int32_t token;
	struct attempt *next; /* the next attempt of the same prefill worker */
};

struct worker {
	struct scheduler *s;
	struct peers *peers;	  /* of a decode worker: the prefill workers */
	struct attempt *attempts; /* of a prefill worker: the prompts that it was sent */
	struct gossip *gossip;	  /* of a prefill worker: the keys of pages that it has cached */
	uint64_t *told; /* [n_decode] place of the next key to tell each decode worker (gossip.h) */
	struct sim_step out[2]; /* [n_out] the plans that are not committed, oldest first */
	uint32_t n_out;
	struct prefill_pace pace;
	uint64_t steps;
	double device_free, busy_s;
	double sends_from, receives_from; /* times from which its link is free */
	double link_s;			  /* seconds in which its link sent or received */
	uint64_t in_flight, computed_tokens;
};

enum event_type { EVENT_STEP, EVENT_PREPARE, EVENT_ARRIVED };

struct event {
	double at;
	uint64_t number; /* order of creation, which decides between equal times */
	enum event_type type;
	uint32_t worker;	 /* STEP: the worker whose oldest plan ends */
	struct attempt *attempt; /* PREPARE, ARRIVED */
};

struct fleet {
	struct workload *w;
	const struct scheduler_config *config;
	const struct cost_model *cost;
	const struct fleet_options *o;
	struct fleet_result *result;
	struct worker *workers; /* [n_decode + n_prefill] decode workers first */
	struct event *events;	/* [n_events] a heap by (at, number) */
	size_t n_events, events_cap;
	uint64_t n_numbered, in_flight;
	struct draw_result *draws;	 /* [max_seqs] */
	struct scheduler_event *answers; /* [max_seqs] */
	double now, fabric_from;
	struct err *e;
};

static int no_memory(struct fleet *f)
{
	return err_no_memory(f->e);
}

/* Peers count time in nanoseconds. */
static uint64_t to_ns(double seconds)
{
	return (uint64_t)(seconds * 1e9);
}

/* ---- events ---- */

static bool earlier(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->at != y->at ? x->at < y->at : x->number < y->number;
}

static const struct heap_kind event_heap = {.size = sizeof(struct event), .before = earlier};

static int add_event(struct fleet *f, struct event ev)
{
	if (!array_grow(f->events, f->events_cap, f->n_events + 1))
		return no_memory(f);
	ev.number = f->n_numbered++;
	heap_add(&event_heap, f->events, f->n_events++, &ev);
	return 0;
}

static struct event first_event(struct fleet *f)
{
	struct event first = f->events[0];

	heap_take(&event_heap, f->events, f->n_events--, 0);
	return first;
}

/* ---- the link ---- */

/* Sends bytes over a link: not before the time `first`, and not before *free_at, the time from which the link is free.
 * Returns the time when all bytes are sent, and sets *free_at to it. */
static double pass(double *free_at, double first, double bytes, double rate)
{
	return *free_at = MAX(*free_at, first) + bytes / rate;
}

/* Sends the bytes that one step has made of a prompt. The step's first layer group has been computed at the time
 * `first`, its last one at `end`. Returns the time when the last byte has arrived. The links of both workers and the
 * shared one are busy at the same time. */
static double send(struct fleet *f, struct worker *from, struct worker *to, double bytes,
		   double first, double end)
{
	double rate = f->o->link_bytes_s,
	       through = MAX(pass(&from->sends_from, first, bytes, rate),
			     pass(&to->receives_from, first, bytes, rate));

	from->link_s += bytes / rate;
	to->link_s += bytes / rate;
	if (f->o->fabric_bytes_s > 0) {
		rate = MIN(rate, f->o->fabric_bytes_s);
		through = MAX(through, pass(&f->fabric_from, first, bytes, f->o->fabric_bytes_s));
	}
	/* The last layer group cannot be sent before the device has computed it. */
	return MAX(through, end + bytes / f->o->n_groups / rate) + f->o->message_s;
}

static struct attempt *attempt_of(const struct worker *w, uint64_t request)
{
	struct attempt *a = w->attempts;

	while (a->prefill_id != request)
		a = a->next;
	return a;
}

static void ship(struct fleet *f, struct worker *w, const struct plan *p, double begin, double end)
{
	for (uint32_t i = 0; i < p->n_ships; i++) {
		const struct plan_ship *s = &p->ships[i];
		struct attempt *a = attempt_of(w, s->request);
		uint64_t pages = s->n_pages * f->config->page_bytes,
			 state = s->state ? f->config->slot_bytes : 0;
		double first = begin + (end - begin) / f->o->n_groups;

		f->result->page_bytes += pages;
		f->result->state_bytes += state;
		a->arrived =
			send(f, w, &f->workers[a->decode], (double)(pages + state), first, end);
	}
}

/* ---- handing prompts over ---- */

static int make_keys(struct attempt *a, uint32_t page_tokens)
{
	uint64_t k[2] = {mix64(a->ask.space.id[0] + 1), mix64(a->ask.space.id[1] + 2)};
	uint32_t n = a->ask.n_prompt / page_tokens;

	a->keys = calloc(n + 1, sizeof(*a->keys));
	if (!a->keys)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = 0; j < page_tokens; j++) {
			uint64_t token = (uint64_t)a->ask.prompt[i * page_tokens + j];

			k[0] = mix64(k[0] + token + 1);
			k[1] = mix64(k[1] ^ (token + 1) << 20);
		}
		memcpy(a->keys[a->n_keys++].bytes, k, sizeof(k));
	}
	return 0;
}

/* Exchanges the PINGs that are due, and the PONGs that answer them, between a decode worker and the prefill workers. */
static int exchange(struct fleet *f, uint32_t decode)
{
	struct peers *peers = f->workers[decode].peers;
	uint32_t peer;
	int r = 0;

	while (r == 0 && peers_tick(peers, to_ns(f->now), &peer) == PEERS_SAY_PING) {
		struct worker *w = &f->workers[f->o->n_decode + peer];
		struct wire_key keys[GOSSIP_TOLD];
		struct peer_info info;
		struct wire_pong pong = {0};

		peers_get(peers, peer, &info);
		gossip_tell(w->gossip, &w->told[decode], keys, &pong);
		pong.sequence = info.sequence;
		for (const struct attempt *a = w->attempts; a; a = a->next) {
			pong.queued_tokens += a->load.n_asked;
			pong.running++;
		}
		r = peers_pong(peers, peer, &pong, to_ns(f->now));
	}
	return r;
}

static void attempt_free(struct attempt *a)
{
	if (a)
		free(a->keys);
	free(a);
}

/* Sends a decode worker's prompt to the prefill worker that peers_choose finds. */
static int ask(struct fleet *f, uint32_t decode, const struct scheduler_prepare *p)
{
	struct attempt *a = calloc(1, sizeof(*a));
	struct peers *peers = f->workers[decode].peers;
	uint32_t peer, n_cached, have, P = f->config->page_tokens;

	if (!a)
		return no_memory(f);
	*a = (struct attempt){.ask = p->ask, .decode_id = p->request, .decode = decode};
	a->ask.user = a;
	if (make_keys(a, P) < 0 || exchange(f, decode) < 0) {
		attempt_free(a);
		return no_memory(f);
	}
	if (!peers_choose(peers, a->keys, a->n_keys, 0, to_ns(f->now), &peer, &n_cached)) {
		attempt_free(a);
		return err_set(f->e, EFAULT, "no prefill worker is registered");
	}
	have = MAX(n_cached * P, p->ask.n_have);
	a->load.n_tokens = p->ask.n_prompt - MIN(have, p->ask.n_prompt);
	a->load.n_asked = p->ask.n_prompt - p->ask.n_have;
	a->sent = f->now;
	a->prefill = f->o->n_decode + peer;
	a->next = f->workers[a->prefill].attempts;
	f->workers[a->prefill].attempts = a;
	f->result->handed_over++;
	if (peers_sent(peers, peer, a->keys, a->n_keys, &a->load) < 0)
		return no_memory(f);
	return add_event(f, (struct event){.at = f->now + f->o->message_s,
					   .type = EVENT_PREPARE,
					   .attempt = a});
}

/* ---- steps ---- */

/* Makes a worker's plans until max_plans_out are out or there is no work, and sends the prompts that the worker hands
 * over. */
static int plan(struct fleet *f, uint32_t number)
{
	struct worker *w = &f->workers[number];
	bool planned = true;
	int r = 0;

	while (r == 0 && planned && w->n_out < f->config->max_plans_out) {
		const struct plan *p;
		struct scheduler_prepare prepare;

		scheduler_pace(w->s, prefill_pace_tokens(&w->pace));
		p = scheduler_plan(w->s);
		planned = p;
		if (p) {
			struct sim_step step = sim_step_of(f->cost, p);
			double begin = MAX(w->device_free, f->now);

			w->device_free = begin + step.seconds;
			w->busy_s += step.seconds;
			w->computed_tokens += p->n_prefill_tokens;
			w->steps++;
			w->out[w->n_out++] = step;
			ship(f, w, p, begin, w->device_free);
			r = add_event(f, (struct event){.at = w->device_free,
							.type = EVENT_STEP,
							.worker = number});
		}
		while (r == 0 && w->peers && scheduler_next_prepare(w->s, &prepare))
			r = ask(f, number, &prepare);
	}
	return r;
}

static int answer(struct fleet *f, const struct scheduler_event *ev)
{
	struct flight *q = ev->user;
	struct samples *s = q->n ? &f->result->between_s : &f->result->ttft_s;
	int r = samples_add(s, f->now - (q->n ? q->last : q->q.at));

	q->last = f->now;
	q->output[q->n++] = ev->draw->token;
	f->result->generated_tokens++;
	f->result->seconds = f->now;
	if (r == 0 && ev->request_finished) {
		f->workers[q->worker].in_flight--;
		f->in_flight--;
		r = flight_end(q, f->w, f->now);
	}
	return r < 0 ? no_memory(f) : 0;
}

static int step_ended(struct fleet *f, uint32_t number)
{
	struct worker *w = &f->workers[number];
	uint64_t step = w->steps - w->n_out;
	struct sim_step *out = w->out;
	uint32_t n;
	int r = 0;

	prefill_pace_note(&w->pace, out->n_prompt_tokens, out->n_decode_rows, out->seconds);
	for (uint32_t i = 0; i < out->n_draws; i++)
		f->draws[i].token = workload_token((uint64_t)number << 40 | step, i);
	n = scheduler_commit(w->s, f->draws, f->answers);
	out[0] = out[1];
	w->n_out--;
	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct attempt *a;

		if (number < f->o->n_decode) {
			r = answer(f, &f->answers[i]);
			continue;
		}
		a = f->answers[i].user;
		a->token = f->answers[i].draw->token;
		a->drawn = f->now;
		a->n_computed = a->ask.n_prompt - f->answers[i].hit.n_cached;
		r = add_event(f, (struct event){.at = MAX(a->arrived, f->now + f->o->message_s),
						.type = EVENT_ARRIVED,
						.attempt = a});
	}
	return r < 0 ? r : plan(f, number);
}

static int prepare(struct fleet *f, struct attempt *a)
{
	struct worker *w = &f->workers[a->prefill];
	int r = scheduler_submit(w->s, &a->ask, &a->prefill_id, f->e);

	return r < 0 ? r : plan(f, a->prefill);
}

static int arrived(struct fleet *f, struct attempt *a)
{
	struct worker *w = &f->workers[a->prefill], *to = &f->workers[a->decode];
	const struct draw_result draw = {.token = a->token};
	uint32_t decode = a->decode, prefill = a->prefill, n;
	struct attempt **at = &w->attempts;
	int r = samples_add(&f->result->wait_s, f->now - a->drawn) < 0 ? no_memory(f) : 0;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	scheduler_shipped(w->s, a->prefill_id);
	/* No worker fails, so no peer is ever silent. */
	(void)peers_measure(to->peers, prefill - f->o->n_decode, a->n_computed, to_ns(a->sent),
			    to_ns(f->now));
	peers_done(to->peers, prefill - f->o->n_decode, &a->load);
	gossip_add(w->gossip, a->keys, a->n_keys);
	n = scheduler_received(to->s, a->decode_id, &draw, f->answers);
	attempt_free(a);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = answer(f, &f->answers[i]);
	if (r == 0)
		r = plan(f, decode);
	return r < 0 ? r : plan(f, prefill);
}

/* ---- requests ---- */

/* Chooses the worker of a request by the number of its session. A worker with at least four times the mean number of
 * requests gets no more; then the next worker is looked at. Each request of a trace is a session of its own. */
static uint32_t worker_of(const struct fleet *f, uint64_t tag)
{
	uint64_t session = tag >> 32 ? tag >> 32 : tag, n = f->o->n_decode;
	uint64_t most = CEIL_DIV(4 * (f->in_flight + 1), n);
	uint32_t i = (uint32_t)(mix64(session + MIX_GOLDEN) % n);

	while (f->workers[i].in_flight >= most)
		i = (i + 1) % (uint32_t)n;
	return i;
}

static int submit_next(struct fleet *f)
{
	struct flight *q = flight_new(f->w);
	int r;

	if (!q)
		return no_memory(f);
	f->result->requests++;
	q->worker = worker_of(f, q->q.tag);
	r = flight_submit(q, f->workers[q->worker].s,
			  f->o->n_prefill ? HANDOFF_RECEIVE : HANDOFF_NONE, f->e);
	if (r == 0) {
		f->in_flight++;
		f->workers[q->worker].in_flight++;
		return plan(f, q->worker);
	}
	free(q);
	f->result->failed++;
	return r == -ENOMEM ? r : 0; /* a request that can never run is counted and skipped */
}

static int run_events(struct fleet *f)
{
	int r = 0;

	while (r == 0) {
		double at = 0;
		bool more = workload_peek(f->w, &at);
		struct event ev;

		if (!more && !f->n_events)
			break;
		if (more && (!f->n_events || at <= f->events[0].at)) {
			f->now = MAX(f->now, at);
			r = submit_next(f);
			continue;
		}
		ev = first_event(f);
		f->now = ev.at;
		r = ev.type == EVENT_STEP      ? step_ended(f, ev.worker)
		    : ev.type == EVENT_PREPARE ? prepare(f, ev.attempt)
					       : arrived(f, ev.attempt);
	}
	return r;
}

/* ---- workers ---- */

static int open_peers(struct fleet *f, struct worker *w, uint32_t number)
{
	const uint64_t seed[2] = {number, 1};

	w->peers = peers_new(seed, to_ns(f->o->heartbeat_s));
	if (!w->peers)
		return no_memory(f);
	for (uint32_t i = 0; i < f->o->n_prefill; i++) {
		struct wire_hello hello = {.n_pages = f->config->n_pages,
					   .layout.page_tokens = f->config->page_tokens};
		char name[32];
		uint32_t peer;
		int r;

		snprintf(name, sizeof(name), "tcp://prefill-%u:1", i);
		r = peers_add(w->peers, name, 0, &peer, f->e);
		if (r < 0)
			return r;
		memcpy(hello.worker, &(uint64_t){i + 1}, sizeof(uint64_t));
		if (peers_hello(w->peers, peer, &hello, 0))
			return err_set(f->e, EFAULT, "%s was there before", name);
	}
	return 0;
}

static int open_worker(struct fleet *f, uint32_t number)
{
	struct worker *w = &f->workers[number];
	int r = scheduler_new(f->config, &w->s, f->e);

	w->pace.limit_s = f->cost->max_prefill_s;
	if (r < 0 || !f->o->n_prefill)
		return r;
	if (number < f->o->n_decode)
		return open_peers(f, w, number);
	w->gossip = calloc(1, sizeof(*w->gossip));
	w->told = calloc(f->o->n_decode, sizeof(*w->told));
	return w->gossip && w->told ? 0 : no_memory(f);
}

static void close_worker(struct worker *w)
{
	while (w->attempts) {
		struct attempt *a = w->attempts;

		w->attempts = a->next;
		attempt_free(a);
	}
	scheduler_free(w->s);
	peers_free(w->peers);
	free(w->gossip);
	free(w->told);
}

static void sum_up(const struct fleet *f)
{
	struct fleet_result *r = f->result;
	uint32_t n = f->o->n_decode + f->o->n_prefill;
	double seconds = MAX(r->seconds, 1e-9);

	for (uint32_t i = 0; i < n; i++) {
		const struct worker *w = &f->workers[i];
		bool prefill = i >= f->o->n_decode;
		double busy = w->busy_s / seconds;
		struct scheduler_stats s;

		scheduler_stats(w->s, &s);
		*(prefill ? &r->asked_tokens : &r->prompt_tokens) += s.prompt_tokens;
		*(prefill ? &r->found_tokens : &r->local_tokens) += s.cached_tokens;
		*(prefill ? &r->prefilled_tokens : &r->computed_tokens) += w->computed_tokens;
		*(prefill ? &r->prefill_busy : &r->decode_busy) +=
			busy / (prefill ? f->o->n_prefill : f->o->n_decode);
		if (prefill)
			r->prefill_busiest = MAX(r->prefill_busiest, busy);
		else
			r->decode_busiest = MAX(r->decode_busiest, busy);
		r->link_busiest = MAX(r->link_busiest, w->link_s / seconds);
		r->retractions += s.retractions;
	}
	r->failed += f->in_flight; /* only a stuck scheduler leaves requests behind */
}

int fleet_run(struct workload *w, const struct scheduler_config *config,
	      const struct cost_model *cost, const struct fleet_options *o,
	      struct fleet_result *ret, struct err *e)
{
	struct fleet f = {.w = w, .config = config, .cost = cost, .o = o, .result = ret, .e = e};
	uint32_t n = o->n_decode + o->n_prefill, n_open = 0;
	int r = 0;

	*ret = (struct fleet_result){0};
	f.workers = calloc(n, sizeof(*f.workers));
	f.draws = calloc(config->max_seqs, sizeof(*f.draws));
	f.answers = calloc(config->max_seqs, sizeof(*f.answers));
	if (!f.workers || !f.draws || !f.answers)
		r = no_memory(&f);
	while (r == 0 && n_open < n)
		r = open_worker(&f, n_open++);
	if (r == 0)
		r = run_events(&f);
	if (r == 0)
		sum_up(&f);
	while (n_open > 0)
		close_worker(&f.workers[--n_open]);
	free(f.workers);
	free(f.events);
	free(f.draws);
	free(f.answers);
	return r;
}

void fleet_result_release(struct fleet_result *r)
{
	samples_release(&r->ttft_s);
	samples_release(&r->between_s);
	samples_release(&r->wait_s);
	*r = (struct fleet_result){0};
}
