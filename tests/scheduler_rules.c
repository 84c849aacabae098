#include "tests/scheduler_rules_internal.h"

#include <string.h>

bool rules_over(const struct rule_request *q)
{
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			return false;
	return true;
}

bool rules_holds(const struct rule_request *q)
{
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (q->choices[i].held)
			return true;
	return false;
}

uint32_t rules_live(const struct rule_request *q)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < q->r.n_choices; i++)
		n += !q->choices[i].ended;
	return n;
}

int rules_first_live(const struct rule_request *q)
{
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			return (int)i;
	return -1;
}

uint32_t rules_known(const struct rule_request *q, const struct rule_choice *c)
{
	return q->r.n_prompt + c->n_generated;
}

uint32_t rules_ceil_pages(const struct rules *r, uint32_t n)
{
	uint32_t pages = 0;

	while (pages * r->config.page_tokens < n)
		pages++;
	return pages;
}

bool rules_remembers(const struct rules *r, const struct rule_request *q)
{
	return !r->config.cache_disabled && !q->r.cache_disabled;
}

uint32_t rules_pages_at_most(const struct rules *r, const struct scheduler_request *q)
{
	uint32_t shared = q->n_prompt / r->config.page_tokens;

<<<<<<< Updated upstream
	return shared + q->n_choices * (ceil_pages(r, q->n_prompt + q->max_tokens) - shared);
}

/* ---- what is in use ---- */

uint32_t rules_pages(const struct rules *r)
{
	bool seen[RULES_PAGES] = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		const struct rule_request *q = &r->requests[i];

		for (uint32_t k = 0; q->used && k < q->r.n_choices; k++) {
			const struct rule_choice *c = &q->choices[k];

			for (uint32_t p = c->first_page; c->held && p < c->n_pages; p++) {
				if (c->pages[p] == POOL_NONE)
					n++;
				else
					seen[c->pages[p]] = true;
			}
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
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		const struct rule_request *q = &r->requests[i];

		for (uint32_t k = 0; q->used && k < q->r.n_choices; k++)
			if (q->choices[k].held && q->choices[k].pinned &&
			    q->choices[k].source != POOL_NONE)
				seen[q->choices[k].source] = true;
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

static bool room(const struct rules *r, uint32_t n_pages, uint32_t n_slots)
{
	uint64_t pages = rules_pages(r) + n_pages, slots = rules_slots(r) + n_slots;

	return pages <= r->config.n_pages && slots <= r->config.n_slots &&
	       (!r->config.cache_bytes ||
		pages * r->config.page_bytes + slots * r->config.slot_bytes <=
			r->config.cache_bytes);
=======
	return shared + q->n_choices * (rules_ceil_pages(r, q->n_prompt + q->max_tokens) - shared);
>>>>>>> Stashed changes
}

/* ---- ends ---- */

static bool out_of_plans(const struct rules *r, const struct rule_choice *c)
{
	return c->last_plan <= r->committed;
}

static void release(struct rule_choice *c)
{
	c->held = c->forked = c->pinned = c->drawn_before = false;
	c->n_planned = c->n_pages = c->first_page = c->n_published = 0;
	c->order = 0;
	c->slot = c->source = c->seat = POOL_NONE;
}

static void settle(struct rules *r)
{
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *q = &r->requests[i];

		for (uint32_t k = 0; q->used && k < q->r.n_choices; k++) {
			struct rule_choice *c = &q->choices[k];

			if (c->held && c->ended && out_of_plans(r, c) &&
			    (q->trunk != (int)k || rules_over(q)))
				release(c);
		}
		if (q->used && rules_over(q) && !rules_holds(q))
			q->used = false;
	}
}

static void lead_no_more(struct rules *r, struct rule_request *q)
{
	q->leads = false;
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *f = &r->requests[i];

		if (f->used && f->place == RULE_FOLLOWS && f->leader == (uint32_t)(q - r->requests))
			f->place = RULE_QUEUED;
	}
}

static void note_over(struct rules *r, struct rule_request *q)
{
	if (!rules_over(q))
		return;
	if (r->head == (int)(q - r->requests))
		r->head = -1;
	lead_no_more(r, q);
	if (!rules_holds(q))
		q->used = false;
}

void rules_abort(struct rules *r, struct rule_request *q)
{
	if (rules_over(q))
		return;
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		q->choices[i].ended = true;
	note_over(r, q);
	settle(r);
}

void rules_finish_choice(struct rules *r, struct rule_request *q, uint32_t c)
{
	if (c >= q->r.n_choices || q->choices[c].ended)
		return;
	q->choices[c].ended = true;
	note_over(r, q);
	settle(r);
}

<<<<<<< Updated upstream
/* ---- admission ---- */

static struct mirror_key key_of(const struct rule_request *q, int32_t *tokens)
{
	const struct rule_choice *c = &q->choices[first_live(q)];
	uint32_t n = n_live(q) == 1 ? known(q, c) : q->r.n_prompt;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = i < q->r.n_prompt ? q->prompt[i] : c->generated[i - q->r.n_prompt];
	return (struct mirror_key){
		.tokens = tokens,
		.n_tokens = n,
		.n_prompt = q->r.n_prompt,
		.space = q->r.space,
		.any = !q->admitted || !q->clean,
		.decoded = prefix_history(PREFIX_PREFILLED, q->r.n_prompt, true),
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

/* The reasons that are right when a first admission begins at `end`. */
static uint32_t misses_at(const struct rules *r, const struct rule_request *q,
			  const struct mirror_end *end)
{
	uint32_t P = r->config.page_tokens, limit = (q->r.n_prompt - 1) / P * P;
	uint32_t target = limit / r->align * r->align, reasons = 0;
	bool salt = q->r.space.id[0] || q->r.space.id[1];

	if (!target)
		return 1u << PREFIX_MISS_SHORT;
	if (end->n_tokens == target)
		return 1u << PREFIX_MISS_NONE;
	if (r->config.state_tokens && end->n_known / r->align * r->align > end->n_tokens) {
		bool evicted = false;

		/* A state that was there on any path that is known so far. Paths may differ in their
		 * histories: then either may be meant. */
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
	    page_evicted(r->evicted, mirror_name_of(&q->r.space, q->prompt, end->n_known + P)))
		return 1u << PREFIX_MISS_EVICTED_PAGE;
	reasons = 1u << (salt ? PREFIX_MISS_SALT : PREFIX_MISS_COLD);
	if (r->evicted->n_pages == RULES_EVICTED / 2) /* more than are kept here */
		reasons |= 1u << PREFIX_MISS_EVICTED_PAGE;
	return reasons;
}

/* One of n answers: the first, unless the model tries others. */
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

/* Where q would begin, the reasons that are right then, and where it may part from what is known. */
static struct mirror_end look_up(struct rules *r, struct rule_request *q, uint32_t *ret_misses)
{
	struct mirror_end ends[MIRROR_ENDS], chosen;
	int32_t tokens[RULES_LEN];
	struct mirror_key key = key_of(q, tokens);
	uint32_t n;

	q->n_branches = 0;
	*ret_misses = 1u << PREFIX_MISS_DISABLED;
	if (!remembers(r, q))
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
	return chosen;
}

static uint32_t common(const struct rule_request *a, const struct rule_request *b)
{
	uint32_t n = 0;

	while (n < a->r.n_prompt && n < b->r.n_prompt && a->prompt[n] == b->prompt[n])
		n++;
	return n;
}

/* The deepest state in (after, at] that plans which are out leave in q's prompt; 0: none. */
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

static bool ask(struct rule_request *q, uint32_t at)
{
	for (uint32_t i = 0; i < q->n_asked; i++)
		if (q->asked[i] == at)
			return true;
	if (q->branch == at)
		return true;
	if (q->n_asked + (q->branch > 0) == RULES_WANTED)
		return false;
	q->asked[q->n_asked++] = at;
	return true;
}

/* The states that are wanted of q, from the front. */
static uint32_t wanted_of(const struct rule_request *q, uint32_t out[RULES_WANTED + 1])
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

/* What may be known by another name of the same plan: the branches that are in doubt. */
static void try_branches(struct rules *r)
{
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *q = &r->requests[i];

		if (!q->used || q->place != RULE_ADMITTED || q->trunk < 0 || q->n_branches < 2 ||
		    q->choices[q->trunk].n_planned >= q->r.n_prompt)
			continue;
		q->branch = q->branches[try_one(r, q->n_branches)];
	}
}

static bool decoded_before(const struct rule_choice *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (c->decoded[i])
			return true;
	return false;
}

/* True when q now waits for what another one is computing. */
static bool follow(struct rules *r, struct rule_request *q, const struct mirror_end *end,
		   uint64_t number)
{
	uint32_t cap = (q->r.n_prompt - 1) / r->align * r->align;

	if (!remembers(r, q) || end->n_tokens >= cap)
		return false;
	for (uint64_t order = 1; order <= r->orders; order++) {
		for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
			struct rule_request *l = &r->requests[i];
			struct rule_choice *t;
			uint32_t at, begun;

			if (!l->used || !l->leads || l->order != order || l->trunk < 0 ||
			    !remembers(r, l) || l->r.space.id[0] != q->r.space.id[0] ||
			    l->r.space.id[1] != q->r.space.id[1])
				continue;
			t = &l->choices[l->trunk];
			/* Decoded tokens before the prompt's end are in what it began with. */
			if (q->admitted && q->clean &&
			    decoded_before(t, MIN(t->n_planned, l->r.n_prompt)))
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

	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			n = MAX(n, known(q, &q->choices[i]) + r->config.page_tokens);
	return ceil_pages(r, MIN(n, q->r.n_prompt + q->r.max_tokens));
}

static bool fits(const struct rules *r, const struct rule_request *q, const struct mirror_end *end)
{
	uint32_t P = r->config.page_tokens, n = table_pages(r, q), shared = q->r.n_prompt / P;
	uint32_t hit = end->n_tokens / P, slots = r->config.n_slots ? n_live(q) : 0;
	struct rules with = *r;
	struct rule_choice *fake;

	if (rules_seats(r) + n_live(q) > r->config.max_seqs)
		return false;
	if (hit) {
		/* As if a sequence held what is found. */
		for (uint32_t i = 0; i < RULES_REQUESTS; i++)
			if (&r->requests[i] == q) {
				fake = &with.requests[i].choices[first_live(q)];
				fake->held = true;
				fake->first_page = 0;
				fake->n_pages = hit;
				memcpy(fake->pages, end->node->pages, hit * sizeof(*fake->pages));
				fake->pinned = r->config.n_slots > 0;
				fake->source = end->node->slot;
				/* It has no slot of its own so far. */
				slots -= r->config.n_slots > 0;
			}
	}
	return room(&with, n - hit + (n_live(q) - 1) * (n - shared), slots);
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

static bool admit(struct rules *r, struct rule_request *q, struct mirror_end end, uint32_t misses,
		  uint64_t number)
{
	uint32_t P = r->config.page_tokens, n = table_pages(r, q);
	struct rule_choice *t;
	bool promote = true;

	if (!fits(r, q, &end)) {
		if (!end.n_tokens || rules_seats(r) || n_live(q) > r->config.max_seqs)
			return false;
		/* Alone: without what it would begin with. */
		if (misses == 1u << PREFIX_MISS_NONE)
			misses = 1u << PREFIX_MISS_EVICTED_STATE;
		end = (struct mirror_end){0};
		promote = false;
		r->alone++;
		if (!fits(r, q, &end))
			return false;
	}
	q->place = RULE_ADMITTED;
	q->retracted = false;
	q->trunk = first_live(q);
	q->order = ++r->orders;
	q->leads = true;
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
	/* Of requests that are not clean it is read off the next row. */
	for (uint32_t i = 0; i < end.n_tokens; i++)
		t->decoded[i] = i >= q->r.n_prompt;
	q->n_computed = t->n_planned;
	q->n_asked = 0;
	q->branch = promote && remembers(r, q) ? branch_of(r, &end) : 0;
	if (!promote)
		q->n_branches = 0;
	q->learn = end.n_tokens && (!q->admitted || !q->clean);
	if (q->admitted)
		return true;
	q->admitted = true;
	q->clean = true;
	for (uint32_t i = 0; i < end.n_tokens / P; i++)
		q->clean = q->clean && end.node->history[i] == PREFIX_PREFILLED;
	q->hit = (struct scheduler_hit){.n_cached = end.n_tokens, .step = number};
	q->misses = misses;
	r->prompt_tokens += q->r.n_prompt;
	r->cached_tokens += end.n_tokens;
	return true;
}

=======
>>>>>>> Stashed changes
/* ---- rows ---- */

static struct rule_request *first_waiting(struct rules *r)
{
	struct rule_request *best = NULL;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *q = &r->requests[i];

		if (!q->used || rules_over(q) || q->place != RULE_QUEUED)
			continue;
		if (!best || q->r.priority < best->r.priority ||
		    (q->r.priority == best->r.priority && q->id < best->id))
			best = q;
	}
	return best;
}

static struct rule_row *add_row(struct rules *r, struct rule_request *q, struct rule_choice *c,
				uint64_t number, uint32_t n_tokens, bool decode)
{
	struct rule_plan *p = &r->plans[number % 2];
	struct rule_row *row = &p->rows[p->n_rows++];

	*row = (struct rule_row){
		.q = (uint32_t)(q - r->requests),
		.c = (uint32_t)(c - q->choices),
		.start = c->n_planned,
		.n_tokens = n_tokens,
		.decode = decode,
		.learn = q->learn,
		.pinned = c->pinned,
		.source = c->source,
		.own = c->slot,
		.dst = POOL_NONE,
	};
	q->learn = false;
	c->pinned = false; /* the row has it now, until it is through */
	for (uint32_t i = 0; i < n_tokens; i++)
		c->decoded[c->n_planned + i] = decode;
	c->n_planned += n_tokens;
	c->last_plan = number;
	return row;
}

static void add_draw(struct rule_row *row, struct rule_request *q, struct rule_choice *c,
		     uint64_t number)
{
	row->counts[row->n_draws] = sampling_penalised(&q->r.sampling) && !c->drawn_before;
	row->positions[row->n_draws] = c->n_generated + c->n_drawing;
	row->draws[row->n_draws++] = (uint32_t)(c - q->choices);
	c->drawn_before = true;
	c->n_drawing++;
	c->last_plan = number;
}

static void prompt_ends(struct rules *r, struct rule_request *q)
{
	for (uint32_t i = 0; i < q->r.n_choices; i++)
		if (!q->choices[i].ended)
			q->choices[i].order = q->order;
}

static void add_prefills(struct rules *r, uint64_t number, bool paused)
{
	uint32_t budget = r->config.max_prefill_tokens;

	while (budget) {
		struct rule_request *q;
		struct rule_choice *t;
		struct rule_row *row;
		uint32_t n, left;

		if (r->head < 0) {
			struct mirror_end end;
			uint32_t misses;

			q = first_waiting(r);
			if (!q || paused || (budget < r->align && q->r.n_prompt > budget))
				return;
			end = rules_look_up(r, q, &misses);
			if (rules_follow(r, q, &end, number))
				continue;
			if (!rules_admit(r, q, end, misses, number)) {
				r->admissions_refused++;
				return;
			}
			if (q->choices[q->trunk].n_planned >= q->r.n_prompt) {
				lead_no_more(r, q);
				prompt_ends(r, q);
				continue;
			}
			r->head = (int)(q - r->requests);
		}
		q = &r->requests[r->head];
		t = &q->choices[q->trunk];
		left = q->r.n_prompt - t->n_planned;
		n = 0;
		if (left <= budget)
			n = left;
		else
			while (n + r->align <= budget)
				n += r->align;
		if (!n)
			return;
		row = add_row(r, q, t, number, n, false);
		budget -= n;
		if (t->n_planned < q->r.n_prompt) {
			r->cut_prompts++;
			return;
		}
		for (uint32_t i = 0; i < q->r.n_choices; i++) {
			struct rule_choice *c = &q->choices[i];

			if (c->ended)
				continue;
			c->last_plan = number;
			if (!c->n_generated)
				add_draw(row, q, c, number);
		}
		prompt_ends(r, q);
		r->head = -1;
	}
}

static bool can_decode(const struct rule_request *q, const struct rule_choice *c, uint64_t number)
{
	return c->held && !c->ended && c->order && c->last_plan != number &&
	       c->n_generated + c->n_drawing < q->r.max_tokens;
}

static bool has_page(const struct rules *r, const struct rule_choice *c)
{
	return c->n_planned < c->n_pages * r->config.page_tokens;
}

static void fork_request(struct rules *r, struct rule_request *q, uint64_t number)
{
	struct rule_plan *p = &r->plans[number % 2];
	const struct rule_choice *t = &q->choices[q->trunk];
	uint32_t whole = q->r.n_prompt / r->config.page_tokens;

	for (uint32_t i = 0; i < q->r.n_choices; i++) {
		struct rule_choice *c = &q->choices[i];

		c->forked = true;
		if (c == t || c->ended)
			continue;
		c->first_page = 0;
		memcpy(c->pages, t->pages, whole * sizeof(*c->pages));
		memcpy(c->decoded, t->decoded, sizeof(c->decoded));
		c->n_published = MIN(t->n_published, whole);
		c->n_planned = q->r.n_prompt;
		p->n_state_copies += r->config.n_slots > 0;
		p->n_page_copies += q->r.n_prompt % r->config.page_tokens != 0;
	}
	q->trunk = -1;
}

/* Calls for every decoding sequence in their order. */
static void for_each_decoding(struct rules *r, uint64_t number,
			      void (*f)(struct rules *, struct rule_request *, struct rule_choice *,
					uint64_t, bool *),
			      bool *arg)
{
	for (uint64_t order = 1; order <= r->orders; order++)
		for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
			struct rule_request *q = &r->requests[i];

			for (uint32_t k = 0; q->used && k < q->r.n_choices; k++)
				if (q->choices[k].order == order &&
				    can_decode(q, &q->choices[k], number))
					f(r, q, &q->choices[k], number, arg);
		}
}

static void grow_one(struct rules *r, struct rule_request *q, struct rule_choice *c,
		     uint64_t number, bool *paused)
{
	if (q->trunk >= 0 || has_page(r, c))
		return;
	if (rules_room(r, 1, 0)) {
		c->n_pages++;
	} else {
		*paused = true;
		r->paused++;
	}
}

static void decode_one(struct rules *r, struct rule_request *q, struct rule_choice *c,
		       uint64_t number, bool *unused)
{
	struct rule_row *row;
	bool last;

	if (q->trunk >= 0)
		fork_request(r, q, number);
	if (!has_page(r, c))
		return;
	last = c->n_planned + 1 == rules_known(q, c) + c->n_drawing;
	row = add_row(r, q, c, number, 1, true);
	if (last)
		add_draw(row, q, c, number);
	else
		r->replayed_tokens++;
}

/* ---- checkpoints ---- */

static void want(const struct rules *r, const struct rule_row *row, uint32_t at, uint32_t *out,
		 uint32_t *n)
{
	at = at / r->align * r->align;
	if (at <= row->start || at >= row->start + row->n_tokens || *n == SNAPSHOTS_MAX)
		return;
	for (uint32_t i = 0; i < *n; i++)
		if (out[i] == at)
			return;
	out[(*n)++] = at;
}

static bool take_slot(struct rules *r)
{
	if (!rules_room(r, 0, 1))
		return false;
	r->new_slots++;
	return true;
}

static void keep_states(struct rules *r, uint64_t number)
{
	struct rule_plan *p = &r->plans[number % 2];

	for (uint32_t i = 0; i < p->n_rows; i++) {
		struct rule_row *row = &p->rows[i];
		struct rule_request *q = &r->requests[row->q];
		struct rule_choice *c = &q->choices[row->c];
		uint32_t at[SNAPSHOTS_MAX], n = 0, end = row->start + row->n_tokens;
		uint32_t wanted[RULES_WANTED + 1], n_wanted;
		const uint32_t *b = q->boundaries;

		if (!rules_remembers(r, q))
			continue;
		if (!row->decode) {
			uint32_t inside = 0, last = 0, first = 0;

			if (end == q->r.n_prompt)
				want(r, row, q->r.n_prompt - 1, at, &n);
			n_wanted = rules_wanted(q, wanted);
			for (uint32_t k = 0; k < n_wanted; k++)
				want(r, row, wanted[k], at, &n);
			for (uint32_t k = 0; k < q->r.n_boundaries; k++)
				if (b[k] / r->align * r->align > row->start && b[k] < end) {
					first = inside++ ? first : k;
					last = k;
				}
			if (inside) {
				want(r, row, b[last], at, &n);
				want(r, row, b[first], at, &n);
				for (uint32_t k = last + 1; k-- > first;)
					want(r, row, b[k], at, &n);
			}
			for (uint32_t k = 0; k < n && take_slot(r); k++) {
				uint32_t m = row->n_snapshots++;

				for (; m > 0 && row->snapshots[m - 1] > at[k]; m--)
					row->snapshots[m] = row->snapshots[m - 1];
				row->snapshots[m] = at[k];
				row->snapshot_slots[row->n_snapshots - 1] = POOL_NONE;
			}
		}
		if (end % r->align || (row->decode && r->config.refuse_decoded) || !take_slot(r))
			continue;
		row->handover = true;
		c->pinned = true;
		c->source = c->slot = POOL_NONE; /* the model fills in which */
	}
}

/* ---- retraction ---- */

static bool retract(struct rules *r)
{
	struct rule_request *best = NULL;
	uint32_t most = 0;

	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *q = &r->requests[i];
		uint32_t n = 0;
		bool decoding = false;

		for (uint32_t k = 0; q->used && k < q->r.n_choices; k++)
			if (!q->choices[k].ended) {
				n += rules_known(q, &q->choices[k]);
				decoding |= q->choices[k].held && q->choices[k].order;
			}
		if (decoding && (!best || n > most || (n == most && q->id < best->id))) {
			best = q;
			most = n;
		}
	}
	if (!best)
		return false;
	best->trunk = -1;
	best->retracted = true;
	best->place = RULE_QUEUED;
	for (uint32_t k = 0; k < best->r.n_choices; k++)
		release(&best->choices[k]);
	r->retractions++;
	return true;
}

bool rules_plan(struct rules *r)
{
	uint64_t number = r->planned + 1;
	struct rule_plan *p = &r->plans[number % 2];

	r->n_tried = 0;
	r->making = number;
	rules_try_branches(r);
	for (;;) {
		bool paused = false;

		*p = (struct rule_plan){0};
		for_each_decoding(r, number, grow_one, &paused);
		add_prefills(r, number, paused);
		for_each_decoding(r, number, decode_one, NULL);
		if (p->n_rows)
			break;
		if (r->planned > r->committed || !retract(r)) {
			r->making = r->planned;
			return false;
		}
	}
	r->planned = number;
	if (r->config.state_tokens)
		keep_states(r, number);
	return true;
}

/* ---- commits ---- */

void rules_histories(const struct rules *r, const struct rule_choice *c, uint32_t n_pages,
		     uint64_t *out)
{
	uint64_t h = PREFIX_PREFILLED;

	for (uint32_t i = 0; i < n_pages * r->config.page_tokens; i++) {
		h = prefix_history(h, i, c->decoded[i]);
		out[i / r->config.page_tokens] = h;
	}
}

static void publish(struct rules *r, const struct rule_request *q, struct rule_choice *c,
		    uint32_t end)
{
	uint32_t P = r->config.page_tokens, n = end / P;

	if (!rules_remembers(r, q) || end > rules_known(q, c))
		return;
	if (r->config.refuse_decoded)
		n = MIN(n, q->r.n_prompt / P);
	c->n_published = MAX(c->n_published, n);
}

static void commit_row(struct rules *r, const struct rule_row *row, bool ran)
{
	struct rule_request *q = &r->requests[row->q];
	uint32_t end = row->start + row->n_tokens;

	if (ran)
		publish(r, q, &q->choices[row->c], end);
	if (row->decode || rules_over(q))
		return;
	if (end == q->r.n_prompt) {
		lead_no_more(r, q);
		return;
	}
	q->n_computed = end;
	for (uint32_t i = 0; i < RULES_REQUESTS; i++) {
		struct rule_request *f = &r->requests[i];

		if (f->used && f->place == RULE_FOLLOWS && f->leader == row->q &&
		    f->following_to <= end)
			f->place = RULE_QUEUED;
	}
}

static enum finish_reason draw(const struct rule_request *q, struct rule_choice *c)
{
	int32_t token = c->generated[c->n_generated++];

	for (uint32_t i = 0; i < q->r.n_end_tokens; i++)
		if (q->ends[i] == token) {
			c->ended = true;
			return FINISH_STOP;
		}
	if (c->n_generated < q->r.max_tokens)
		return FINISH_NONE;
	c->ended = true;
	return FINISH_LENGTH;
}

uint32_t rules_commit(struct rules *r, struct rule_event out[RULES_SEQS])
{
	const struct rule_plan *p = &r->plans[(r->committed + 1) % 2];
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct rule_row *row = &p->rows[i];
		struct rule_request *q = &r->requests[row->q];

		for (uint32_t k = 0; k < row->n_draws; k++) {
			struct rule_choice *c = &q->choices[row->draws[k]];
			struct rule_event e = {.q = row->q, .c = row->draws[k], .event = !c->ended};

			c->n_drawing--;
			if (e.event) {
				e.finish = draw(q, c);
				e.over = rules_over(q);
				note_over(r, q);
			}
			out[n++] = e;
		}
		commit_row(r, row, true);
	}
	r->committed++;
	settle(r);
	return n;
}

uint32_t rules_fail(struct rules *r, uint32_t out[2 * RULES_SEQS])
{
	uint32_t n = 0;

	for (; r->committed < r->planned; r->committed++) {
		const struct rule_plan *p = &r->plans[(r->committed + 1) % 2];

		for (uint32_t i = 0; i < p->n_rows; i++) {
			struct rule_request *q = &r->requests[p->rows[i].q];

			commit_row(r, &p->rows[i], false);
			if (rules_over(q))
				continue;
			for (uint32_t k = 0; k < q->r.n_choices; k++)
				q->choices[k].ended = true;
			note_over(r, q);
			out[n++] = p->rows[i].q;
		}
	}
	settle(r);
	return n;
}
