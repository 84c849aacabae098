/* Prefill and decode apart, from end to end without a device: a scheduler that decodes and one that prefills, coupled
 * like two workers, against one scheduler that does both. The same tokens must be drawn, to the last bit of a
 * log-probability, even if messages are late or fail and attempts are given up.
 *
 * Each of the three has a model of a device, which computes numbers from everything that a row reads: every cell of its
 * pages, the state it resumes, the counts of its seat. A life is one random run of the three. There are three kinds:
 *
 *     TOKENS  a number does not tell how it was computed: every request may begin with any cached prefix
 *     CLEAN   a number tells whether a prefill or a decode row computed it, as the bits of a real model do; decoded
 *             pages are not kept, because a request that begins with them has other bits than one that does not
 *     COLD    numbers are as in CLEAN; the worker that decodes keeps everything, has every prompt computed elsewhere,
 *             and must answer as a worker that keeps nothing
 *
 *     test_handoff_pair [SEED [RUNS]] */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mix.h"
#include "tests/fake_device.h"
#include "tests/random.h"
#include "tests/tap.h"

enum {
	P = 4, /* tokens of a page */
	LEN = 96,
	SEQS = 6,
	PAGES_MAX = 120,
	SLOTS_MAX = 40,
	VOCAB = 50,
	END = 49,
	REQUESTS = 40, /* of a life */
	DELIVERIES = 400,
	TEXTS = 5,
};

enum kind { TOKENS, CLEAN, COLD, KINDS };

/* ---- one worker: a scheduler and a model of its device ---- */

struct worker {
	struct scheduler *s;
	struct scheduler_config config;
	struct fake_device *device;
	struct draw_result results[2][SEQS];
	uint32_t n_out;
	uint64_t first_out; /* the step of the oldest plan that is out */
};

static struct draw_result draw(const struct worker *w, const struct plan *p,
			       const struct plan_draw *d)
{
	const struct plan_row *row = &p->rows[d->row];
	const struct fake_seat *seat = &w->device->seats[d->seat];
	uint64_t h = mix_add(mix_add(d->sampling->seed, d->choice), d->position);
	struct draw_result r = {0};

	h = mix_add(h, fake_device_hash(w->device, row));
	if (sampling_penalised(d->sampling))
		h = mix_add(mix_add(h, seat->prompt), seat->generated);
	r.token = h % 40 ? (int32_t)(h / 40 % (VOCAB - 1)) : END;
	for (uint32_t i = 0; i < d->n_banned; i++)
		if (d->banned[i] == r.token)
			r.token = 0;
	r.logprob = -(float)(h >> 40);
	return r;
}

/* Makes the next plan and runs it at once. NULL: there is none, or max_plans_out plans are out. */
static const struct plan *step(struct worker *w)
{
	const struct plan *p;
	struct draw_result *results;

	if (w->n_out == w->config.max_plans_out)
		return NULL;
	p = scheduler_plan(w->s);
	if (!p)
		return NULL;
	check(!fake_device_run(w->device, p, NULL));
	results = w->results[p->step % 2];
	for (uint32_t i = 0; i < p->n_draws; i++)
		results[i] = draw(w, p, &p->draws[i]);
	check(!fake_device_draw(w->device, p, NULL, results));
	if (!w->n_out++)
		w->first_out = p->step;
	return p;
}

static uint32_t commit(struct worker *w, struct scheduler_event *events)
{
	w->n_out--;
	return scheduler_commit(w->s, w->results[w->first_out++ % 2], events);
}

/* ---- requests and deliveries ---- */

/* An answer, as a client gets it. */
struct answer {
	struct draw_result draws[SEQS][LEN];
	uint32_t n[SEQS];
	enum finish_reason finish[SEQS];
	bool over;
};

struct task {
	int32_t prompt[LEN];
	struct scheduler_request r;
	uint64_t unified, decode; /* ids in the two schedulers; 0: not submitted */
	struct answer want, got;
	bool given_up;
};

/* A prompt on its way from worker to worker. */
struct delivery {
	bool open;     /* the decode worker waits */
	bool sending;  /* the prefill worker has the request; its id is `prefill` */
	bool computed; /* the first tokens are known */
	uint64_t decode, prefill;
	struct scheduler_prepare to;
	uint32_t pages_to[LEN]; /* ids of the pages to write to */
	uint32_t pages_from[LEN];
	bool named[LEN], read[LEN], state_named, state_read;
	uint32_t state_from;
	struct fake_cell cells[LEN][P];
	struct fake_state state;
	struct draw_result draws[SEQS];
};

struct life {
	struct worker unified, prefill, decode;
	struct task tasks[REQUESTS];
	struct delivery deliveries[DELIVERIES];
	uint32_t n_tasks, n_deliveries;
	uint32_t want_tasks;
	enum kind kind;
};

static struct {
	uint64_t kinds[KINDS], compared, tokens, received, pages, pages_kept, states, failed_here,
		failed_there, refused, given_up, lost_steps, retractions, late_reads, choices;
} seen;

static bool chance(uint32_t one_in)
{
	return random_below(one_in) == 0;
}

/* Returns whether a failed prompt is handed over again; else the decode worker computes it. */
static bool again(struct life *l)
{
	return l->kind == COLD || chance(2);
}

static struct delivery *delivery_of(struct life *l, uint64_t prefill)
{
	for (uint32_t i = 0; i < l->n_deliveries; i++)
		if (l->deliveries[i].sending && l->deliveries[i].prefill == prefill)
			return &l->deliveries[i];
	return NULL;
}

static void take_answers(struct life *l, bool unified, const struct scheduler_event *events,
			 uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct task *t = events[i].user;
		struct answer *a = unified ? &t->want : &t->got;
		uint32_t k = events[i].choice;

		check(events[i].draw && !a->over && t >= l->tasks && t < l->tasks + REQUESTS);
		a->draws[k][a->n[k]++] = *events[i].draw;
		a->finish[k] = events[i].finish;
		a->over = events[i].request_finished;
	}
}

/* ---- the network ---- */

/* The prefill worker reads data that its ships named and that it has not read yet: all of them (`all`), or a random
 * part. */
static void read_delivery(struct life *l, struct delivery *r, bool all)
{
	uint32_t first = r->to.ask.n_have / P;

	for (uint32_t i = 0; i < r->to.n_pages; i++) {
		if (!r->named[i] || r->read[i] || (!all && chance(2)))
			continue;
		memcpy(r->cells[i], l->prefill.device->cells + r->pages_from[first + i] * P,
		       sizeof(r->cells[i]));
		r->read[i] = true;
		seen.pages++;
		seen.late_reads += r->computed;
	}
	if (r->state_named && !r->state_read && (all || chance(2))) {
		r->state = l->prefill.device->states[r->state_from];
		r->state_read = true;
		seen.states++;
	}
}

static bool has_all(const struct life *l, const struct delivery *r)
{
	for (uint32_t i = 0; i < r->to.n_pages; i++)
		if (!r->read[i])
			return false;
	return r->computed && (r->state_read || !l->prefill.config.n_slots);
}

static void take_ships(struct life *l, const struct plan *p)
{
	for (uint32_t i = 0; i < p->n_ships; i++) {
		const struct plan_ship *s = &p->ships[i];
		struct delivery *r = delivery_of(l, s->request);

		check(r && s->n_pages > 0);
		for (uint32_t k = s->first_page; k < s->first_page + s->n_pages; k++) {
			uint32_t at = k - r->to.ask.n_have / P;

			check(k >= r->to.ask.n_have / P && at < r->to.n_pages && !r->named[at]);
			r->pages_from[k] = p->rows[s->row].pages[k];
			r->named[at] = true;
		}
		check(!s->state || !r->state_named);
		r->state_named = s->state;
		r->state_from = p->rows[s->row].state_dst;
		if (chance(2))
			read_delivery(l, r, true);
	}
}

/* The prefill worker loses the prompt, or gives it up; the decode worker is told that it failed. */
static void fail_delivery(struct life *l, struct delivery *r)
{
	if (r->sending)
		scheduler_abort(l->prefill.s, r->prefill);
	r->sending = false;
	if (r->open)
		scheduler_receive_failed(l->decode.s, r->decode, again(l));
	r->open = false;
}

static void take_prepares(struct life *l)
{
	struct scheduler_prepare p;

	while (scheduler_next_prepare(l->decode.s, &p)) {
		struct delivery *r = &l->deliveries[l->n_deliveries++];

		check(l->n_deliveries < DELIVERIES);
		*r = (struct delivery){.open = true, .decode = p.request, .to = p};
		memcpy(r->pages_to, p.pages, p.n_pages * sizeof(*p.pages));
		check(p.n_pages == CEIL_DIV(p.ask.n_prompt, P) - p.ask.n_have / P);
		seen.pages_kept += p.ask.n_have / P;
		if (scheduler_submit(l->prefill.s, &p.ask, &r->prefill, NULL) < 0) {
			seen.refused++;
			scheduler_receive_failed(l->decode.s, r->decode, false);
			r->open = false;
			continue;
		}
		r->sending = true;
	}
}

/* Writes the data of a delivery, which are all here, to the decode worker's device, and lets the request go on. Does
 * nothing if the decode worker does not wait for the delivery any more. */
static void deliver(struct life *l, struct delivery *r)
{
	struct fake_device *device = l->decode.device;
	struct scheduler_event events[SEQS];
	uint32_t n;

	if (!r->open)
		return;
	for (uint32_t i = 0; i < r->to.n_pages; i++) {
		uint32_t begin = r->to.ask.n_have + i * P;

		memcpy(device->cells + r->pages_to[i] * P, r->cells[i], sizeof(r->cells[i]));
		device->fills[r->pages_to[i]].len = MIN(r->to.ask.n_prompt - begin, (uint32_t)P);
	}
	if (l->decode.config.n_slots)
		device->states[r->to.slot] = r->state;
	n = scheduler_received(l->decode.s, r->decode, r->draws, events);
	check(n > 0);
	for (uint32_t i = 0; i < n; i++)
		check(events[i].hit.n_cached + events[i].hit.n_received == r->to.ask.n_prompt);
	take_answers(l, false, events, n);
	check(scheduler_received(l->decode.s, r->decode, r->draws, events) == 0);
	r->open = false;
	seen.received++;
}

/* Makes one delivery that is being sent fail, or reads more of its data; when all of them are read, delivers them. */
static void network(struct life *l)
{
	struct delivery *r = NULL;
	uint32_t from = l->n_deliveries ? random_below(l->n_deliveries) : 0;

	for (uint32_t i = 0; i < l->n_deliveries && !r; i++) {
		r = &l->deliveries[(from + i) % l->n_deliveries];
		r = r->sending ? r : NULL;
	}
	if (!r)
		return;
	if (chance(30)) {
		seen.failed_there++;
		fail_delivery(l, r);
		return;
	}
	read_delivery(l, r, false);
	if (!has_all(l, r))
		return;
	/* deliver and scheduler_shipped may come in either order, because data that were read do not change any
	 * more. */
	if (chance(2))
		deliver(l, r);
	scheduler_shipped(l->prefill.s, r->prefill);
	scheduler_shipped(l->prefill.s, r->prefill);
	r->sending = false;
	deliver(l, r);
}

/* ---- steps ---- */

static void step_unified(struct life *l)
{
	struct scheduler_event events[2 * SEQS];

	if (l->unified.n_out && chance(2))
		take_answers(l, true, events, commit(&l->unified, events));
	else
		(void)step(&l->unified);
}

static void step_decode(struct life *l)
{
	struct scheduler_event events[2 * SEQS];

	if (l->decode.n_out && chance(2))
		take_answers(l, false, events, commit(&l->decode, events));
	else
		(void)step(&l->decode);
	take_prepares(l);
}

static void step_prefill(struct life *l)
{
	struct scheduler_event events[2 * SEQS];
	struct worker *w = &l->prefill;
	uint32_t n;

	if (!w->n_out || chance(2)) {
		const struct plan *p = step(w);

		if (p)
			take_ships(l, p);
		return;
	}
	if (chance(100)) {
		/* The prefill worker loses all its pages and states, also those that ship. */
		seen.lost_steps++;
		(void)scheduler_fail(w->s, events);
		w->n_out = 0;
		memset(w->device->cells, 0x55, w->config.n_pages * P * sizeof(*w->device->cells));
		memset(w->device->states, 0x55, w->config.n_slots * sizeof(*w->device->states));
		for (uint32_t i = 0; i < l->n_deliveries; i++)
			if (l->deliveries[i].sending)
				fail_delivery(l, &l->deliveries[i]);
		return;
	}
	n = commit(w, events);
	for (uint32_t i = 0; i < n; i++) {
		struct delivery *r = delivery_of(l, events[i].request);

		check(r && events[i].draw && events[i].finish != FINISH_NONE);
		r->draws[events[i].choice] = *events[i].draw;
		r->computed = events[i].request_finished;
	}
}

static void submit(struct life *l, const struct task *texts)
{
	const struct task *like = &texts[random_below(TEXTS)];
	const struct task *before = l->n_tasks ? &l->tasks[random_below(l->n_tasks)] : NULL;
	struct task *t = &l->tasks[l->n_tasks++];
	uint32_t n = 1 + random_below(60), shared = random_below(60);
	static const int32_t end = END;

	for (uint32_t i = 0; i < n; i++)
		t->prompt[i] = i < shared ? like->prompt[i] : (int32_t)random_below(VOCAB - 1);
	/* The prompt becomes the next turn of an earlier conversation. */
	if (before && before->got.over && chance(2)) {
		const struct answer *a = &before->got;

		n = MIN(before->r.n_prompt + a->n[0], (uint32_t)LEN - 20);
		for (uint32_t i = 0; i < n; i++)
			t->prompt[i] = i < before->r.n_prompt
					       ? before->prompt[i]
					       : a->draws[0][i - before->r.n_prompt].token;
		t->prompt[n++] = (int32_t)random_below(VOCAB - 1);
	}
	t->r = (struct scheduler_request){
		.prompt = t->prompt,
		.n_prompt = n,
		.max_tokens = 1 + random_below(chance(3) ? LEN : 30),
		.min_tokens = chance(3) ? random_below(4) : 0,
		.n_choices = chance(3) ? 1 + random_below(3) : 1,
		.end_tokens = &end,
		.n_end_tokens = 1,
		.cache_disabled = chance(10),
		.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
		.user = t,
	};
	t->r.sampling.seed = random_below(1000);
	t->r.sampling.presence_penalty = chance(3);
	t->r.max_tokens = MIN(t->r.max_tokens, (uint32_t)LEN - n);
	if (scheduler_submit(l->unified.s, &t->r, &t->unified, NULL) < 0) {
		t->given_up = true;
		return;
	}
	t->r.handoff = HANDOFF_RECEIVE;
	check(scheduler_submit(l->decode.s, &t->r, &t->decode, NULL) == 0);
}

/* A client leaves, or the decode worker no longer waits for a prompt, as when a peer is dead. */
static void give_up(struct life *l)
{
	struct task *t = &l->tasks[random_below(l->n_tasks)];

	if (t->given_up || t->want.over || t->got.over)
		return;
	if (chance(4)) {
		t->given_up = true;
		scheduler_abort(l->unified.s, t->unified);
		scheduler_abort(l->decode.s, t->decode);
		for (uint32_t i = 0; i < l->n_deliveries; i++)
			if (l->deliveries[i].decode ==
			    t->decode) /* data that still come are dropped */
				l->deliveries[i].open = false;
		seen.given_up++;
		return;
	}
	for (uint32_t i = 0; i < l->n_deliveries; i++)
		if (l->deliveries[i].open && l->deliveries[i].decode == t->decode) {
			seen.failed_here++;
			l->deliveries[i].open = false;
			scheduler_receive_failed(l->decode.s, t->decode, again(l));
		}
}

static bool idle(const struct life *l)
{
	struct scheduler_stats a, b, c;

	scheduler_stats(l->unified.s, &a);
	scheduler_stats(l->prefill.s, &b);
	scheduler_stats(l->decode.s, &c);
	return l->n_tasks == l->want_tasks &&
	       !(a.running + a.waiting + b.running + b.waiting + c.running + c.waiting);
}

static void compare(const struct life *l)
{
	for (uint32_t i = 0; i < l->n_tasks; i++) {
		const struct task *t = &l->tasks[i];

		if (t->given_up)
			continue;
		check(t->want.over && t->got.over);
		seen.compared++;
		seen.kinds[l->kind]++;
		for (uint32_t k = 0; k < t->r.n_choices; k++) {
			check(t->want.n[k] == t->got.n[k] && t->want.finish[k] == t->got.finish[k]);
			check(!memcmp(t->want.draws[k], t->got.draws[k],
				      t->want.n[k] * sizeof(t->want.draws[k][0])));
			seen.tokens += t->want.n[k];
			seen.choices += k;
		}
	}
}

/* ---- lives ---- */

static void worker_begin(struct worker *w, const struct scheduler_config *c, bool marks)
{
	*w = (struct worker){.config = *c, .device = fake_device_new(c)};
	w->device->unmarked = !marks;
	if (scheduler_new(c, &w->s, NULL) < 0)
		abort();
}

static void worker_end(struct worker *w)
{
	struct scheduler_stats st;

	scheduler_stats(w->s, &st);
	seen.retractions += st.retractions;
	check(w->n_out == 0 && st.running == 0 && st.waiting == 0);
	prefix_cache_check(scheduler_cache(w->s));
	check(scheduler_flush(w->s) == 0);
	scheduler_stats(w->s, &st);
	check(st.cache.free_pages == w->config.n_pages && st.cache.free_slots == w->config.n_slots);
	scheduler_free(w->s);
	fake_device_free(w->device);
}

static struct scheduler_config random_config(bool states, uint32_t n_pages)
{
	uint32_t S = states ? P << random_below(2) : 0;

	return (struct scheduler_config){
		.page_tokens = P,
		.state_tokens = S,
		.n_pages = n_pages,
		.n_slots = states ? SEQS + random_below(SLOTS_MAX - SEQS) : 0,
		.page_bytes = 1,
		.slot_bytes = 2,
		.max_plans_out = 1 + random_below(2),
		.max_seqs = SEQS,
		.max_prefill_tokens = 8 + random_below(60),
		.max_model_len = LEN,
		.vocab_size = VOCAB,
	};
}

static void live(uint64_t seed)
{
	static struct life life;
	struct life *l = &life;
	struct task texts[TEXTS] = {0};
	struct scheduler_config unified, prefill, decode;
	bool states;
	uint32_t ticks = 0;

	memset(l, 0, sizeof(*l));
	random_state = mix64(seed);
	states = !chance(4);
	l->kind = (enum kind)random_below(KINDS);
	l->want_tasks = 5 + random_below(REQUESTS - 5);
	/* The two that decode accept the same requests: 3 choices of 96 tokens are 72 pages at most. */
	unified = random_config(states, 72 + random_below(PAGES_MAX - 72));
	decode = random_config(states, 72 + random_below(chance(2) ? 4 : PAGES_MAX - 72));
	prefill = random_config(states, 20 + random_below(PAGES_MAX - 20));
	unified.refuse_decoded = decode.refuse_decoded = l->kind == CLEAN;
	decode.handoff_min_tokens = random_below(20);
	prefill.max_waiting = chance(4) ? 1 + random_below(3) : 0;
	if (l->kind == COLD) {
		unified.cache_disabled = true;
		decode.handoff_min_tokens = 1;
		prefill.max_waiting = 0;
		prefill.n_pages = PAGES_MAX;
	}
	worker_begin(&l->unified, &unified, l->kind != TOKENS);
	worker_begin(&l->decode, &decode, l->kind != TOKENS);
	worker_begin(&l->prefill, &prefill, l->kind != TOKENS);
	for (uint32_t i = 0; i < TEXTS; i++)
		for (uint32_t k = 0; k < LEN; k++)
			texts[i].prompt[k] = (int32_t)random_below(VOCAB - 1);
	while (!idle(l)) {
		switch (random_below(12)) {
		case 0:
			if (l->n_tasks < l->want_tasks)
				submit(l, texts);
			break;
		case 1:
			if (l->n_tasks && chance(12))
				give_up(l);
			break;
		case 2:
		case 3: step_unified(l); break;
		case 4:
		case 5:
		case 6: step_decode(l); break;
		case 7:
		case 8: step_prefill(l); break;
		default: network(l); break;
		}
		if (++ticks > 200000)
			break;
	}
	check(idle(l));
	compare(l);
	worker_end(&l->unified);
	worker_end(&l->decode);
	worker_end(&l->prefill);
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : 4000;

	for (uint64_t seed = first; seed < first + runs; seed++) {
		int before = tap_quiet;

		live(seed);
		if (tap_quiet != before)
			printf("# seed %llu\n", (unsigned long long)seed);
	}
	ok_all("%llu lives: two workers answer as one does", (unsigned long long)runs);
	if (argc > 1)
		return done();
#define SEEN(field, at_least) \
	ok(seen.field >= (at_least), "%llu " #field, (unsigned long long)seen.field)
	SEEN(compared, 40000);
	for (int i = 0; i < KINDS; i++)
		ok(seen.kinds[i] >= 10000, "%llu of kind %d", (unsigned long long)seen.kinds[i], i);
	SEEN(tokens, 800000);
	SEEN(choices, 18000);
	SEEN(received, 28000);
	SEEN(pages, 250000);
	SEEN(late_reads, 40000);
	SEEN(states, 25000);
	SEEN(pages_kept, 60000);
	SEEN(failed_here, 700);
	SEEN(failed_there, 8000);
	SEEN(refused, 500);
	SEEN(given_up, 2000);
	SEEN(lost_steps, 500);
	SEEN(retractions, 300);
	return done();
}
