#include "tests/scheduler_rules_internal.h"

#include <assert.h>
#include <string.h>

/* ---- memory in use ---- */

uint32_t rules_pages(const struct rules *r)
{
	bool seen[RULES_PAGES] = {0};
	uint32_t n = 0;

	each_request (q, r) {
		each_choice (c, q) {
			for (uint32_t p = c->first_page; c->held && p < c->n_pages; p++) {
				if (c->pages[p] == POOL_NONE)
					n++;
				else
					seen[c->pages[p]] = true;
			}
			/* also shipped pages in whose place the cache had equal ones */
			for (uint32_t p = 0;
			     c->held && (c - q->choices) == q->trunk && p < q->n_shipped; p++)
				if (q->ship_pages[p] != POOL_NONE)
					seen[q->ship_pages[p]] = true;
		}
	}
	for (uint32_t i = 0; i < r->config.n_pages; i++)
		n += seen[i];
	return n;
}

uint32_t rules_seats(const struct rules *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		for (uint32_t k = 0; r->requests[i].used && k < r->requests[i].r.n_choices; k++)
			n += r->requests[i].choices[k].held;
	return n;
}

void rules_mark_slots(const struct rules *r, bool *seen)
{
	each_request (q, r) {
		each_choice (c, q)
			if (c->held && c->pinned && c->source != POOL_NONE)
				seen[c->source] = true;
	}
	for (uint64_t n = r->committed + 1; n <= r->making; n++) {
		const struct rule_plan *p = &r->plans[n % 2];

		for (uint32_t i = 0; i < p->n_rows; i++) {
			const struct rule_row *row = &p->rows[i];

			if (row->pinned)
				seen[row->source] = true;
			if (row->handover && row->dst != POOL_NONE)
				seen[row->dst] = true;
			for (uint32_t k = 0; k < row->n_snapshots; k++)
				if (row->snapshot_slots[k] != POOL_NONE)
					seen[row->snapshot_slots[k]] = true;
		}
	}
}

uint32_t rules_slots(const struct rules *r)
{
	bool seen[RULES_SLOTS] = {0};
	uint32_t n = rules_seats(r) + r->new_slots;

	if (!r->config.n_slots)
		return 0;
	rules_mark_slots(r, seen);
	for (uint32_t i = 0; i < r->config.n_slots; i++)
		n += seen[i];
	return n;
}

bool rules_room(const struct rules *r, uint32_t n_pages, uint32_t n_slots)
{
	uint64_t pages = rules_pages(r) + n_pages, slots = rules_slots(r) + n_slots;

	return pages <= r->config.n_pages && slots <= r->config.n_slots &&
	       (!r->config.cache_bytes ||
		pages * r->config.page_bytes + slots * r->config.slot_bytes <=
			r->config.cache_bytes);
}

/* ---- admission ---- */

static struct mirror_key key_of(const struct rule_request *q, int32_t *tokens)
{
	const struct rule_choice *c = &q->choices[rules_first_live(q)];
	uint32_t n = rules_live(q) == 1 ? rules_known(q, c) : q->r.n_prompt;

	if (rules_reusable(q) < q->r.n_prompt - 1)
		n = rules_reusable(q) + 1;
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = i < q->r.n_prompt ? q->prompt[i] : c->generated[i - q->r.n_prompt];
	return (struct mirror_key){
		.tokens = tokens,
		.n_tokens = n,
		.n_prompt = q->r.n_prompt,
		.space = q->r.space,
		.any = (!q->admitted || !q->clean) && !rules_wants_prefilled(q),
		.decoded = prefix_origin(PREFIX_PREFILLED, q->r.n_prompt, true),
	};
}

static bool state_evicted(const struct rule_marks *m, uint64_t name)
{
	for (uint32_t i = 0; i < m->n_states; i++)
		if (m->states[i] == name)
			return true;
	return false;
}

static uint32_t page_place(const struct rule_marks *m, uint64_t name)
{
	uint32_t i = name % RULES_EVICTED;

	while (m->pages[i] && m->pages[i] != name)
		i = (i + 1) % RULES_EVICTED;
	return i;
}

void rules_mark_page(struct rule_marks *m, uint64_t name)
{
	uint32_t i = page_place(m, name);

	if (m->pages[i] || m->n_pages == RULES_EVICTED / 2)
		return;
	m->pages[i] = name;
	m->n_pages++;
}

static bool page_evicted(const struct rule_marks *m, uint64_t name)
{
	return m->pages[page_place(m, name)] == name;
}

/* Whether the cache had q's first n tokens before this plan, perhaps with an origin that q may not use. If so, this
 * plan may have evicted them at any moment. */
static bool was_there(const struct rules *r, const struct rule_request *q, uint32_t n)
{
	for (uint32_t i = 0; i < r->before->n; i++) {
		const struct mirror_node *at = &r->before->nodes[i];

		if (at->depth >= n && at->space.id[0] == q->r.space.id[0] &&
		    at->space.id[1] == q->r.space.id[1] &&
		    !memcmp(at->tokens, q->prompt, n * sizeof(*q->prompt)))
			return true;
	}
	return false;
}

/* Returns bits of the reasons for a miss that are right when a first admission begins at `end`. */
static uint32_t misses_at(const struct rules *r, const struct rule_request *q,
			  const struct mirror_end *end)
{
	uint32_t P = r->config.page_tokens, limit = rules_reusable(q) / P * P;
	uint32_t target = limit / r->align * r->align, reasons = 0;
	bool salt = q->r.space.id[0] || q->r.space.id[1];

	if (!target)
		return 1u << PREFIX_MISS_SHORT;
	if (end->n_tokens == target)
		return 1u << PREFIX_MISS_NONE;
	if (r->config.state_tokens && end->n_known / r->align * r->align > end->n_tokens) {
		bool evicted = false;

		/* Looks for evicted states on each path that has these tokens. Paths may differ in their
		 * origins: then the reason of each may be right. */
		for (uint32_t i = 0; i < r->before->n; i++) {
			const struct mirror_node *n = &r->before->nodes[i];
			bool found = false;

			if (n->space.id[0] != q->r.space.id[0] ||
			    n->space.id[1] != q->r.space.id[1] || n->depth < end->n_known ||
			    n->start >= end->n_known ||
			    memcmp(n->tokens, q->prompt, end->n_known * sizeof(*n->tokens)))
				continue;
			for (uint32_t d = end->n_tokens + P; d <= end->n_known; d += P)
				found |= state_evicted(r->evicted,
						       mirror_name(r->before, n, d, true));
			if (found)
				evicted = true;
			else
				reasons |= 1u << PREFIX_MISS_NO_CHECKPOINT;
		}
		return reasons | (uint32_t)evicted << PREFIX_MISS_EVICTED_STATE;
	}
	if (end->n_known < limit &&
	    page_evicted(r->evicted, mirror_name_of(&q->r.space, q->prompt, end->n_known + P))) {
		if (!was_there(r, q, end->n_known + P))
			return 1u << PREFIX_MISS_EVICTED_PAGE;
		reasons |= 1u << PREFIX_MISS_EVICTED_PAGE;
	}
	reasons |= 1u << (salt ? PREFIX_MISS_SALT : PREFIX_MISS_COLD);
	if (r->evicted->n_pages == RULES_EVICTED / 2) /* the set is full: it may lack the page */
		reasons |= 1u << PREFIX_MISS_EVICTED_PAGE;
	return reasons;
}

/* Returns the index of one of n answers: 0, unless the model tries another. */
static uint32_t try_one(struct rules *r, uint32_t n)
{
	uint32_t k = r->n_tried;

	if (k == RULES_TRIES)
		return 0;
	r->of[k] = n;
	r->n_tried++;
	return MIN(r->tried[k], n - 1);
}

static uint32_t branch_of(const struct rules *r, const struct mirror_end *end)
{
	uint32_t at = end->n_known / r->align * r->align;

	return r->config.state_tokens && at > end->n_tokens ? at : 0;
}

uint32_t rules_reusable(const struct rule_request *q)
{
	uint32_t n = q->r.n_prompt - 1;

	if (q->r.prompt_logprobs && !q->admitted)
		n = MIN(n, MAX(q->r.first_score, 1u) - 1);
	return q->r.pooling == POOLING_MEAN ? 0 : n;
}

bool rules_wants_prefilled(const struct rule_request *q)
{
	return q->r.handoff == HANDOFF_SEND || q->r.prompt_logprobs || q->r.pooling != POOLING_NONE;
}

/* Whether every token of q's prompt has to be computed, because scores or the mean of all are wanted. */
static bool wants_all(const struct rule_request *q)
{
	return !rules_reusable(q) &&
	       ((q->r.prompt_logprobs && !q->admitted) || q->r.pooling == POOLING_MEAN);
}

struct mirror_end rules_look_up(struct rules *r, struct rule_request *q, uint32_t *ret_misses)
{
	struct mirror_end ends[MIRROR_ENDS], chosen;
	int32_t tokens[RULES_LEN];
	struct mirror_key key = key_of(q, tokens);
	uint32_t n;

	q->n_branches = 0;
	q->receive_misses = 0;
	*ret_misses = 1u << PREFIX_MISS_DISABLED;
	if (!rules_remembers(r, q))
		return (struct mirror_end){0};
	*ret_misses =
		1u << (q->r.prompt_logprobs && q->r.first_score <= 1 ? PREFIX_MISS_LOGPROBS
								     : PREFIX_MISS_MEAN_POOLING);
	if (wants_all(q))
		return (struct mirror_end){0};
	n = mirror_ends(r->before, r->after, &key, ends);
	assert(n);
	chosen = ends[try_one(r, n)];
	*ret_misses = 0;
	for (uint32_t i = 0; i < n; i++)
		if (ends[i].n_tokens == chosen.n_tokens) {
			*ret_misses |= misses_at(r, q, &ends[i]);
			q->branches[q->n_branches++] = branch_of(r, &ends[i]);
		}
	for (uint32_t i = 0; i < n; i++)
		if (rules_wants_handoff(r, q, &ends[i]))
			q->receive_misses |= misses_at(r, q, &ends[i]);
	return chosen;
}

static uint32_t common(const struct rule_request *a, const struct rule_request *b)
{
	uint32_t n = 0;

	while (n < a->r.n_prompt && n < b->r.n_prompt && a->prompt[n] == b->prompt[n])
		n++;
	return n;
}

/* Returns the place of the deepest state in (after, at] that plans which are out leave in the prompt of request q; 0:
 * none. */
static uint32_t on_its_way(const struct rules *r, uint32_t q, uint32_t after, uint32_t at)
{
	uint32_t best = 0;

	for (uint64_t n = r->committed + 1; n <= r->planned; n++) {
		const struct rule_plan *p = &r->plans[n % 2];

		for (uint32_t i = 0; i < p->n_rows; i++) {
			const struct rule_row *row = &p->rows[i];

			if (row->q != q || row->decode)
				continue;
			for (uint32_t k = 0; k < row->n_snapshots; k++)
				if (row->snapshots[k] > after && row->snapshots[k] <= at)
					best = MAX(best, row->snapshots[k]);
			if (row->handover && row->start + row->n_tokens > after &&
			    row->start + row->n_tokens <= at)
				best = MAX(best, row->start + row->n_tokens);
		}
	}
	return best;
}

/* Asks q to leave a state at `at`. False: RULES_WANTED other states of it are wanted already. While there are several
 * branches that may be right, q is asked for `at` also if that is the branch which is tried. */
static bool ask(struct rule_request *q, uint32_t at)
{
	uint32_t n = q->n_asked + (q->branch > 0 && q->branch != at);

	for (uint32_t i = 0; i < q->n_asked; i++) {
		if (q->asked[i] == at)
			return true;
		n -= q->asked[i] == q->branch;
	}
	if (q->branch == at && q->n_branches < 2)
		return true;
	if (n >= RULES_WANTED || q->n_asked == RULES_WANTED)
		return false;
	q->asked[q->n_asked++] = at;
	return true;
}

uint32_t rules_wanted(const struct rule_request *q, uint32_t out[RULES_WANTED + 1])
{
	uint32_t n = 0;

	memcpy(out, q->asked, q->n_asked * sizeof(*out));
	n = q->n_asked;
	if (q->branch)
		out[n++] = q->branch;
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t k = i; k > 0 && out[k] < out[k - 1]; k--) {
			uint32_t swap = out[k];

			out[k] = out[k - 1];
			out[k - 1] = swap;
		}
	return n;
}

void rules_try_branches(struct rules *r)
{
	each_request (q, r) {
		if (q->place != RULE_ADMITTED || q->trunk < 0 || q->n_branches < 2 ||
		    q->choices[q->trunk].n_planned >= q->r.n_prompt)
			continue;
		q->branch = q->branches[try_one(r, q->n_branches)];
	}
}

bool rules_follow(struct rules *r, struct rule_request *q, const struct mirror_end *end,
		  uint64_t number)
{
	uint32_t cap = rules_reusable(q) / r->align * r->align;

	if (!rules_remembers(r, q) || wants_all(q) || end->n_tokens >= cap)
		return false;
	for (uint64_t order = 1; order <= r->orders; order++) {
		for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
			struct rule_request *l = &r->requests[i];
			struct rule_choice *t;
			uint32_t at, begun;

			if (!l->used || !l->leads || l->order != order || l->trunk < 0 ||
			    !rules_remembers(r, l) || l->r.space.id[0] != q->r.space.id[0] ||
			    l->r.space.id[1] != q->r.space.id[1])
				continue;
			t = &l->choices[l->trunk];
			if (((q->admitted && q->clean) || rules_wants_prefilled(q)) && l->unclean)
				continue;
			at = MIN(common(q, l) / r->align * r->align, cap);
			if (at <= end->n_tokens)
				continue;
			/* States of this plan's row can still be asked for. */
			begun = t->n_planned;
			if (t->last_plan == number && r->plans[number % 2].n_rows)
				for (uint32_t k = 0; k < r->plans[number % 2].n_rows; k++)
					if (r->plans[number % 2].rows[k].q == i)
						begun = r->plans[number % 2].rows[k].start;
			if (!r->config.state_tokens) {
				if (at <= l->n_computed)
					continue;
			} else if (at <= begun || !ask(l, at)) {
				at = on_its_way(r, i, end->n_tokens, at);
				if (!at)
					continue;
			}
			q->place = RULE_FOLLOWS;
			q->leader = i;
			q->following_to = at;
			r->shared_waits++;
			return true;
		}
	}
	return false;
}

static uint32_t table_pages(const struct rules *r, const struct rule_request *q)
{
	uint32_t n = 0;

	each_choice (c, q)
		if (!c->ended)
			n = MAX(n, rules_known(q, c) + r->config.page_tokens);
	return rules_ceil_pages(r, MIN(n, q->r.n_prompt + q->r.max_tokens));
}

/* Whether there is room for q. states: q begins at `end`, so it reads the state there. */
static bool fits(const struct rules *r, const struct rule_request *q, const struct mirror_end *end,
		 bool states)
{
	uint32_t P = r->config.page_tokens, n = table_pages(r, q), shared = q->r.n_prompt / P;
	uint32_t hit = end->n_tokens / P, slots = r->config.n_slots ? rules_live(q) : 0;
	struct rules with = *r;
	struct rule_choice *fake;

	if (rules_seats(r) + rules_live(q) > r->config.max_seqs)
		return false;
	if (hit) {
		/* As if one of q's choices held the pages up to `end`. */
		for (uint32_t i = 0; i < RULES_REQUESTS; i++)
			if (&r->requests[i] == q) {
				fake = &with.requests[i].choices[rules_first_live(q)];
				fake->held = true;
				fake->first_page = 0;
				fake->n_pages = hit;
				memcpy(fake->pages, end->node->pages, hit * sizeof(*fake->pages));
				fake->pinned = states && r->config.n_slots > 0;
				fake->source = end->node->slot;
				/* rules_slots counts a slot of this choice's own already. */
				slots -= r->config.n_slots > 0;
			}
	}
	return rules_room(&with, n - hit + (rules_live(q) - 1) * (n - shared), slots);
}

static void seat(struct rules *r, struct rule_choice *c, uint32_t first, uint32_t n)
{
	c->held = true;
	c->forked = c->pinned = c->drawn_before = false;
	c->first_page = first;
	c->n_pages = n;
	c->n_published = 0;
	c->n_planned = 0;
	c->slot = c->source = c->seat = POOL_NONE;
	for (uint32_t i = 0; i < RULES_LEN; i++)
		c->pages[i] = POOL_NONE;
}

bool rules_wants_handoff(const struct rules *r, const struct rule_request *q,
			 const struct mirror_end *end)
{
	return q->r.handoff == HANDOFF_RECEIVE && !q->local && !q->admitted &&
	       !q->r.prompt_logprobs &&
	       q->r.n_prompt - end->n_tokens >= r->config.handoff_min_tokens;
}

bool rules_receive(struct rules *r, struct rule_request *q, uint32_t misses)
{
	struct mirror_key key = {.tokens = q->prompt,
				 .n_tokens = q->r.n_prompt,
				 .n_prompt = q->r.n_prompt,
				 .space = q->r.space};
	uint32_t P = r->config.page_tokens, n = table_pages(r, q), unused;
	struct mirror_end end = {0};
	struct rule_choice *t;

	/* Cached pages that q uses are locked, so they are there after the plan. More prefilled pages of its prompt are
	 * not there, because q would use them. */
	if (rules_remembers(r, q))
		mirror_match(r->after, &key, &end.n_tokens, &unused);
	for (uint32_t i = 0; end.n_tokens && i < r->after->n; i++) {
		const struct mirror_node *at = &r->after->nodes[i];
		bool clean = at->depth >= end.n_tokens && at->space.id[0] == q->r.space.id[0] &&
			     at->space.id[1] == q->r.space.id[1] &&
			     !memcmp(at->tokens, q->prompt, end.n_tokens * sizeof(*q->prompt));

		for (uint32_t k = 0; clean && k < end.n_tokens / P; k++)
			clean = at->origin[k] == PREFIX_PREFILLED;
		if (clean)
			end.node = at;
	}
	if (!fits(r, q, &end, false))
		return false;
	q->place = RULE_RECEIVES;
	q->trunk = rules_first_live(q);
	q->order = ++r->orders;
	q->prepared = false;
	q->have = end.n_tokens;
	for (uint32_t i = (uint32_t)q->trunk; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			seat(r, &q->choices[i], (int)i == q->trunk ? 0 : q->r.n_prompt / P, n);
	t = &q->choices[q->trunk];
	if (end.n_tokens)
		memcpy(t->pages, end.node->pages, end.n_tokens / P * sizeof(*t->pages));
	t->n_published = end.n_tokens / P;
	memset(t->decoded, 0, sizeof(t->decoded));
	q->hit = (struct scheduler_hit){.n_cached = end.n_tokens,
					.n_received = q->r.n_prompt - end.n_tokens};
	q->misses = misses | q->receive_misses;
	r->receives++;
	return true;
}

bool rules_admit(struct rules *r, struct rule_request *q, struct mirror_end end, uint32_t misses,
		 uint64_t number)
{
	uint32_t P = r->config.page_tokens, n = table_pages(r, q);
	struct rule_choice *t;
	bool promote = true;

	if (!fits(r, q, &end, true)) {
		if (!end.n_tokens || rules_seats(r) || rules_live(q) > r->config.max_seqs)
			return false;
		/* No other request has a seat: q begins without the cached prefix. */
		if (misses == 1u << PREFIX_MISS_NONE)
			misses = 1u << PREFIX_MISS_EVICTED_STATE;
		end = (struct mirror_end){0};
		promote = false;
		r->alone++;
		if (!fits(r, q, &end, true))
			return false;
	}
	q->place = RULE_ADMITTED;
	q->retracted = false;
	q->trunk = rules_first_live(q);
	q->order = ++r->orders;
	q->leads = true;
	q->span_end = 0;
	t = &q->choices[q->trunk];
	for (uint32_t i = (uint32_t)q->trunk; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			seat(r, &q->choices[i], (int)i == q->trunk ? 0 : q->r.n_prompt / P, n);
	if (end.n_tokens) {
		memcpy(t->pages, end.node->pages, end.n_tokens / P * sizeof(*t->pages));
		t->n_planned = end.n_tokens;
		t->n_published = end.n_tokens / P;
		if (r->config.state_tokens) {
			t->pinned = true;
			t->source = end.node->slot;
		}
	}
	/* How the prefix of a request that is not clean was computed is read off its next row. */
	for (uint32_t i = 0; i < end.n_tokens; i++)
		t->decoded[i] = i >= q->r.n_prompt;
	q->unclean = false;
	for (uint32_t i = 0; i < MIN(end.n_tokens, q->r.n_prompt) / P; i++)
		q->unclean |= end.node->origin[i] != PREFIX_PREFILLED;
	q->n_computed = t->n_planned;
	q->n_asked = 0;
	q->branch = promote && rules_remembers(r, q) ? branch_of(r, &end) : 0;
	if (!promote)
		q->n_branches = 0;
	q->learn = end.n_tokens && (!q->admitted || !q->clean) && !rules_wants_prefilled(q);
	if (q->admitted)
		return true;
	q->admitted = true;
	q->clean = true;
	for (uint32_t i = 0; i < end.n_tokens / P; i++)
		q->clean = q->clean && end.node->origin[i] == PREFIX_PREFILLED;
	q->hit = (struct scheduler_hit){.n_cached = end.n_tokens, .step = number};
	q->misses = misses;
	r->prompt_tokens += q->r.n_prompt;
	r->cached_tokens += end.n_tokens;
	return true;
}
