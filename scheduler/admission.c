#include "scheduler/admission.h"

#include <assert.h>
#include <string.h>

#include "scheduler/tiering.h"

uint64_t admission_pages(const struct scheduler_config *c, uint32_t n_prompt, uint32_t max_tokens,
			 uint32_t n_choices)
{
	uint64_t shared = n_prompt / c->page_tokens;
	uint64_t all = CEIL_DIV((uint64_t)n_prompt + max_tokens, (uint64_t)c->page_tokens);

	return shared + n_choices * (all - shared);
}

static bool remembers(const struct scheduler *s, const struct request *r)
{
	return !s->config.cache_disabled && !r->ask.cache_disabled;
}

/* Returns the number of tokens to look up in the cache. A retracted request with a single living choice may resume
 * behind its prompt, among the tokens that it drew. Several choices resume in the prompt, which they share. */
static uint32_t tokens_to_match(const struct request *r)
{
	return r->n_live == 1 ? request_known(request_first_live((struct request *)r))
			      : r->ask.n_prompt;
}

void admission_match(struct scheduler *s, const struct request *r, struct prefix_match *ret)
{
	const struct sequence *q = request_first_live((struct request *)r);
	bool all = request_needs_all(r);
	uint32_t n = all ? 0 : request_scores(r) ? request_reusable(r) + 1 : tokens_to_match(r);

	*ret = (struct prefix_match){.slot = POOL_NONE, .miss = PREFIX_MISS_DISABLED};
	if (!remembers(s, r))
		return;
	s->switches[0] = (struct prefix_switch){0, PREFIX_PREFILLED};
	s->switches[1] = (struct prefix_switch){r->ask.n_prompt, q->decode_origin};
	s->key = (struct prefix_key){
		.space = r->ask.space,
		.tokens = r->ask.prompt,
		.n_tokens = n,
		.origin_any = !r->origin_known && !request_wants_prefilled(r),
		.switches = s->switches,
		.n_switches = ARRAY_SIZE(s->switches),
	};
	if (n > r->ask.n_prompt) {
		/* A retracted request's tokens lie in two arrays. Such requests are rare enough for a copy. */
		request_tokens(q, 0, n, s->returning);
		s->key.tokens = s->returning;
	}
	prefix_cache_match(s->cache, &s->key, ret);
	if (all) {
		ret->miss = request_scores(r) && r->ask.first_score == 1 ? PREFIX_MISS_LOGPROBS
									 : PREFIX_MISS_MEAN_POOLING;
		return;
	}
	/* the index of the tiers below the device is not complete, so the store may have a page that the cache lacks */
	if (tiering(s, r) && !s->tiers_ready && ret->miss > PREFIX_MISS_LOADING)
		ret->miss = PREFIX_MISS_LOADING;
	/* A load for this request failed. The reason r->lost is more exact than those behind it in enum prefix_miss. */
	if (r->lost != PREFIX_MISS_NONE && ret->miss > r->lost)
		ret->miss = r->lost;
}

/* Returns the number of pages that the block table of each choice gets, from position 0 on. */
static uint32_t table_pages(const struct scheduler *s, const struct request *r)
{
	uint32_t P = s->config.page_tokens, known = r->ask.n_prompt;

	for (uint32_t i = 0; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			known = MAX(known, request_known(&r->choices[i]));
	return (uint32_t)CEIL_DIV(MIN((uint64_t)known + P,
				      (uint64_t)r->ask.n_prompt + r->ask.max_tokens),
				  (uint64_t)P);
}

/* Takes a page. Never fails, because admission has counted the pages before. */
static uint32_t take_page(struct scheduler *s)
{
	uint32_t id = prefix_cache_take_page(s->cache);

	assert(id != POOL_NONE);
	return id;
}

/* Gives a choice a seat, a slot if the model has states, and new pages at [from, to) of its block table. */
static void seat_choice(struct scheduler *s, struct sequence *q, uint32_t from, uint32_t to)
{
	q->seat = pool_get(s->seats);
	assert(q->seat != POOL_NONE);
	s->seat_owners[q->seat] = q->request->ask.owner;
	q->pages = s->tables + (size_t)q->seat * s->table_pages;
	q->n_tree = from;
	q->n_pages = to;
	for (uint32_t i = from; i < to; i++)
		q->pages[i] = take_page(s);
	q->slot = POOL_NONE;
	if (s->config.n_slots) {
		q->slot = prefix_cache_take_slot(s->cache);
		assert(q->slot != POOL_NONE);
	}
	q->source = POOL_NONE;
	q->source_pinned = q->counts_valid = false;
	q->path = q->decoded = NULL;
	q->n_planned = q->n_computed = 0;
	q->request->n_held++;
}

/* Lets the trunk begin where the match ends (without a path: at 0), and sets the origins of the pages that the trunk
 * computes. */
static void resume_trunk(struct sequence *q, const struct prefix_match *m, struct prefix_node *path)
{
	const struct request *r = q->request;

	q->path = path;
	if (path)
		q->n_planned = q->n_computed = m->n_tokens;
	if (q->n_planned && m->slot != POOL_NONE) {
		q->source = m->slot;
		q->source_pinned = true;
	}
	if (q->n_planned <= r->ask.n_prompt) {
		q->prompt_origin = q->n_planned < r->ask.n_prompt
					   ? prefix_origin(m->origin, q->n_planned, false)
					   : m->origin;
		q->decode_origin = prefix_origin(q->prompt_origin, r->ask.n_prompt, true);
	} else {
		q->decode_origin = prefix_origin(m->origin, q->n_planned, true);
	}
}

/* Counts the request's first admission and its hit; the caller has filled in r->hit but for the step. */
static void count_hit(struct scheduler *s, struct request *r)
{
	r->admitted = true;
	r->hit.step = s->planned + 1;
	s->stats.prompt_tokens += r->ask.n_prompt;
	s->stats.cached_tokens += r->hit.n_cached;
	s->stats.misses[r->hit.miss]++;
}

static void note_hit(struct scheduler *s, struct request *r, const struct prefix_match *m,
		     bool used)
{
	if (r->admitted)
		return;
	r->hit = (struct scheduler_hit){.n_cached = used ? m->n_tokens : 0, .miss = m->miss};
	count_hit(s, r);
}

/* Admits the request as if the cache had none of its prompt. */
static bool admit_cold(struct scheduler *s, struct request *r, enum prefix_miss miss)
{
	struct prefix_match none;

	s->key.n_tokens = 0;
	prefix_cache_match(s->cache, &s->key, &none);
	none.miss = miss;
	return admission_admit(s, r, &none);
}

/* Whether all the memory that the request needs beside the matched pages and state is free or can be evicted. */
static bool has_memory(const struct scheduler *s, const struct request *r,
		       const struct prefix_match *m)
{
	uint32_t n_pages = table_pages(s, r), shared = r->ask.n_prompt / s->config.page_tokens;
	uint32_t hit_pages = m->n_tokens / s->config.page_tokens;
	uint64_t pages = n_pages - hit_pages + (uint64_t)(r->n_live - 1) * (n_pages - shared);

	return prefix_cache_can_take(s->cache, m, pages, s->config.n_slots ? r->n_live : 0);
}

/* Takes the request out of the queue and gives its living choices seats, slots and pages. The trunk's table begins with
 * the first hit_pages pages of s->hit_pages. */
static void seat_request(struct scheduler *s, struct request *r, uint32_t hit_pages)
{
	uint32_t n_pages = table_pages(s, r), shared = r->ask.n_prompt / s->config.page_tokens;
	struct sequence *trunk = request_first_live(r);

	waiting_remove(&s->waiting, r);
	s->n_waiting--;
	s->n_retracted -= r->retracted;
	r->retracted = false;
	r->trunk = trunk;
	seat_choice(s, trunk, hit_pages, n_pages);
	memcpy(trunk->pages, s->hit_pages, hit_pages * sizeof(*trunk->pages));
	for (uint32_t i = trunk->choice + 1; i < r->ask.n_choices; i++)
		if (!r->choices[i].ended)
			seat_choice(s, &r->choices[i], shared, n_pages);
}

/* Takes the request out of the queue, moves it to its next state by `event`, and gives it seats, slots and pages. Its
 * trunk begins where m ends. path: what prefix_cache_use returned; NULL: the tree gets no pages of the request. */
static void begin_request(struct scheduler *s, struct request *r, enum request_event event,
			  const struct prefix_match *m, struct prefix_node *path)
{
	uint32_t hit_pages = m->n_tokens / s->config.page_tokens;

	request_advance(r, event);
	seat_request(s, r, hit_pages);
	resume_trunk(r->trunk, m, path);
	tiering_resume(s, r->trunk, hit_pages, m->origin);
	if (path)
		tiering_used(s, r, path);
}

bool admission_admit(struct scheduler *s, struct request *r, const struct prefix_match *m)
{
	struct prefix_node *path = NULL;

	if (pool_available(s->seats) < r->n_live)
		return false;
	if (!has_memory(s, r, m)) {
		if (!m->n_tokens || pool_available(s->seats) < pool_size(s->seats))
			return false;
		/* No other request has a seat, so this one must fit, even if the state from which it would resume has
		 * to be evicted. */
		return admit_cold(s, r,
				  m->miss == PREFIX_MISS_NONE ? PREFIX_MISS_EVICTED_STATE
							      : m->miss);
	}
	if (remembers(s, r)) {
		/* The pages are kept in s->hit_pages first, because a request without a seat has no table. */
		path = prefix_cache_use(s->cache, &s->key, m, s->hit_pages);
		if (!path && m->n_tokens) /* out of memory */
			return admit_cold(s, r, m->miss);
	}
	begin_request(s, r, REQUEST_ADMIT, m, path);
	if (!r->admitted)
		r->origin_known = r->trunk->prompt_origin == PREFIX_PREFILLED;
	note_hit(s, r, m, path);
	r->window_start = r->trunk->n_planned;
	r->span_end = 0;
	r->n_wanted = 0;
	if (m->branch && path)
		r->wanted[r->n_wanted++] = m->branch;
	list_append(&s->leaders, &r->leading);
	return true;
}

/* Finds the pages at the prompt's beginning that the cache has and that were prefilled. */
static void match_prefilled(struct scheduler *s, const struct request *r, struct prefix_match *ret)
{
	*ret = (struct prefix_match){.slot = POOL_NONE};
	s->switches[0] = (struct prefix_switch){0, PREFIX_PREFILLED};
	s->key = (struct prefix_key){
		.space = r->ask.space,
		.tokens = r->ask.prompt,
		.n_tokens = r->ask.n_prompt,
		.pages_only = true,
		.switches = s->switches,
		.n_switches = 1,
	};
	if (remembers(s, r))
		prefix_cache_match(s->cache, &s->key, ret);
}

bool admission_receive(struct scheduler *s, struct request *r, enum prefix_miss miss)
{
	struct prefix_node *path = NULL;
	struct prefix_match m;

	match_prefilled(s, r, &m);
	if (pool_available(s->seats) < r->n_live || !has_memory(s, r, &m) ||
	    request_reserve_first_draws(r) < 0)
		return false;
	if (remembers(s, r)) {
		path = prefix_cache_use(s->cache, &s->key, &m, s->hit_pages);
		if (!path && m.n_tokens)
			return false;
	}
	begin_request(s, r, REQUEST_RECEIVE, &m, path);
	r->ask.n_have = m.n_tokens;
	r->prepared = false;
	r->hit = (struct scheduler_hit){.n_cached = m.n_tokens,
					.miss = miss,
					.n_received = r->ask.n_prompt - m.n_tokens};
	s->stats.receives++;
	list_append(&s->receiving, &r->receiving);
	return true;
}

void admission_received(struct scheduler *s, struct request *r)
{
	r->origin_known = true;
	count_hit(s, r);
}

bool admission_grow(struct scheduler *s, struct sequence *q)
{
	uint32_t page = prefix_cache_take_page(s->cache);

	if (page == POOL_NONE)
		return false;
	q->pages[q->n_pages++] = page;
	return true;
}

static void fork_choice(struct scheduler *s, const struct sequence *from, struct sequence *q)
{
	uint32_t whole = q->request->ask.n_prompt / s->config.page_tokens;

	for (uint32_t i = 0; i < whole; i++) {
		q->pages[i] = from->pages[i];
		if (i >= from->n_tree)
			prefix_cache_ref_page(s->cache, q->pages[i]);
	}
	q->n_tree = MIN(from->n_tree, whole);
	q->path = from->path;
	if (q->path)
		prefix_cache_lock(s->cache, q->path);
	q->tree_key = from->tree_key;
	q->tree_origin = from->tree_origin;
	q->before_key = from->before_key;
	q->before_origin = from->before_origin;
	q->prompt_origin = from->prompt_origin;
	q->decode_origin = from->decode_origin;
	q->n_planned = q->n_computed = q->request->ask.n_prompt;
	q->source = q->slot;
}

void admission_fork(struct scheduler *s, struct request *r, struct plan *p,
		    struct plan_copy *page_copies, struct plan_copy *state_copies)
{
	struct sequence *trunk = r->trunk;
	uint32_t partial = r->ask.n_prompt / s->config.page_tokens;

	r->trunk = NULL;
	for (uint32_t i = 0; i < r->ask.n_choices; i++) {
		struct sequence *q = &r->choices[i];

		if (q == trunk || q->ended)
			continue;
		fork_choice(s, trunk, q);
		if (q->slot != POOL_NONE)
			state_copies[p->n_state_copies++] =
				(struct plan_copy){.src = trunk->source, .dst = q->slot};
		if (r->ask.n_prompt % s->config.page_tokens)
			page_copies[p->n_page_copies++] =
				(struct plan_copy){.src = trunk->pages[partial],
						   .dst = q->pages[partial]};
	}
}

void admission_release(struct scheduler *s, struct sequence *q)
{
	struct request *r = q->request;

	if (q->seat == POOL_NONE)
		return;
	assert(sequence_settled(s, q));
	for (uint32_t i = q->n_tree; i < q->n_pages; i++)
		prefix_cache_put_page(s->cache, q->pages[i]);
	if (q->decoded)
		tiering_checkpoint(s, q, q->decoded);
	if (q->path)
		prefix_cache_unlock(s->cache, q->path);
	if (q->source_pinned)
		prefix_cache_unpin(s->cache, q->source);
	if (q->slot != POOL_NONE)
		prefix_cache_put_slot(s->cache, q->slot);
	for (uint32_t i = 0; q == r->trunk && i < r->n_ship_pages; i++)
		if (r->ship_pages[i] != POOL_NONE) {
			prefix_cache_put_page(s->cache, r->ship_pages[i]);
			r->ship_pages[i] = POOL_NONE;
		}
	s->seat_owners[q->seat] = 0;
	pool_put(s->seats, q->seat);
	list_remove(&q->node);
	q->seat = q->slot = q->source = POOL_NONE;
	q->source_pinned = false;
	q->path = q->decoded = NULL;
	q->n_pages = q->n_tree = 0;
	r->n_held--;
}
