#include "tests/scheduler_model.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/scheduler.h"
#include "tests/cache_mirror.h"
#include "tests/fake_device.h"
#include "tests/plan_check.h"
#include "tests/scheduler_rules.h"

enum {
	VOCAB = 16,
	END = 12,    /* the end tokens are END and END + 1 */
	LETTERS = 3, /* what is drawn and prompted, mostly */
	REMEMBERED = 6,
	TRIES_MAX = 4096,
	/* Of a plan: draws, and scored tokens. */
	RESULTS = RULES_SEQS + RULES_SEQS * RULES_LEN,
};

struct text {
	uint32_t n;
	int32_t tokens[RULES_LEN];
};

struct model {
	struct source *src;
	struct model_counts *counts;
	struct scheduler_config config;
	struct scheduler *s, *twin;
	struct fake_device *device;
	struct rules rules, trial;
	struct rule_marks marks;
	struct mirror mirrors[2], *now, *other;
	struct draw_result results[2][RESULTS]; /* of the plans that are out: number % 2 */
	struct plan_names names;
	enum scheduler_handoff handoff; /* of most requests */
	struct text texts[REMEMBERED];	/* what was said: other prompts begin like it */
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

static uint32_t n_alive(const struct model *m)
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

/* The k-th request that is alive. */
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

/* ---- statistics ---- */

/* Free, held and cached pages are all there are; what is not in use can be had. The same for slots. */
static const char *check_pools(const struct model *m, const struct prefix_stats *st)
{
	const struct scheduler_config *c = &m->config;
	bool pages[RULES_PAGES] = {0}, slots[RULES_SLOTS] = {0};
	uint32_t tree_pages = 0, tree_slots = 0, used_pages = 0, used_slots = 0;

	for (uint32_t i = 0; i < m->now->n; i++) {
		const struct mirror_node *n = &m->now->nodes[i];

		for (uint32_t k = n->start / c->page_tokens; k < n->depth / c->page_tokens; k++) {
			EXPECT(!pages[n->pages[k]]);
			pages[n->pages[k]] = true;
			tree_pages++;
		}
		if (n->slot != POOL_NONE) {
			EXPECT(!slots[n->slot]);
			slots[n->slot] = true;
			tree_slots++;
		}
	}
	EXPECT(st->tree_pages == tree_pages && st->tree_slots == tree_slots &&
	       st->nodes == m->now->n);
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		const struct rule_request *q = &m->rules.requests[i];

		for (uint32_t k = 0; q->used && k < q->r.n_choices; k++) {
			const struct rule_choice *h = &q->choices[k];

			for (uint32_t p = h->first_page; h->held && p < h->n_pages; p++)
				if (h->pages[p] == POOL_NONE)
					used_pages++;
				else
					pages[h->pages[p]] = true;
			for (uint32_t p = 0; h->held && (int)k == q->trunk && p < q->n_shipped; p++)
				if (q->ship_pages[p] != POOL_NONE)
					pages[q->ship_pages[p]] = true;
			EXPECT(!h->held || h->slot == POOL_NONE || !slots[h->slot]);
		}
	}
	for (uint32_t i = 0; i < c->n_pages; i++)
		used_pages += pages[i];
	EXPECT(st->free_pages == c->n_pages - used_pages);
	EXPECT(st->free_pages + st->evictable_pages == c->n_pages - rules_pages(&m->rules));
	if (!c->n_slots)
		return NULL;
	rules_mark_slots(&m->rules, slots);
	used_slots = rules_seats(&m->rules);
	for (uint32_t i = 0; i < c->n_slots; i++)
		used_slots += slots[i];
	EXPECT(st->free_slots == c->n_slots - used_slots);
	EXPECT(st->free_slots + st->evictable_slots == c->n_slots - rules_slots(&m->rules));
	EXPECT(st->used_bytes == used_pages * c->page_bytes + used_slots * c->slot_bytes);
	EXPECT(!c->cache_bytes || st->used_bytes <= c->cache_bytes);
	return NULL;
}

static const char *check_stats(const struct model *m)
{
	const struct rules *r = &m->rules;
	struct scheduler_stats got, twin;
	uint32_t waiting = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		waiting += r->requests[i].used && !rules_over(&r->requests[i]) &&
			   r->requests[i].place != RULE_ADMITTED &&
			   r->requests[i].place != RULE_RECEIVES;
	scheduler_stats(m->s, &got);
	scheduler_stats(m->twin, &twin);
	EXPECT(got.running == rules_seats(r));
	EXPECT(got.waiting == waiting);
	EXPECT(got.retractions == r->retractions);
	EXPECT(got.replayed_tokens == r->replayed_tokens);
	EXPECT(got.shared_waits == r->shared_waits);
	EXPECT(got.receives == r->receives && got.receives_failed == r->receives_failed);
	EXPECT(got.prompt_tokens == r->prompt_tokens && got.cached_tokens == r->cached_tokens);
	EXPECT(!memcmp(&got, &twin, sizeof(got)));
	return check_pools(m, &got.cache);
}

/* ---- what was evicted ---- */

/* Calls for every page of the cache: its name with origin, whether a state is at its end, its name without. */
struct page_names {
	uint32_t n;
	uint64_t name[RULES_PAGES], plain[RULES_PAGES];
	bool state[RULES_PAGES];
};

static void name_pages(const struct mirror *m, struct page_names *out)
{
	out->n = 0;
	for (uint32_t i = 0; i < m->n; i++) {
		const struct mirror_node *n = &m->nodes[i];

		for (uint32_t d = n->start + m->page_tokens; d <= n->depth; d += m->page_tokens) {
			out->name[out->n] = mirror_name(m, n, d, true);
			out->plain[out->n] = mirror_name(m, n, d, false);
			out->state[out->n++] = d == n->depth && n->slot != POOL_NONE;
		}
	}
}

static int find_name(const struct page_names *p, uint64_t name)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->name[i] == name)
			return (int)i;
	return -1;
}

/* States and pages that a plan made room by. */
static void mark_evicted(struct model *m)
{
	struct page_names before, after;

	name_pages(m->other, &before);
	name_pages(m->now, &after);
	for (uint32_t i = 0; i < before.n; i++) {
		int k = find_name(&after, before.name[i]);

		if (k < 0)
			rules_mark_page(&m->marks, before.plain[i]);
		if (before.state[i] && (k < 0 || !after.state[k]) &&
		    m->marks.n_states < ARRAY_SIZE(m->marks.states))
			m->marks.states[m->marks.n_states++] = before.name[i];
	}
}

/* A state that is back, or whose page is gone, is no more evicted. */
static void forget_marks(struct model *m)
{
	struct rule_marks *marks = &m->marks;
	struct page_names now;
	uint32_t n = 0;

	if (!marks->n_states)
		return;
	name_pages(m->now, &now);
	for (uint32_t i = 0; i < marks->n_states; i++) {
		int k = find_name(&now, marks->states[i]);

		if (k >= 0 && !now.state[k])
			marks->states[n++] = marks->states[i];
	}
	marks->n_states = n;
}

/* ---- plans ---- */

static void count_plan(struct model *m, const struct plan *p)
{
	struct model_counts *n = m->counts;

	n->plans++;
	n->rows += p->n_rows;
	n->draws += p->n_draws;
	n->page_copies += p->n_page_copies;
	n->state_copies += p->n_state_copies;
	n->resets += p->n_resets;
	n->scored_tokens += p->n_scored_tokens;
	n->ship_rows += p->n_ships;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		n->snapshots += p->rows[i].n_snapshots;
		n->unseen_tokens += !p->rows[i].tokens;
	}
}

/* What is asked about the prompts' tokens, and an answer that says which they are. */
static const char *score_plan(struct model *m, const struct plan *p, const struct rule_plan *plan,
			      struct draw_result *results)
{
	uint32_t k = 0, n = 0;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		const struct rule_request *q = &m->rules.requests[row->q];
		const struct plan_score *s = &p->scores[k];

		if (!row->n_scores)
			continue;
		EXPECT(k++ < p->n_scores && s->row == i && s->n_tokens == row->n_scores);
		EXPECT(s->n_top == q->r.n_prompt_logprobs);
		EXPECT(!memcmp(s->next, q->prompt + row->start + 1,
			       s->n_tokens * sizeof(*s->next)));
		for (uint32_t j = 0; j < s->n_tokens; j++)
			results[n++] = (struct draw_result){.token = s->next[j],
							    .rank = row->start + 1 + j};
	}
	EXPECT(k == p->n_scores && n == p->n_scored_tokens);
	return NULL;
}

/* What ships of q's rows named so far is what a cold prefill leaves. */
static const char *check_ship(const struct model *m, const struct rule_request *q)
{
	const char *failed = NULL;

	for (uint32_t i = 0; !failed && i < q->n_shipped; i++)
		if (q->ship_pages[i] != POOL_NONE)
			failed = fake_device_check_page(m->device, q->ship_pages[i], i, q->prompt,
							q->r.n_prompt);
	if (!failed && q->ship_slot != POOL_NONE)
		failed = fake_device_check_state(m->device, q->ship_slot, q->prompt, q->r.n_prompt);
	return failed;
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
			int32_t token = (int32_t)below(m->src, LETTERS);

			if (q->r.n_end_tokens && !p->draws[d].n_banned && chance(m, 12))
				token = q->ends[below(m->src, q->r.n_end_tokens)];
			draws[d] = (struct fake_history){.prompt = q->prompt,
							 .generated = drawn->generated,
							 .n_prompt = q->r.n_prompt,
							 .n_generated = row->positions[k]};
			drawn->generated[row->positions[k]] = token;
			results[d] = (struct draw_result){.token = token};
		}
	}
	failed = score_plan(m, p, plan, results + p->n_draws);
	failed = failed ? failed : fake_device_run(m->device, p, rows, draws, results);
	for (uint32_t i = 0; !failed && i < p->n_ships; i++)
		failed = check_ship(m, &r->requests[plan->rows[p->ships[i].row].q]);
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

/* Sometimes, when nothing runs, the second scheduler's ids get other names. Both forget what they know. */
static const char *shuffle_twin(struct model *m)
{
	bool alive_any = n_alive(m) > 0;

	if (!chance(m, alive_any ? 256 : 32))
		return NULL;
	m->counts->flushes++;
	EXPECT(scheduler_flush(m->s) == (alive_any ? -EBUSY : 0));
	EXPECT(scheduler_shuffle(m->twin, below(m->src, 256)) == (alive_any ? -EBUSY : 0));
	if (alive_any)
		return NULL;
	m->names = (struct plan_names){.n_slots = m->config.n_slots};
	m->marks = (struct rule_marks){0};
	take_mirror(m);
	EXPECT(m->now->n == 0);
	return NULL;
}

/* The next of the ways to answer what is in doubt; false: that was the last. */
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

/* What else the making of a plan did. */
static const char *check_made(const struct model *m, const struct plan *p, bool any)
{
	struct scheduler_stats st;

	scheduler_stats(m->s, &st);
	EXPECT(any == !!p);
	EXPECT(st.running == rules_seats(&m->trial));
	EXPECT(st.retractions == m->trial.retractions);
	EXPECT(st.shared_waits == m->trial.shared_waits);
	EXPECT(st.cached_tokens == m->trial.cached_tokens);
	EXPECT(st.receives == m->trial.receives);
	return NULL;
}

/* The rules' plan: of those that are right, the one that was made. */
static const char *follow_plan(struct model *m, const struct plan *p)
{
	const char *failed, *first = NULL;
	uint32_t n = 0;

	memset(m->rules.tried, 0, sizeof(m->rules.tried));
	m->rules.before = m->other;
	m->rules.after = m->now;
	do {
		m->trial = m->rules;
		failed = check_made(m, p, rules_plan(&m->trial));
		if (!failed && p)
			failed = plan_check(&m->trial, p);
		if (!failed) {
			m->rules = m->trial;
			if (p)
				plan_learn_ids(&m->rules, p);
			return NULL;
		}
		first = first ? first : failed;
		m->counts->doubts += n == 0 && next_try(&m->rules, &m->trial);
		if (n == 0)
			memset(m->rules.tried, 0, sizeof(m->rules.tried));
	} while (++n < TRIES_MAX && next_try(&m->rules, &m->trial));
	return first;
}

/* What sequences have published is there, kept, and in place of their own. */
static const char *check_published(struct model *m)
{
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *q = &m->rules.requests[i];

		for (uint32_t k = 0; q->used && k < q->r.n_choices; k++) {
			struct rule_choice *c = &q->choices[k];
			const struct mirror_node *n;
			int32_t tokens[RULES_LEN];
			uint64_t origin[RULES_LEN];

			if (!c->held || !c->n_published)
				continue;
			for (uint32_t t = 0; t < c->n_published * m->config.page_tokens; t++)
				tokens[t] = t < q->r.n_prompt ? q->prompt[t]
							      : c->generated[t - q->r.n_prompt];
			rules_origins(&m->rules, c, c->n_published, origin);
			n = mirror_find(m->now, &q->r.space, tokens, origin, c->n_published);
			EXPECT(n);
			memcpy(c->pages, n->pages, c->n_published * sizeof(*c->pages));
			for (uint32_t t = 0; t < m->now->n; t++) {
				const struct mirror_node *at = &m->now->nodes[t];

				/* On its way: locked. */
				if (at->depth <= c->n_published * m->config.page_tokens &&
				    at->depth <= n->depth &&
				    !memcmp(at->pages, n->pages,
					    at->depth / m->config.page_tokens * sizeof(*at->pages)))
					EXPECT(at->locks > 0);
			}
		}
	}
	return NULL;
}

static bool has_slot(const struct mirror *m, uint32_t slot)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (m->nodes[i].slot == slot)
			return true;
	return false;
}

/* States that are about to be read, before the plan and after, did not leave the cache. */
static const char *check_pinned(const struct model *m, const bool *before)
{
	bool after[RULES_SLOTS] = {0};

	rules_mark_slots(&m->rules, after);
	for (uint32_t i = 0; i < m->config.n_slots; i++)
		EXPECT(!before[i] || !after[i] || !has_slot(m->other, i) || has_slot(m->now, i));
	return NULL;
}

static const char *do_plan(struct model *m)
{
	const char *failed = shuffle_twin(m);
	bool pinned[RULES_SLOTS] = {0};
	uint64_t retractions = m->rules.retractions, waits = m->rules.shared_waits;
	uint64_t receives = m->rules.receives;
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
	mark_evicted(m);
	failed = follow_plan(m, p);
	forget_marks(m);
	/* Who is retracted needs its states no more. */
	if (!failed && retractions == m->rules.retractions)
		failed = check_pinned(m, pinned);
	if (failed)
		return failed;
	if (p) {
		count_plan(m, p);
		failed = run_plan(m, p);
		return failed ? failed : check_published(m);
	}
	scheduler_stats(m->s, &after);
	/* Refused: nothing changed. */
	if (retractions == m->rules.retractions && waits == m->rules.shared_waits &&
	    receives == m->rules.receives)
		EXPECT(!memcmp(&before, &after, sizeof(before)));
	/* Whoever waits alone can run: nothing that was accepted is ever stuck. */
	EXPECT(m->rules.planned > m->rules.committed || !n_alive(m) || n_transfers(m));
	return NULL;
}

/* ---- commits ---- */

/* States that rows kept are published. */
static const char *check_kept(const struct model *m, const struct rule_plan *plan)
{
	uint32_t P = m->config.page_tokens;

	for (uint32_t i = 0; i < plan->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		const struct rule_request *q = &m->rules.requests[row->q];
		const struct rule_choice *c = &q->choices[row->c];
		uint32_t depths[SNAPSHOTS_MAX + 1], n = 0;

		for (uint32_t k = 0; k < row->n_snapshots; k++)
			depths[n++] = row->snapshots[k];
		if (row->handover)
			depths[n++] = row->start + row->n_tokens;
		for (uint32_t k = 0; k < n; k++) {
			bool found = false;

			if (!q->used || !c->held || c->n_published * P < depths[k])
				continue;
			for (uint32_t j = 0; j < m->now->n; j++) {
				const struct mirror_node *at = &m->now->nodes[j];

				found |= at->depth == depths[k] && at->slot != POOL_NONE &&
					 !memcmp(at->pages, c->pages,
						 depths[k] / P * sizeof(*at->pages));
			}
			EXPECT(found);
			m->counts->handovers++;
		}
	}
	return NULL;
}

static void remember(struct model *m, const struct rule_request *q, const struct rule_choice *c)
{
	struct text *t = &m->texts[below(m->src, REMEMBERED)];

	t->n = 0;
	for (uint32_t i = 0; i < q->r.n_prompt; i++)
		t->tokens[t->n++] = q->prompt[i];
	for (uint32_t i = 0; i < c->n_generated; i++)
		t->tokens[t->n++] = c->generated[i];
}

static const char *check_event(struct model *m, const struct scheduler_event *ev,
			       const struct rule_event *want, const struct rule_request *q,
			       const struct draw_result *draw)
{
	EXPECT(ev->request == q->id && ev->user == q->r.user);
	EXPECT(ev->choice == want->c && ev->draw == draw && ev->finish == want->finish);
	EXPECT(ev->request_finished == want->over);
	EXPECT(ev->hit.n_cached == q->hit.n_cached && ev->hit.step == q->hit.step);
	EXPECT(ev->hit.n_received == q->hit.n_received);
	EXPECT(q->misses >> ev->hit.miss & 1);
	if (want->over)
		m->counts->misses[ev->hit.miss]++;
	m->counts->hits += want->over && ev->hit.n_cached;
	m->counts->finished += want->over;
	return NULL;
}

/* Whether the request's draws are before the k-th event. */
static bool drew_before(const struct scheduler_event *events, uint32_t k)
{
	for (uint32_t i = 0; i < k; i++)
		if (events[i].request == events[k].request && events[i].draw)
			return true;
	return false;
}

/* Events about prompts, of the plan that is about to be committed, or was: checked and taken out. */
static const char *take_scores(struct model *m, const struct rule_plan *plan,
			       const struct draw_result *results, struct scheduler_event *events,
			       uint32_t *n)
{
	uint32_t k = 0, left = 0;

	for (uint32_t i = 0; i < plan->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		const struct rule_request *q = &m->trial.requests[row->q];
		const struct scheduler_event *ev;

		if (row->n_scores && !rules_over(q)) {
			while (k < *n && events[k].draw)
				k++;
			EXPECT(k < *n && !drew_before(events, k));
			ev = &events[k++];
			EXPECT((ev->request == q->id || ev->request == q->twin_id) &&
			       ev->user == q->r.user);
			EXPECT(ev->finish == FINISH_NONE && !ev->request_finished);
			EXPECT(ev->hit.miss == PREFIX_MISS_LOGPROBS || q->r.cache_disabled ||
			       m->config.cache_disabled);
			EXPECT(ev->first_score == row->start + 1 && ev->n_scores == row->n_scores);
			EXPECT(ev->scores == results && ev->scores->rank == ev->first_score &&
			       ev->scores->token == q->prompt[ev->first_score]);
		}
		results += row->n_scores;
	}
	for (; k < *n; k++)
		EXPECT(events[k].draw);
	for (uint32_t i = 0; i < *n; i++)
		if (events[i].draw)
			events[left++] = events[i];
	*n = left;
	return NULL;
}

static const char *check_cache(struct model *m)
{
	if (chance(m, 8)) {
		prefix_cache_check(scheduler_cache(m->s));
		prefix_cache_check(scheduler_cache(m->twin));
	}
	return fake_device_check_cache(m->device, scheduler_cache(m->s));
}

static const char *do_commit(struct model *m)
{
	struct scheduler_event events[2 * RULES_SEQS], twin_events[2 * RULES_SEQS];
	struct rules *r = &m->rules;
	uint64_t number = r->committed + 1;
	const struct draw_result *results = m->results[number % 2];
	struct rule_event want[RULES_SEQS];
	uint32_t n = scheduler_commit(m->s, results, events), e = 0, n_want;
	uint32_t n_twin = scheduler_commit(m->twin, results, twin_events);
	const char *failed = NULL;

	EXPECT(n == n_twin);
	m->trial = *r; /* requests as they were: those that end are gone afterwards */
	n_want = rules_commit(r, want);
	failed = take_scores(m, &m->trial.plans[number % 2], results + n_want, events, &n);
	if (!failed)
		failed = take_scores(m, &m->trial.plans[number % 2], results + n_want, twin_events,
				     &n_twin);
	for (uint32_t i = 0; !failed && i < n_want; i++) {
		const struct rule_request *q = &m->trial.requests[want[i].q];

		if (!want[i].event) {
			m->counts->late_results++;
			continue;
		}
		EXPECT(e < n && twin_events[e].request == q->twin_id);
		failed = check_event(m, &events[e++], &want[i], q, &results[i]);
		if (want[i].finish != FINISH_NONE)
			remember(m, q, &r->requests[want[i].q].choices[want[i].c]);
	}
	if (failed)
		return failed;
	EXPECT(e == n);
	take_mirror(m);
	forget_marks(m);
	failed = check_published(m);
	failed = failed ? failed : check_kept(m, &r->plans[number % 2]);
	return failed ? failed : check_cache(m);
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
	return check_cache(m);
}

/* ---- between workers ---- */

/* Everybody who waits for a prompt is asked for, in order. */
static const char *take_prepares(struct model *m)
{
	struct scheduler_prepare p, twin;

	for (;;) {
		struct rule_request *next = NULL;
		struct rule_choice *t;
		uint32_t P = m->config.page_tokens, n_choices;
		const char *failed;

		for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
			struct rule_request *q = &m->rules.requests[i];

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
		/* The data come when they come; the request reads them later. */
		fake_device_receive(m->device, &p);
	}
}

/* The prompt is there, and with it the first tokens. */
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
		tokens[k] = (int32_t)below(m->src, LETTERS);
		if (q->r.n_end_tokens && !q->r.min_tokens && chance(m, 12))
			tokens[k] = q->ends[below(m->src, q->r.n_end_tokens)];
		results[k] = (struct draw_result){.token = tokens[k]};
	}
	n = scheduler_received(m->s, id, results, events);
	EXPECT(scheduler_received(m->twin, twin_id, results, twin_events) == n);
	take_mirror(m);
	mark_evicted(m);
	forget_marks(m);
	m->rules.after = m->now;
	n_want = rules_received(&m->rules, q, tokens, want);
	EXPECT(n == n_want && n > 0);
	for (uint32_t i = 0; !failed && i < n; i++) {
		EXPECT(twin_events[i].request == twin_id);
		failed = check_event(m, &events[i], &want[i], q, &results[want[i].c]);
		if (want[i].finish != FINISH_NONE)
			remember(m, q, &q->choices[want[i].c]);
	}
	if (failed)
		return failed;
	EXPECT(scheduler_received(m->s, id, results, events) == 0);
	scheduler_receive_failed(m->s, id, false);
	m->counts->received++;
	m->counts->received_checkpoints += q->used && q->choices[0].pinned;
	failed = check_published(m);
	return failed ? failed : check_cache(m);
}

/* Something happens to a request that receives or ships. */
static const char *do_transfer(struct model *m)
{
	struct rule_request *q = NULL;
	const char *failed = take_prepares(m);
	uint32_t k = n_transfers(m);

	if (failed || !k)
		return failed;
	k = below(m->src, k);
	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		if (transfers(&m->rules.requests[i]) && k-- == 0)
			q = &m->rules.requests[i];
	if (q->ships) {
		failed = check_ship(m, q);
		if (failed)
			return failed;
		/* The cache had them already, and yet they are to be read where they were. */
		for (uint32_t i = 0; i < q->n_shipped; i++)
			m->counts->exchanged_pages +=
				q->ship_pages[i] != POOL_NONE &&
				q->ship_pages[i] != q->choices[q->trunk].pages[i];
		if (chance(m, 8)) {
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
		bool again = chance(m, 2);

		scheduler_shipped(m->s, q->id);
		if (!chance(m, 4))
			return receive(m, q);
		scheduler_receive_failed(m->s, q->id, again);
		scheduler_receive_failed(m->s, q->id, again);
		scheduler_receive_failed(m->twin, q->twin_id, again);
		rules_receive_failed(&m->rules, q, again);
		*(again ? &m->counts->receives_again : &m->counts->receives_local) += 1;
	}
	take_mirror(m);
	return check_cache(m);
}

/* ---- requests ---- */

/* Lengths around page ends are as likely as all others. */
static uint32_t draw_length(struct model *m)
{
	uint32_t P = m->config.page_tokens;

	switch (below(m->src, 4)) {
	case 0: return below(m->src, 8);
	case 1: return P * below(m->src, 8) + below(m->src, 3);
	case 2: return P * (1 + below(m->src, 8)) - 1;
	default: return below(m->src, m->config.max_model_len + 4);
	}
}

/* A prompt that begins like something that was said before, and then leaves it. */
static void draw_prompt(struct model *m, struct rule_request *q)
{
	const struct text *t = &m->texts[below(m->src, REMEMBERED)];
	uint32_t n = chance(m, 2) ? t->n : below(m->src, t->n + 1);
	uint32_t length = chance(m, 2) ? n + below(m->src, 6) : draw_length(m);

	length = MIN(length, (uint32_t)RULES_LEN);
	for (uint32_t i = 0; i < length; i++)
		q->prompt[i] = i < n ? t->tokens[i] : (int32_t)below(m->src, LETTERS);
	q->r.n_prompt = length;
	if (!length && !chance(m, 16))
		q->prompt[q->r.n_prompt++] = 0;
	if (chance(m, 64) && length)
		q->prompt[below(m->src, length)] = VOCAB;
}

static bool memory_for(const struct model *m, const struct scheduler_request *r)
{
	const struct scheduler_config *c = &m->config;
	uint64_t pages = rules_pages_at_most(&m->rules, r);

	return pages <= c->n_pages &&
	       (!c->cache_bytes ||
		pages * c->page_bytes + (c->n_slots ? r->n_choices * c->slot_bytes : 0) <=
			c->cache_bytes);
}

static void draw_request(struct model *m, struct rule_request *q)
{
	struct scheduler_request *r = &q->r;

	*q = (struct rule_request){.trunk = -1, .ship_slot = POOL_NONE};
	memset(q->ship_pages, 0xff, sizeof(q->ship_pages));
	for (uint32_t i = 0; i < RULES_SEQS; i++)
		q->choices[i].slot = q->choices[i].source = q->choices[i].seat = POOL_NONE;
	draw_prompt(m, q);
	r->max_tokens = chance(m, 5) ? draw_length(m) : 1 + below(m->src, 12);
	r->min_tokens = chance(m, 3) ? below(m->src, 5) : 0;
	r->n_choices = chance(m, 3) ? 1 + below(m->src, m->config.max_seqs) : 1;
	r->n_end_tokens = below(m->src, 3);
	r->priority = chance(m, 6) ? (int32_t)below(m->src, 3) - 1 : 0;
	r->cache_disabled = chance(m, 12);
	r->prompt_logprobs = chance(m, 10);
	r->n_prompt_logprobs = r->prompt_logprobs ? below(m->src, 3) : 0;
	r->space.id[0] = chance(m, 8) ? below(m->src, 3) : 0;
	r->sampling = (struct sampling){.seed = m->next_user, .repetition_penalty = 1};
	if (chance(m, 4))
		r->sampling.presence_penalty = 1;
	r->user = (void *)(uintptr_t)++m->next_user;
	for (uint32_t i = 0; i < r->n_end_tokens; i++)
		q->ends[i] = (int32_t)(END + i);
	r->n_boundaries = chance(m, 2) ? 0 : below(m->src, ARRAY_SIZE(q->boundaries) + 1);
	for (uint32_t i = 0, at = 0; i < r->n_boundaries; i++) {
		at += below(m->src, 10) + !chance(m, 64);
		q->boundaries[i] = at;
		if (at > r->n_prompt) /* rarely one too far is left in */
			r->n_boundaries = chance(m, 32) ? i + 1 : i;
	}
	r->handoff = m->handoff;
	if (m->handoff != HANDOFF_NONE && chance(m, 6))
		r->handoff = (enum scheduler_handoff)below(m->src, 3);
	if (r->handoff == HANDOFF_SEND && !chance(m, 32)) {
		r->max_tokens = 1;
		r->prompt_logprobs = false;
	}
	if (chance(m, 32)) { /* rarely as it comes */
		r->max_tokens = draw_length(m);
		r->n_choices = below(m->src, m->config.max_seqs + 2);
		return;
	}
	/* Mostly it fits, often just so. */
	r->n_prompt = MAX(MIN(r->n_prompt, m->config.max_model_len - 1), 1u);
	r->max_tokens = MIN(r->max_tokens, m->config.max_model_len - r->n_prompt);
	while (r->n_choices > 1 && !memory_for(m, r))
		r->n_choices--;
	while (r->max_tokens > 1 && !memory_for(m, r))
		r->max_tokens--;
	while (r->n_boundaries && q->boundaries[r->n_boundaries - 1] > r->n_prompt)
		r->n_boundaries--;
	if (r->handoff == HANDOFF_SEND && chance(m, 2)) {
		r->n_have = below(m->src, CEIL_DIV(r->n_prompt, m->config.page_tokens)) *
			    m->config.page_tokens;
		r->n_have += chance(m, 32);
	}
}

static bool acceptable(const struct model *m, const struct rule_request *q)
{
	const struct scheduler_config *c = &m->config;
	const struct scheduler_request *r = &q->r;

	if (!r->n_prompt || !r->max_tokens || !r->n_choices || r->n_choices > c->max_seqs ||
	    r->n_prompt + r->max_tokens > c->max_model_len)
		return false;
	if (r->handoff == HANDOFF_SEND && (r->max_tokens != 1 || r->prompt_logprobs ||
					   r->n_have % c->page_tokens || r->n_have >= r->n_prompt))
		return false;
	for (uint32_t i = 0; i < r->n_prompt; i++)
		if (q->prompt[i] >= VOCAB)
			return false;
	for (uint32_t i = 0; i < r->n_boundaries; i++)
		if (q->boundaries[i] > r->n_prompt ||
		    (i && q->boundaries[i] <= q->boundaries[i - 1]))
			return false;
	return memory_for(m, r);
}

static bool queue_full(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		const struct rule_request *q = &m->rules.requests[i];

		n += q->used && !rules_over(q) && q->place != RULE_ADMITTED &&
		     q->place != RULE_RECEIVES && !q->retracted;
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
	draw_request(m, q);
	r = q->r;
	r.prompt = q->prompt;
	r.end_tokens = q->ends;
	r.boundaries = q->boundaries;
	err = scheduler_submit(m->s, &r, &q->id, NULL);
	twin_err = scheduler_submit(m->twin, &r, &q->twin_id, NULL);
	want = !acceptable(m, q) ? -EINVAL : queue_full(m) ? -EAGAIN : 0;
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

	if (!n_alive(m)) {
		scheduler_abort(m->s, below(m->src, 100));
		return NULL;
	}
	q = alive(m, below(m->src, n_alive(m)));
	id = q->id;
	scheduler_abort(m->s, id);
	scheduler_abort(m->twin, q->twin_id);
	m->counts->aborted++;
	rules_abort(&m->rules, q);
	if (chance(m, 4)) {
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

	if (!n_alive(m))
		return NULL;
	q = alive(m, below(m->src, n_alive(m)));
	k = below(m->src, q->r.n_choices + 1);
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

static const char *do_something(struct model *m)
{
	uint32_t op = below(m->src, 40);

	m->counts->events++;
	if (op < 7)
		return do_submit(m);
	if (op == 7)
		return do_abort(m);
	if (op == 8)
		return do_finish_choice(m);
	if (op >= 36 && n_transfers(m))
		return do_transfer(m);
	if (!n_out(m))
		return do_plan(m);
	if (op == 9 && chance(m, 6))
		return do_fail(m);
	return n_out(m) < m->config.max_plans_out && op % 2 ? do_plan(m) : do_commit(m);
}

/* Every request that is left completes. */
static const char *drain(struct model *m)
{
	uint64_t steps = 50 + 100 * n_alive(m);

	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		const struct scheduler_request *r = &m->rules.requests[i].r;

		if (m->rules.requests[i].used)
			steps += 2 * (r->n_prompt + (uint64_t)r->n_choices * r->max_tokens) *
				 (n_alive(m) + 1);
	}
	for (;;) {
		const char *failed = n_out(m) ? do_commit(m) : NULL;

		if (!failed && n_transfers(m) && (!n_out(m) || chance(m, 2)))
			failed = do_transfer(m);
		failed = failed ? failed : check_stats(m);
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

static const char *check_baseline(struct model *m)
{
	struct scheduler_stats st;

	EXPECT(!n_alive(m));
	scheduler_stats(m->s, &st);
	EXPECT(st.running == 0 && st.waiting == 0);
	EXPECT(st.cache.free_pages + st.cache.tree_pages == m->config.n_pages);
	EXPECT(st.cache.free_slots + st.cache.tree_slots == m->config.n_slots);
	EXPECT(scheduler_flush(m->s) == 0);
	scheduler_stats(m->s, &st);
	EXPECT(st.cache.free_pages == m->config.n_pages &&
	       st.cache.free_slots == m->config.n_slots);
	EXPECT(st.cache.nodes == 0 && st.cache.spaces == 0 && st.cache.used_bytes == 0);
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

static void draw_config(struct model *m)
{
	struct scheduler_config *c = &m->config;
	struct source *src = m->src;

	c->page_tokens = 1u << below(src, 3);
	c->state_tokens = chance(m, 4) ? 0 : c->page_tokens << below(src, 2);
	c->max_seqs = 1 + below(src, RULES_SEQS);
	c->n_slots = c->state_tokens ? c->max_seqs + below(src, chance(m, 2) ? 4 : 20) : 0;
	c->n_pages = 2 + below(src, chance(m, 2) ? 24 : RULES_PAGES - 2);
	if (chance(m, 2))
		c->n_pages = 2 + 2 * RULES_LEN / (3 * c->page_tokens) + below(src, 16);
	c->max_prefill_tokens = MAX(c->page_tokens, c->state_tokens);
	c->max_prefill_tokens += below(src, 8 * c->max_prefill_tokens);
	c->max_model_len = chance(m, 8) ? 2 + below(src, 20) : RULES_LEN - below(src, 40);
	c->vocab_size = VOCAB;
	c->page_bytes = 1 + below(src, 3);
	c->slot_bytes = 1 + below(src, 8);
	if (chance(m, 3))
		c->cache_bytes = 1 + below(src, (uint32_t)(c->n_pages * c->page_bytes +
							   c->n_slots * c->slot_bytes));
	c->cache_disabled = chance(m, 24);
	c->refuse_decoded = chance(m, 8);
	c->max_waiting = chance(m, 6) ? 1 + below(src, 4) : 0;
	c->max_plans_out = 1 + below(src, 2);
	c->handoff_min_tokens = below(src, 16);
	m->handoff = (enum scheduler_handoff)(chance(m, 2) ? 0 : below(src, 3));
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
	n->alone += m->rules.alone;
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
	draw_config(m);
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
