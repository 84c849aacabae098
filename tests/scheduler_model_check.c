/* The checks of the scheduler's state after a call. */
#include "tests/scheduler_model_internal.h"

#include <string.h>

/* Checks that free, held and cached pages add up to all, that every page that is not in use can be taken, and the same
 * for slots. */
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
	each_request (q, &m->rules) {
		each_choice (h, q) {
			for (uint32_t p = h->first_page; h->held && p < h->n_pages; p++)
				if (h->pages[p] == POOL_NONE)
					used_pages++;
				else
					pages[h->pages[p]] = true;
			for (uint32_t p = 0;
			     h->held && (h - q->choices) == q->trunk && p < q->n_shipped; p++)
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

const char *model_check_stats(const struct model *m)
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

/* ---- evictions ---- */

/* All pages of the cache: their names (mirror_name) with origin and without, and whether a state is at their ends. */
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

void model_mark_evicted(struct model *m)
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

void model_forget_marks(struct model *m)
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

/* ---- plans and commits ---- */

const char *model_check_scores(struct model *m, const struct plan *p, const struct rule_plan *plan,
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
		EXPECT(row->start + s->first + 1 == row->first_score);
		EXPECT(s->first + s->n_tokens <= row->n_tokens);
		EXPECT(s->n_top == q->r.n_prompt_logprobs);
		EXPECT(!memcmp(s->next, q->prompt + row->first_score,
			       s->n_tokens * sizeof(*s->next)));
		for (uint32_t j = 0; j < s->n_tokens; j++)
			results[n++] = (struct draw_result){.token = s->next[j],
							    .rank = row->first_score + j};
	}
	EXPECT(k == p->n_scores && n == p->n_scored_tokens);
	return NULL;
}

const char *model_check_poolings(struct model *m, const struct plan *p,
				 const struct rule_plan *plan)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		struct rule_request *q = &m->rules.requests[row->q];
		struct rule_choice *c = &q->choices[row->c];
		const struct plan_pooling *g = &p->poolings[k];
		bool mean = q->r.pooling == POOLING_MEAN;

		if (!row->pools)
			continue;
		EXPECT(k++ < p->n_poolings && g->row == i && g->ends == row->ends);
		EXPECT(g->first == (mean ? 0 : row->n_tokens - 1));
		EXPECT(g->begins == (!mean || !row->start));
		/* The sum stays in the seat of the choice, which no other one has. */
		EXPECT(g->seat < m->config.max_seqs);
		EXPECT(c->seat == POOL_NONE || c->seat == g->seat);
		c->seat = g->seat;
		each_request (other, &m->rules) {
			each_choice (o, other)
				EXPECT(o == c || !o->held || o->seat != c->seat);
		}
		m->counts->poolings++;
	}
	EXPECT(k == p->n_poolings);
	return NULL;
}

const char *model_check_ship(const struct model *m, const struct rule_request *q)
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

const char *model_check_made(const struct model *m, const struct plan *p, bool any)
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

const char *model_check_published(struct model *m)
{
	each_request (q, &m->rules) {
		each_choice (c, q) {
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

				/* A node on the path of these pages must be locked. */
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

const char *model_check_pinned(const struct model *m, const bool *before)
{
	bool after[RULES_SLOTS] = {0};

	rules_mark_slots(&m->rules, after);
	for (uint32_t i = 0; i < m->config.n_slots; i++)
		EXPECT(!before[i] || !after[i] || !has_slot(m->other, i) || has_slot(m->now, i));
	return NULL;
}

const char *model_check_kept(const struct model *m, const struct rule_plan *plan)
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

const char *model_check_event(struct model *m, const struct scheduler_event *ev,
			      const struct rule_event *want, const struct rule_request *q,
			      const struct draw_result *draw)
{
	EXPECT(ev->request == q->id && ev->user == q->r.user);
	EXPECT(ev->choice == want->c && ev->draw == draw && ev->finish == want->finish);
	EXPECT(ev->request_finished == want->over && !ev->scores);
	EXPECT(ev->pooled == (want->undrawn && q->r.pooling != POOLING_NONE));
	EXPECT(ev->hit.n_cached == q->hit.n_cached && ev->hit.step == q->hit.step);
	EXPECT(ev->hit.n_received == q->hit.n_received);
	EXPECT(q->misses >> ev->hit.miss & 1);
	if (want->over)
		m->counts->misses[ev->hit.miss]++;
	m->counts->hits += want->over && ev->hit.n_cached;
	m->counts->finished += want->over;
	return NULL;
}

/* Whether an event before events[k] has a draw of the same request. */
static bool drew_before(const struct scheduler_event *events, uint32_t k)
{
	for (uint32_t i = 0; i < k; i++)
		if (events[i].request == events[k].request && !events[i].scores)
			return true;
	return false;
}

const char *model_take_scores(struct model *m, const struct rule_plan *plan,
			      const struct draw_result *results, struct scheduler_event *events,
			      uint32_t *n)
{
	uint32_t k = 0, left = 0;

	for (uint32_t i = 0; i < plan->n_rows; i++) {
		const struct rule_row *row = &plan->rows[i];
		const struct rule_request *q = &m->trial.requests[row->q];
		const struct scheduler_event *ev;

		if (row->n_scores && !rules_over(q)) {
			while (k < *n && !events[k].scores)
				k++;
			EXPECT(k < *n && !drew_before(events, k));
			ev = &events[k++];
			EXPECT((ev->request == q->id || ev->request == q->twin_id) &&
			       ev->user == q->r.user);
			EXPECT(ev->finish == FINISH_NONE && !ev->request_finished);
			EXPECT(ev->hit.miss == PREFIX_MISS_LOGPROBS || q->r.first_score > 1 ||
			       q->r.cache_disabled || m->config.cache_disabled);
			EXPECT(ev->first_score == row->first_score &&
			       ev->n_scores == row->n_scores);
			EXPECT(ev->scores == results && ev->scores->rank == ev->first_score &&
			       ev->scores->token == q->prompt[ev->first_score]);
		}
		results += row->n_scores;
	}
	for (; k < *n; k++)
		EXPECT(!events[k].scores);
	for (uint32_t i = 0; i < *n; i++)
		if (!events[i].scores)
			events[left++] = events[i];
	*n = left;
	return NULL;
}

const char *model_check_cache(struct model *m)
{
	if (model_chance(m, 8)) {
		prefix_cache_check(scheduler_cache(m->s));
		prefix_cache_check(scheduler_cache(m->twin));
	}
	return fake_device_check_cache(m->device, scheduler_cache(m->s));
}

const char *model_check_baseline(struct model *m)
{
	struct scheduler_stats st;

	EXPECT(!model_n_alive(m));
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
