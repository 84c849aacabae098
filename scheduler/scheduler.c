#include "scheduler/scheduler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "scheduler/admission.h"
#include "scheduler/handoff.h"
#include "scheduler/limits.h"
#include "scheduler/publish.h"
#include "scheduler/scheduler_internal.h"
#include "scheduler/sharing.h"
#include "scheduler/tiering.h"

/* Allocates the arrays, which live as long as the scheduler. False: out of memory. */
static bool allocate_arrays(struct scheduler *s)
{
	const struct scheduler_config *c = &s->config;
	struct arena *a = &s->memory;
	uint32_t n = c->max_seqs;

	arena_init(a, SIZE_MAX);
	s->tables = arena_array(a, (size_t)n * s->table_pages, sizeof(*s->tables));
	s->seat_owners = arena_array(a, n, sizeof(*s->seat_owners));
	s->page = arena_array(a, c->page_tokens, sizeof(*s->page));
	s->returning = arena_array(a, c->max_model_len, sizeof(*s->returning));
	s->hit_pages = arena_array(a, s->table_pages, sizeof(*s->hit_pages));
	if (!s->tables || !s->seat_owners || !s->page || !s->returning || !s->hit_pages)
		return false;
	if (c->content_key) {
		s->stores = arena_array(a, (size_t)c->n_pages + c->n_slots, sizeof(*s->stores));
		s->uses = arena_array(a, USES_MAX, sizeof(*s->uses));
		s->tier_path = arena_array(a, s->table_pages, sizeof(*s->tier_path));
		s->tier_origins = arena_array(a, s->table_pages, sizeof(*s->tier_origins));
		if (!s->stores || !s->uses || !s->tier_path || !s->tier_origins)
			return false;
	}
	for (struct step *t = s->steps; t < s->steps + STEPS_OUT_MAX; t++) {
		t->rows = arena_array(a, n, sizeof(*t->rows));
		t->more = arena_array(a, n, sizeof(*t->more));
		t->draws = arena_array(a, n, sizeof(*t->draws));
		t->draw_owners = arena_array(a, n, sizeof(*t->draw_owners));
		t->scores = arena_array(a, n, sizeof(*t->scores));
		t->poolings = arena_array(a, n, sizeof(*t->poolings));
		t->ships = arena_array(a, n, sizeof(*t->ships));
		t->resets = arena_array(a, n, sizeof(*t->resets));
		t->page_copies = arena_array(a, n, sizeof(*t->page_copies));
		t->state_copies = arena_array(a, n, sizeof(*t->state_copies));
		if (!t->rows || !t->more || !t->draws || !t->draw_owners || !t->scores ||
		    !t->poolings || !t->ships || !t->resets || !t->page_copies || !t->state_copies)
			return false;
	}
	return true;
}

static bool allocate(struct scheduler *s)
{
	const struct scheduler_config *c = &s->config;

	s->align = MAX(c->page_tokens, c->state_tokens);
	s->table_pages = MIN(CEIL_DIV(c->max_model_len, c->page_tokens), c->n_pages);
	s->cache = prefix_cache_new(&(struct prefix_cache_config){
		.page_tokens = c->page_tokens,
		.state_tokens = c->state_tokens,
		.n_pages = c->n_pages,
		.n_slots = c->n_slots,
		.page_bytes = c->page_bytes,
		.slot_bytes = c->slot_bytes,
		.budget_bytes = c->cache_bytes,
		.refuse_decoded = c->refuse_decoded,
	});
	s->seats = pool_new(c->max_seqs);
	if (c->content_key)
		s->tiers = tiers_new();
	return s->cache && s->seats && (s->tiers || !c->content_key) && allocate_arrays(s) &&
	       map_init(&s->requests, c->max_seqs) == 0;
}

int scheduler_new(const struct scheduler_config *config, struct scheduler **ret, struct err *e)
{
	struct scheduler *s;
	int r = limits_check_config(config, e);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ENOMEM, "not enough memory for the scheduler");
	s->config = *config;
	s->pace = config->max_prefill_tokens;
	list_init(&s->leaders);
	list_init(&s->decoding);
	list_init(&s->ending);
	list_init(&s->loads);
	list_init(&s->receiving);
	list_init(&s->store_queue);
	if (!allocate(s)) {
		scheduler_free(s);
		return err_set(e, ENOMEM,
			       "not enough memory for a scheduler of %u pages and %u "
			       "sequences",
			       config->n_pages, config->max_seqs);
	}
	*ret = s;
	return 0;
}

static void free_request(void *arg, struct map_node *n)
{
	request_free(container_of(n, struct request, by_id));
}

void scheduler_free(struct scheduler *s)
{
	if (!s)
		return;
	map_drain(&s->requests, free_request, NULL);
	map_release(&s->requests);
	waiting_free(&s->waiting);
	list_for_each (l, &s->loads, struct tier_load, node)
		free(l);
	tiers_free(s->tiers);
	prefix_cache_free(s->cache);
	pool_free(s->seats);
	arena_release(&s->memory);
	free(s);
}

int scheduler_submit(struct scheduler *s, const struct scheduler_request *from, uint64_t *ret_id,
		     struct err *e)
{
	struct request *q;
	int r = limits_check_request(&s->config, from, e);

	if (r < 0)
		return r;
	if (s->config.max_waiting && s->n_waiting - s->n_retracted >= s->config.max_waiting)
		return err_set(e, EAGAIN, "%u requests are waiting already: try again later",
			       s->n_waiting - s->n_retracted);
	if (s->n_waiting == UINT32_MAX || map_reserve(&s->requests) < 0 ||
	    waiting_reserve(&s->waiting, s->requests.n + 1) < 0 ||
	    request_new(from, &s->config, &q) < 0)
		return err_set(e, ENOMEM, "not enough memory for a request of %u tokens",
			       from->n_prompt);
	q->id = ++s->last_id;
	map_insert(&s->requests, &q->by_id, q->id);
	waiting_insert(&s->waiting, q);
	s->n_waiting++;
	*ret_id = q->id;
	return 0;
}

/* ---- ending requests ---- */

static void drop_request(struct scheduler *s, struct request *r)
{
	map_remove(&s->requests, &r->by_id);
	request_free(r);
}

void scheduler_settle(struct scheduler *s)
{
	list_for_each (q, &s->ending, struct sequence, node) {
		struct request *r = q->request;

		if (!sequence_settled(s, q) ||
		    (q == r->trunk && (!request_over(r) || request_ships(r))))
			continue;
		admission_release(s, q);
		if (request_over(r) &&
		    !r->n_held) /* no other sequence of the request is in the list */
			drop_request(s, r);
	}
}

void scheduler_note_ended(struct scheduler *s, struct request *r)
{
	for (uint32_t i = 0; i < r->ask.n_choices; i++) {
		struct sequence *q = &r->choices[i];

		if (!q->ended || q->seat == POOL_NONE)
			continue;
		list_remove(&q->node);
		list_append(&s->ending, &q->node);
	}
	if (!request_over(r))
		return;
	if (s->head == r)
		s->head = NULL;
	sharing_end(s, r);
	list_remove(&r->receiving);
	if (sharing_leave(s, r) || tiering_leave(s, r)) {
		s->n_waiting--;
		s->n_retracted -= r->retracted;
	}
	if (!r->n_held)
		drop_request(s, r);
}

void scheduler_abort(struct scheduler *s, uint64_t id)
{
	struct request *r = find_request(s, id);

	if (!r || (request_over(r) && !request_ships(r)))
		return;
	request_abort(r);
	scheduler_note_ended(s, r);
	scheduler_settle(s);
}

void scheduler_finish_choice(struct scheduler *s, uint64_t id, uint32_t choice)
{
	struct request *r = find_request(s, id);

	if (!r || choice >= r->ask.n_choices || r->choices[choice].ended)
		return;
	request_end_choice(&r->choices[choice]);
	scheduler_note_ended(s, r);
	scheduler_settle(s);
}

void scheduler_allow(struct scheduler *s, uint64_t id, uint32_t choice, const uint32_t *allowed)
{
	struct request *r = find_request(s, id);

	if (r && choice < r->ask.n_choices && !r->choices[choice].ended)
		r->choices[choice].allowed = allowed;
}

/* ---- steps ---- */

void scheduler_pace(struct scheduler *s, uint32_t n_tokens)
{
	s->pace = MIN(MAX(n_tokens, s->align), s->config.max_prefill_tokens);
}

const struct plan *scheduler_plan(struct scheduler *s)
{
	assert(s->planned - s->committed < s->config.max_plans_out);
	return plan_build(s) ? &step_of(s, s->planned)->plan : NULL;
}

bool scheduler_draw(struct sequence *q, const struct draw_result *result,
		    struct scheduler_event *ret)
{
	struct request *r = q->request;

	if (q->ended)
		return false;
	*ret = (struct scheduler_event){
		.request = r->id,
		.user = r->ask.user,
		.choice = q->choice,
		.finish = request_draw(q, result->token),
		.hit = r->hit,
		.draw = result,
	};
	ret->request_finished = request_over(r);
	return true;
}

/* Ends the request of a draw that failed, and makes the request's last event. False: the choice has ended already, and
 * there is no event. */
static bool fail_draw(struct scheduler *s, struct sequence *q, const struct draw_result *result,
		      struct scheduler_event *ret)
{
	struct request *r = q->request;

	if (q->ended)
		return false;
	*ret = (struct scheduler_event){
		.request = r->id,
		.user = r->ask.user,
		.choice = q->choice,
		.request_finished = true,
		.hit = r->hit,
		.draw = result,
	};
	request_abort(r);
	scheduler_note_ended(s, r);
	return true;
}

/* Makes an event of a score; false: the request is over. */
static bool report_score(const struct request *r, const struct plan_row *row,
			 const struct plan_score *score, const struct draw_result *results,
			 struct scheduler_event *ret)
{
	if (request_over(r))
		return false;
	*ret = (struct scheduler_event){
		.request = r->id,
		.user = r->ask.user,
		.hit = r->hit,
		.scores = results,
		.first_score = row->start + score->first + 1,
		.n_scores = score->n_tokens,
	};
	return true;
}

/* If row i ends the prompt of a request that draws nothing, ends the request and makes its last event. pooling: the
 * row's; NULL: it has none. False: there is no event. */
static bool end_undrawn(struct scheduler *s, const struct step *t, uint32_t i,
			const struct plan_pooling *pooling, struct scheduler_event *ret)
{
	const struct plan_row *row = &t->rows[i];
	struct request *r = t->more[i].owner->request;

	if (r->ask.max_tokens || row->start + row->n_tokens < r->ask.n_prompt || request_over(r))
		return false;
	request_end_choice(t->more[i].owner);
	*ret = (struct scheduler_event){
		.request = r->id,
		.user = r->ask.user,
		.finish = FINISH_LENGTH,
		.request_finished = true,
		.hit = r->hit,
		.pooled = pooling,
		.pooling = pooling ? (uint32_t)(pooling - t->poolings) : 0,
	};
	scheduler_note_ended(s, r);
	return true;
}

/* Commits row i. ran: the row has run and none of its draws failed. Then, if the row's tokens are known, publishes the
 * pages and states that it computed. Unpins the slot that it read, and queues those followers again that waited for the
 * prompt up to the row's end, or for less. */
static void commit_row(struct scheduler *s, const struct step *t, uint32_t i, bool ran)
{
	const struct plan_row *row = &t->rows[i];
	const struct step_row *more = &t->more[i];
	struct sequence *q = more->owner;
	uint32_t end = row->start + row->n_tokens;

	if (ran)
		q->n_computed = end;
	publish_row(s, row, more, ran && end <= request_known(q));
	if (more->unpin != POOL_NONE)
		prefix_cache_unpin(s->cache, more->unpin);
	if (row->decode || request_over(q->request))
		return;
	if (end < q->request->ask.n_prompt)
		sharing_published(s, q->request, end);
	else
		sharing_end(s, q->request);
}

uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events)
{
	const struct step *t = step_of(s, s->committed + 1);
	const struct plan *p = &t->plan;
	uint32_t n_events = 0, d = 0, k = 0, n = 0, scored = p->n_draws;

	assert(plans_out(s));
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_pooling *pooling = NULL;
		bool sound = true;

		for (; k < p->n_scores && p->scores[k].row == i; k++) {
			n_events +=
				report_score(t->more[i].owner->request, &p->rows[i], &p->scores[k],
					     results + scored, &events[n_events]);
			scored += p->scores[k].n_tokens;
		}
		if (n < p->n_poolings && p->poolings[n].row == i)
			pooling = &p->poolings[n++];
		n_events += end_undrawn(s, t, i, pooling, &events[n_events]);
		for (; d < p->n_draws && p->draws[d].row == i; d++) {
			struct sequence *q = t->draw_owners[d];

			q->n_drawing--;
			if (results[d].token < 0) {
				sound = false;
				n_events += fail_draw(s, q, &results[d], &events[n_events]);
				continue;
			}
			assert((uint32_t)results[d].token < s->config.vocab_size);
			n_events += scheduler_draw(q, &results[d], &events[n_events]);
			if (q->ended)
				scheduler_note_ended(s, q->request);
		}
		commit_row(s, t, i, sound);
	}
	s->committed++;
	scheduler_settle(s);
	return n_events;
}

static void fail_request(struct scheduler *s, struct request *r, struct scheduler_event *events,
			 uint32_t *n_events)
{
	if (request_over(r))
		return;
	request_abort(r);
	scheduler_note_ended(s, r);
	events[(*n_events)++] = (struct scheduler_event){
		.request = r->id,
		.user = r->ask.user,
		.request_finished = true,
		.hit = r->hit,
	};
}

uint32_t scheduler_fail(struct scheduler *s, struct scheduler_event *events)
{
	uint32_t n_events = 0;
	int r;

	while (plans_out(s)) {
		const struct step *t = step_of(s, s->committed + 1);

		for (uint32_t i = 0; i < t->plan.n_rows; i++) {
			commit_row(s, t, i, false);
			fail_request(s, t->more[i].owner->request, events, &n_events);
		}
		s->committed++;
	}
	/* Then fail the requests that had no row in the plans. Each request leaves its list when it is aborted. */
	while (!list_empty(&s->decoding))
		fail_request(s, container_of(s->decoding.next, struct sequence, node)->request,
			     events, &n_events);
	while (!list_empty(&s->leaders))
		fail_request(s, container_of(s->leaders.next, struct request, leading), events,
			     &n_events);
	while (!list_empty(&s->receiving))
		fail_request(s, container_of(s->receiving.next, struct request, receiving), events,
			     &n_events);
	handoff_drop_ships(s);
	scheduler_settle(s);
	tiering_drop_loads(s);
	tiering_drop_stores(s);
	r = prefix_cache_flush(s->cache);
	assert(r == 0);
	(void)r;
	return n_events;
}

/* ---- the rest ---- */

int scheduler_flush(struct scheduler *s)
{
	if (s->requests.n)
		return -EBUSY;
	tiering_drop_stores(s);
	return prefix_cache_flush(s->cache);
}

int scheduler_shuffle(struct scheduler *s, uint64_t seed)
{
	int r = s->requests.n ? -EBUSY : prefix_cache_flush(s->cache);

	if (r == 0)
		r = prefix_cache_shuffle(s->cache, seed);
	if (r < 0)
		return r;
	pool_shuffle(s->seats, seed + 2);
	return 0;
}

struct tiers *scheduler_tiers(struct scheduler *s)
{
	return s->tiers;
}

void scheduler_tiers_ready(struct scheduler *s)
{
	s->tiers_ready = true;
}

const struct prefix_cache *scheduler_cache(const struct scheduler *s)
{
	return s->cache;
}

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *ret)
{
	*ret = s->stats;
	ret->running = pool_size(s->seats) - pool_available(s->seats);
	ret->waiting = s->n_waiting;
	ret->stores_waiting = s->n_stores;
	prefix_cache_stats(s->cache, &ret->cache);
}

uint64_t plan_hash(const struct plan *p)
{
	uint64_t h = mix_add(p->step, p->n_rows);

	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct plan_row *r = &p->rows[i];

		h = mix_add(h, (uint64_t)r->start << 32 | r->n_tokens);
		h = mix_add(h, (uint64_t)r->decode << 2 | (uint64_t)!r->tokens << 1 |
				       (r->state_src == STATE_ZERO));
		for (uint32_t k = 0; !r->decode && k < r->n_tokens; k++)
			h = mix_add(h, (uint32_t)r->tokens[k]);
		for (uint32_t k = 0; k < r->n_snapshots; k++)
			h = mix_add(h, r->snapshots[k].n_tokens);
	}
	for (uint32_t i = 0; i < p->n_draws; i++)
		h = mix_add(h, (uint64_t)p->draws[i].row << 32 | p->draws[i].position);
	for (uint32_t i = 0; i < p->n_scores; i++)
		h = mix_add(mix_add(h, (uint64_t)p->scores[i].row << 32 | p->scores[i].n_tokens),
			    p->scores[i].first);
	for (uint32_t i = 0; i < p->n_poolings; i++)
		h = mix_add(h, (uint64_t)p->poolings[i].row << 34 |
				       (uint64_t)p->poolings[i].first << 2 |
				       (uint64_t)p->poolings[i].begins << 1 | p->poolings[i].ends);
	for (uint32_t i = 0; i < p->n_ships; i++)
		h = mix_add(mix_add(h, (uint64_t)p->ships[i].row << 32 | p->ships[i].first_page),
			    (uint64_t)p->ships[i].n_pages << 1 | p->ships[i].state);
	return mix_add(mix_add(h, p->n_resets),
		       (uint64_t)p->n_page_copies << 32 | p->n_state_copies);
}
