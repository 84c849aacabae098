#include "tests/scheduler_rules_internal.h"

#include <string.h>

bool rules_over(const struct rule_request *q)
{
	each_choice (c, q)
		if (!c->ended)
			return false;
	return true;
}

bool rules_holds(const struct rule_request *q)
{
	each_choice (c, q)
		if (c->held)
			return true;
	return false;
}

uint32_t rules_live(const struct rule_request *q)
{
	uint32_t n = 0;

	each_choice (c, q)
		n += !c->ended;
	return n;
}

int rules_first_live(const struct rule_request *q)
{
	each_choice (c, q)
		if (!c->ended)
			return (int)(c - q->choices);
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

	return shared + q->n_choices * (rules_ceil_pages(r, q->n_prompt + q->max_tokens) - shared);
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
	each_request (q, r) {
		each_choice (c, q) {
			if (c->held && c->ended && out_of_plans(r, c) &&
			    (q->trunk != (c - q->choices) || (rules_over(q) && !q->ships)))
				release(c);
		}
		if (rules_over(q) && !rules_holds(q))
			q->used = false;
	}
}

static void lead_no_more(struct rules *r, struct rule_request *q)
{
	q->leads = false;
	each_request (f, r) {
		if (f->place == RULE_FOLLOWS && f->leader == (uint32_t)(q - r->requests))
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
	if (rules_over(q) && !q->ships)
		return;
	q->ships = false;
	each_choice (c, q)
		c->ended = true;
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

/* ---- rows ---- */

/* Whether the admission of a request would give its owner more than half of the seats (rounded up). False if it has no
 * owner (0), or if its owner has no seat yet. */
static bool greedy(const struct rules *r, const struct rule_request *q)
{
	uint32_t n = 0;

	each_request (o, r) {
		each_choice (c, o)
			n += c->held && o->r.owner == q->r.owner;
	}
	return q->r.owner && n && 2 * (n + rules_live(q)) > r->config.max_seqs + 1;
}

/* Returns the first request in the queue; with `others` the first one of another owner than `of` that is not greedy. */
static struct rule_request *first_of(struct rules *r, bool others, uint64_t of)
{
	struct rule_request *best = NULL;

	each_request (q, r) {
		if (rules_over(q) || q->place != RULE_QUEUED ||
		    (others && (q->r.owner == of || greedy(r, q))))
			continue;
		if (!best || q->r.priority < best->r.priority ||
		    (q->r.priority == best->r.priority && q->id < best->id))
			best = q;
	}
	return best;
}

static struct rule_request *first_waiting(struct rules *r)
{
	struct rule_request *first = first_of(r, false, 0), *other;

	if (!first || rules_seats(r) == r->config.max_seqs || !greedy(r, first))
		return first;
	other = first_of(r, true, first->r.owner);
	if (!other)
		return first;
	r->held_back++;
	return other;
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
	c->pinned = false; /* from now on the row pins the state, until it has run */
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
	q->order = ++r->orders;
	each_choice (c, q)
		if (!c->ended)
			c->order = q->order;
}

/* Ships the pages that are whole with this row, or in which the prompt ends, but not those that the other worker has or
 * that were shipped before. With the prompt's end it ships the state, too. */
static void add_ship(const struct rules *r, struct rule_request *q, struct rule_row *row)
{
	uint32_t P = r->config.page_tokens, end = row->start + row->n_tokens;

	row->ships_state = end == q->r.n_prompt && r->config.n_slots;
	for (uint32_t i = 0; i * P < end; i++) {
		if (i * P < q->r.n_have || i < q->n_shipped ||
		    ((i + 1) * P > end && end < q->r.n_prompt))
			continue;
		if (!row->n_ships++)
			row->first_ship = i;
		q->n_shipped = i + 1;
	}
}

static bool can_decode(const struct rule_request *q, const struct rule_choice *c, uint64_t number);

/* The prefill budget of a plan, which is smaller if a sequence can decode. */
static uint32_t budget_of(struct rules *r, uint64_t number)
{
	uint32_t most = r->config.max_prefill_tokens,
		 least = MAX(r->config.page_tokens, r->config.state_tokens);

	if (!r->pace)
		return most;
	each_request (q, r) {
		each_choice (c, q)
			if (can_decode(q, c, number))
				return MIN(most, MAX(least, r->pace));
	}
	return most;
}

/* The requests that are next and can follow the head's prompt do so. */
static void follow_head(struct rules *r, uint64_t number)
{
	struct rule_request *q;
	struct mirror_end end;
	uint32_t misses;

	while ((q = first_waiting(r))) {
		end = rules_look_up(r, q, &misses);
		if (rules_wants_handoff(r, q, &end) || !rules_follow(r, q, &end, number))
			return;
	}
}

/* Adds windows of prompts, and admits their requests. Returns true if a request was refused for want of room. */
static bool add_prefills(struct rules *r, uint64_t number, bool paused)
{
	uint32_t budget = budget_of(r, number);
	bool paced = budget < r->config.max_prefill_tokens;

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
				return false;
			end = rules_look_up(r, q, &misses);
			if (rules_wants_handoff(r, q, &end)) {
				if (rules_receive(r, q, misses))
					continue;
				r->admissions_refused++;
				return true;
			}
			if (rules_follow(r, q, &end, number))
				continue;
			if (!rules_admit(r, q, end, misses, number)) {
				r->admissions_refused++;
				return true;
			}
			if (q->choices[q->trunk].n_planned >= q->r.n_prompt) {
				lead_no_more(r, q);
				prompt_ends(r, q);
				r->gathers = false;
				continue;
			}
			r->head = (int)(q - r->requests);
		}
		q = &r->requests[r->head];
		t = &q->choices[q->trunk];
		if (!paced || t->n_planned >= q->span_end) {
			left = q->r.n_prompt - t->n_planned;
			n = paced ? r->config.max_prefill_tokens : budget;
			q->span_start = t->n_planned;
			q->span_end = t->n_planned + (left <= n ? left : n / r->align * r->align);
		}
		left = q->span_end - t->n_planned;
		n = left <= budget ? left : budget / r->align * r->align;
		if (!n)
			return false;
		row = add_row(r, q, t, number, n, false);
		budget -= n;
		if (q->r.prompt_logprobs && q->n_scored < q->r.n_prompt) {
			q->n_scored = t->n_planned;
			for (uint32_t at = row->start; at < t->n_planned; at++)
				if (at + 1 < q->r.n_prompt && at + 1 >= q->r.first_score &&
				    !row->n_scores++)
					row->first_score = at + 1;
		}
		row->ends = !q->r.max_tokens && t->n_planned == q->r.n_prompt;
		row->pools =
			q->r.pooling == POOLING_MEAN || (q->r.pooling == POOLING_LAST && row->ends);
		if (q->r.handoff == HANDOFF_SEND)
			add_ship(r, q, row);
		if (t->n_planned < q->r.n_prompt) {
			r->cut_prompts++;
			if (paced)
				follow_head(r, number);
			return false;
		}
		each_choice (c, q) {
			if (c->ended)
				continue;
			c->last_plan = number;
			if (!c->n_generated && q->r.max_tokens)
				add_draw(row, q, c, number);
		}
		prompt_ends(r, q);
		r->head = -1;
	}
	return false;
}

/* Admits requests whose prompts come from another worker: they need no budget. */
static void add_receives(struct rules *r)
{
	struct rule_request *q;

	while ((q = first_waiting(r)) && q->r.handoff == HANDOFF_RECEIVE && !q->local &&
	       !q->admitted && !q->r.prompt_logprobs) {
		uint32_t misses;
		struct mirror_end end = rules_look_up(r, q, &misses);

		if (!rules_wants_handoff(r, q, &end) || !rules_receive(r, q, misses))
			return;
	}
}

static bool can_decode(const struct rule_request *q, const struct rule_choice *c, uint64_t number)
{
	return c->held && !c->ended && c->order && c->last_plan != number &&
	       c->n_generated + c->n_drawing < q->r.max_tokens;
}

/* Whether a plan that is out draws the token that the next draw of c needs. */
static bool awaits(const struct rule_request *q, const struct rule_choice *c)
{
	return q->r.needs_last && c->n_drawing;
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

	each_choice (c, q) {
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

/* Calls f for every sequence that can decode, in the order of the decode rows. */
static void for_each_decoding(struct rules *r, uint64_t number,
			      void (*f)(struct rules *, struct rule_request *, struct rule_choice *,
					uint64_t, bool *),
			      bool *arg)
{
	for (uint64_t order = 1; order <= r->orders; order++)
		each_request (q, r) {
			each_choice (c, q)
				if (c->order == order && can_decode(q, c, number))
					f(r, q, c, number, arg);
		}
}

static void grow_one(struct rules *r, struct rule_request *q, struct rule_choice *c,
		     uint64_t number, bool *paused)
{
	if (q->trunk >= 0 || has_page(r, c))
		return;
	if (rules_room(r, 1, 0)) {
		c->n_pages++;
		r->grown++;
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

	if (awaits(q, c)) {
		r->awaited += !r->gathers;
		return;
	}
	if (r->gathers && (q->trunk >= 0 || c->n_planned + 1 == rules_known(q, c) + c->n_drawing))
		return;
	r->joined += r->gathers;
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

/* Whether the sequences that can decode wait for each other: all need the token before, and some await it. */
static bool gather(struct rules *r, uint64_t number)
{
	uint32_t free = 0, awaiting = 0;

	each_request (q, r) {
		each_choice (c, q) {
			if (!can_decode(q, c, number))
				continue;
			free += !q->r.needs_last;
			awaiting += awaits(q, c);
		}
	}
	return awaiting && !free;
}

/* ---- checkpoints ---- */

static void want(const struct rules *r, const struct rule_request *q, uint32_t at, uint32_t *out,
		 uint32_t *n)
{
	at = at / r->align * r->align;
	if (at <= q->span_start || at >= q->span_end || *n == SNAPSHOTS_MAX)
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
		bool keeps_end = true;

		if (!rules_remembers(r, q))
			continue;
		if (!row->decode) {
			uint32_t inside = 0, last = 0, first = 0;

			if (q->span_end == q->r.n_prompt)
				want(r, q, q->r.n_prompt - 1, at, &n);
			n_wanted = rules_wanted(q, wanted);
			for (uint32_t k = 0; k < n_wanted; k++)
				want(r, q, wanted[k], at, &n);
			for (uint32_t k = 0; k < q->r.n_boundaries; k++)
				if (b[k] / r->align * r->align > q->span_start &&
				    b[k] < q->span_end) {
					first = inside++ ? first : k;
					last = k;
				}
			if (inside) {
				want(r, q, b[last], at, &n);
				want(r, q, b[first], at, &n);
				for (uint32_t k = last + 1; k-- > first;)
					want(r, q, b[k], at, &n);
			}
			keeps_end = end == q->span_end;
			for (uint32_t k = 0; k < n; k++) {
				uint32_t m = row->n_snapshots;

				keeps_end |= at[k] == end;
				if (at[k] <= row->start || at[k] >= end)
					continue;
				if (!take_slot(r))
					break;
				row->n_snapshots++;

				for (; m > 0 && row->snapshots[m - 1] > at[k]; m--)
					row->snapshots[m] = row->snapshots[m - 1];
				row->snapshots[m] = at[k];
				row->snapshot_slots[row->n_snapshots - 1] = POOL_NONE;
			}
		}
		if (!keeps_end || end % r->align || (row->decode && r->config.refuse_decoded) ||
		    !take_slot(r))
			continue;
		row->handover = true;
		c->pinned = true;
		/* plan_learn_ids fills in the source, and the slot with the next row. */
		c->source = c->slot = POOL_NONE;
	}
}

/* ---- retraction ---- */

static uint32_t length(const struct rule_request *q)
{
	uint32_t n = 0;

	each_choice (c, q)
		n += c->ended ? 0 : rules_known(q, c);
	return n;
}

static bool decodes(const struct rule_request *q)
{
	each_choice (c, q)
		if (!c->ended && c->held && c->order)
			return true;
	return false;
}

static void retract(struct rules *r, struct rule_request *q)
{
	q->trunk = -1;
	q->retracted = true;
	q->place = RULE_QUEUED;
	each_choice (c, q)
		release(c);
	r->retractions++;
}

static bool retract_longest(struct rules *r)
{
	struct rule_request *best = NULL;

	each_request (q, r)
		if (decodes(q) && (!best || length(q) > length(best) ||
				   (length(q) == length(best) && q->id < best->id)))
			best = q;
	if (best)
		retract(r, best);
	return best;
}

static uint32_t held_by(const struct rules *r, uint64_t owner)
{
	uint32_t n = 0;

	each_request (q, r) {
		each_choice (c, q)
			n += c->held && q->r.owner == owner;
	}
	return n;
}

/* Returns the request to retract, so that one of another owner gets its seats; NULL: none. */
static struct rule_request *gives_way(struct rules *r)
{
	uint32_t half = (r->config.max_seqs + 1) / 2, n_free = r->config.max_seqs - rules_seats(r);
	struct rule_request *best = NULL;

	if (r->head >= 0)
		return NULL;
	each_request (q, r) {
		uint32_t held = held_by(r, q->r.owner), own = 0;
		struct rule_request *next;

		each_choice (c, q)
			own += c->held;
		if (!q->r.owner || held <= half || !decodes(q) || !q->clean || held - own < half)
			continue;
		next = first_of(r, true, q->r.owner);
		if (next && rules_live(next) > n_free && rules_live(next) <= n_free + held - half &&
		    (!best || length(q) < length(best) ||
		     (length(q) == length(best) && q->id > best->id)))
			best = q;
	}
	return best;
}

bool rules_plan(struct rules *r)
{
	uint64_t number = r->planned + 1;
	struct rule_plan *p = &r->plans[number % 2];

	r->n_tried = 0;
	r->making = number;
	rules_try_branches(r);
	for (struct rule_request *q; (q = gives_way(r));) {
		if (r->planned > r->committed) {
			r->making = r->planned;
			return false;
		}
		retract(r, q);
		r->gave_way++;
	}
	for (;;) {
		bool paused = false;

		r->gathers = gather(r, number);
		r->gathered += r->gathers;
		*p = (struct rule_plan){0};
		for_each_decoding(r, number, grow_one, &paused);
		if (!add_prefills(r, number, paused) && !paused)
			add_receives(r);
		if (!r->gathers || p->n_rows)
			for_each_decoding(r, number, decode_one, NULL);
		if (p->n_rows)
			break;
		if (r->planned > r->committed || !retract_longest(r)) {
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

void rules_origins(const struct rules *r, const struct rule_choice *c, uint32_t n_pages,
		   uint64_t *out)
{
	uint64_t h = PREFIX_PREFILLED;

	for (uint32_t i = 0; i < n_pages * r->config.page_tokens; i++) {
		h = prefix_origin(h, i, c->decoded[i]);
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
	each_request (f, r) {
		if (f->place == RULE_FOLLOWS && f->leader == row->q && f->following_to <= end)
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
				q->ships = e.over && q->r.handoff == HANDOFF_SEND;
				note_over(r, q);
			}
			out[n++] = e;
		}
		if (row->ends) {
			struct rule_event e = {.q = row->q,
					       .event = !q->choices->ended,
					       .over = true,
					       .undrawn = true,
					       .finish = FINISH_LENGTH};

			q->choices->ended = true;
			note_over(r, q);
			out[n++] = e;
		}
		commit_row(r, row, true);
	}
	r->committed++;
	settle(r);
	return n;
}

uint32_t rules_received(struct rules *r, struct rule_request *q, const int32_t *tokens,
			struct rule_event out[RULES_SEQS])
{
	struct rule_choice *t = &q->choices[q->trunk];
	const struct mirror_node *n;
	uint64_t origin[RULES_LEN];
	uint32_t n_events = 0;

	q->place = RULE_ADMITTED;
	q->admitted = q->clean = true;
	q->hit.step = r->planned + 1;
	r->prompt_tokens += q->r.n_prompt;
	r->cached_tokens += q->have;
	t->n_planned = q->r.n_prompt;
	publish(r, q, t, q->r.n_prompt);
	rules_origins(r, t, t->n_published, origin);
	n = mirror_find(r->after, &q->r.space, q->prompt, origin, t->n_published);
	if (n) /* the cache's pages, in place of its own */
		memcpy(t->pages, n->pages, t->n_published * sizeof(*t->pages));
	if (r->config.state_tokens && rules_remembers(r, q) && q->r.n_prompt % r->align == 0 &&
	    rules_room(r, 0, 1)) {
		t->pinned = true;
		t->source = t->slot;
		t->slot = POOL_NONE;
	}
	prompt_ends(r, q);
	for (uint32_t k = 0; k < q->r.n_choices; k++) {
		struct rule_choice *c = &q->choices[k];
		struct rule_event e = {.q = (uint32_t)(q - r->requests), .c = k, .event = true};

		if (c->ended)
			continue;
		c->generated[0] = tokens[k];
		e.finish = draw(q, c);
		e.over = rules_over(q);
		out[n_events++] = e;
	}
	note_over(r, q);
	settle(r);
	return n_events;
}

void rules_receive_failed(struct rules *r, struct rule_request *q, bool again)
{
	q->place = RULE_QUEUED;
	q->local = !again;
	q->trunk = -1;
	for (uint32_t k = 0; k < q->r.n_choices; k++)
		release(&q->choices[k]);
	r->receives_failed++;
}

void rules_shipped(struct rules *r, struct rule_request *q)
{
	q->ships = false;
	settle(r);
}

/* Returns 0 for a request that decodes, 1 if its prompt is being computed, 2 if its prompt comes from another
 * worker. */
static uint32_t running_class(const struct rule_request *q)
{
	if (q->place == RULE_RECEIVES)
		return 2;
	each_choice (c, q)
		if (c->order && !c->ended)
			return 0;
	return 1;
}

/* Returns the first running request, by running_class, then by order; NULL: none runs. */
static struct rule_request *first_running(struct rules *r)
{
	struct rule_request *best = NULL;

	each_request (q, r) {
		if (!rules_over(q) && rules_holds(q) &&
		    (!best || running_class(q) < running_class(best) ||
		     (running_class(q) == running_class(best) && q->order < best->order)))
			best = q;
	}
	return best;
}

uint32_t rules_fail(struct rules *r, uint32_t out[2 * RULES_SEQS])
{
	struct rule_request *paused;
	uint32_t n = 0;

	for (; r->committed < r->planned; r->committed++) {
		const struct rule_plan *p = &r->plans[(r->committed + 1) % 2];

		for (uint32_t i = 0; i < p->n_rows; i++) {
			struct rule_request *q = &r->requests[p->rows[i].q];

			commit_row(r, &p->rows[i], false);
			if (rules_over(q))
				continue;
			each_choice (c, q)
				c->ended = true;
			note_over(r, q);
			out[n++] = p->rows[i].q;
		}
	}
	while ((paused = first_running(r))) {
		out[n++] = (uint32_t)(paused - r->requests);
		rules_abort(r, paused);
	}
	for (uint32_t i = 0; i < RULES_REQUESTS; i++)
		r->requests[i].ships = false;
	settle(r);
	return n;
}
