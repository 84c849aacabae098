#include "scheduler/scheduler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "scheduler/admission.h"
#include "scheduler/handoff.h"
#include "scheduler/publish.h"
#include "scheduler/scheduler_internal.h"
#include "scheduler/sharing.h"
#include "scheduler/tiering.h"

static int check_config(const struct scheduler_config *c, struct err *e)
{
	uint32_t align = MAX(c->page_tokens, c->state_tokens);

	if (!c->page_tokens || c->page_tokens > INT32_MAX)
		return err_set(e, EINVAL, "a page of %u tokens is not between 1 and %d",
			       c->page_tokens, INT32_MAX);
	if (c->state_tokens % c->page_tokens)
		return err_set(e, EINVAL, "checkpoints every %u tokens do not end with pages of %u",
			       c->state_tokens, c->page_tokens);
	if (c->max_prefill_tokens < align)
		return err_set(e, EINVAL,
			       "a prefill budget of %u tokens is less than a page of %u tokens",
			       c->max_prefill_tokens, align);
	if (!c->n_pages || !c->max_seqs)
		return err_set(e, EINVAL, "%u pages and %u sequences: both must be at least 1",
			       c->n_pages, c->max_seqs);
	if (c->n_slots > INT32_MAX)
		return err_set(e, EINVAL, "%u state slots are more than %d", c->n_slots, INT32_MAX);
	if (c->state_tokens && c->n_slots < c->max_seqs)
		return err_set(
			e, EINVAL,
			"there is memory for %u states, and %u sequences that may run at once "
			"(--max-num-seqs) take one each",
			c->n_slots, c->max_seqs);
	if (!c->state_tokens && c->n_slots)
		return err_set(e, EINVAL, "%u state slots for a model without state", c->n_slots);
	if (c->max_model_len < 2 || c->max_model_len > INT32_MAX)
		return err_set(e, EINVAL, "a context length of %u is not between 2 and %d",
			       c->max_model_len, INT32_MAX);
	if (!c->vocab_size || c->vocab_size > INT32_MAX)
		return err_set(e, EINVAL, "a vocabulary of %u tokens is not between 1 and %d",
			       c->vocab_size, INT32_MAX);
	if (c->max_plans_out < 1 || c->max_plans_out > STEPS_OUT_MAX)
		return err_set(e, EINVAL, "%u plans out are not between 1 and %d", c->max_plans_out,
			       STEPS_OUT_MAX);
	return 0;
}

static bool allocate_step(struct step *t, uint32_t n)
{
	t->rows = calloc(n, sizeof(*t->rows));
	t->more = calloc(n, sizeof(*t->more));
	t->draws = calloc(n, sizeof(*t->draws));
	t->draw_owners = calloc(n, sizeof(*t->draw_owners));
	t->scores = calloc(n, sizeof(*t->scores));
	t->ships = calloc(n, sizeof(*t->ships));
	t->resets = calloc(n, sizeof(*t->resets));
	t->page_copies = calloc(n, sizeof(*t->page_copies));
	t->state_copies = calloc(n, sizeof(*t->state_copies));
	return t->rows && t->more && t->draws && t->draw_owners && t->scores && t->ships &&
	       t->resets && t->page_copies && t->state_copies;
}

static void free_step(struct step *t)
{
	free(t->rows);
	free(t->more);
	free(t->draws);
	free(t->draw_owners);
	free(t->scores);
	free(t->ships);
	free(t->resets);
	free(t->page_copies);
	free(t->state_copies);
}

static int allocate(struct scheduler *s)
{
	const struct scheduler_config *c = &s->config;
	size_t table_bytes;

	s->align = MAX(c->page_tokens, c->state_tokens);
	s->table_pages = MIN(CEIL_DIV(c->max_model_len, c->page_tokens), c->n_pages);
	if (__builtin_mul_overflow((size_t)s->table_pages, sizeof(*s->tables), &table_bytes))
		return -ENOMEM;
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
	s->tables = calloc(c->max_seqs, table_bytes);
	s->page = calloc(c->page_tokens, sizeof(*s->page));
	s->returning = calloc(c->max_model_len, sizeof(*s->returning));
	s->hit_pages = calloc(s->table_pages, sizeof(*s->hit_pages));
	if (!s->cache || !s->seats || !s->tables || !s->page || !s->returning || !s->hit_pages)
		return -ENOMEM;
	if (c->content_key) {
		s->tiers = tiers_new();
		s->stores = calloc((size_t)c->n_pages + c->n_slots, sizeof(*s->stores));
		s->uses = calloc(USES_MAX, sizeof(*s->uses));
		s->tier_path = calloc(s->table_pages, sizeof(*s->tier_path));
		s->tier_origins = calloc(s->table_pages, sizeof(*s->tier_origins));
		if (!s->tiers || !s->stores || !s->uses || !s->tier_path || !s->tier_origins)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < STEPS_OUT_MAX; i++)
		if (!allocate_step(&s->steps[i], c->max_seqs))
			return -ENOMEM;
	return map_init(&s->requests, c->max_seqs);
}

int scheduler_new(const struct scheduler_config *config, struct scheduler **ret, struct err *e)
{
	struct scheduler *s;
	int r = check_config(config, e);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ENOMEM, "not enough memory for the scheduler");
	s->config = *config;
	list_init(&s->leaders);
	list_init(&s->decoding);
	list_init(&s->ending);
	list_init(&s->loads);
	list_init(&s->receiving);
	if (allocate(s) < 0) {
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
	list_for_each (node, &s->loads)
		free(container_of(node, struct load, node));
	tiers_free(s->tiers);
	free(s->stores);
	free(s->uses);
	free(s->tier_path);
	free(s->tier_origins);
	prefix_cache_free(s->cache);
	pool_free(s->seats);
	free(s->tables);
	free(s->page);
	free(s->returning);
	free(s->hit_pages);
	for (uint32_t i = 0; i < STEPS_OUT_MAX; i++)
		free_step(&s->steps[i]);
	free(s);
}

static int check_tokens(const int32_t *ids, uint32_t n, uint32_t vocab_size, const char *param,
			struct err *e)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= vocab_size)
			return err_param(e, EINVAL, param,
					 "token %d (number %u) is not in the vocabulary of %u",
					 ids[i], i, vocab_size);
	return 0;
}

/* Everything that could keep a request from completing, before anything of it is kept. */
static int check_request(const struct scheduler_config *c, const struct scheduler_request *q,
			 struct err *e)
{
	uint64_t length = (uint64_t)q->n_prompt + q->max_tokens, n_pages, bytes;
	int r;

	if (!q->n_prompt)
		return err_param(e, EINVAL, "prompt", "the prompt has no tokens");
	if (!q->max_tokens)
		return err_param(e, EINVAL, "max_tokens", "max_tokens is 0, not at least 1");
	if (length > c->max_model_len)
		return err_param(e, EINVAL, "max_tokens",
				 "%u prompt tokens and %u to generate are more than the context "
				 "length of %u tokens",
				 q->n_prompt, q->max_tokens, c->max_model_len);
	if (!q->n_choices || q->n_choices > c->max_seqs)
		return err_param(e, EINVAL, "n",
				 "%u choices are not between 1 and the %u sequences that can run "
				 "at the same time",
				 q->n_choices, c->max_seqs);
	n_pages = admission_pages(c, q->n_prompt, q->max_tokens, q->n_choices);
	if (n_pages > c->n_pages)
		return err_param(e, EINVAL, "max_tokens",
				 "the request needs %llu KV pages of %u tokens, and there are %u",
				 (unsigned long long)n_pages, c->page_tokens, c->n_pages);
	bytes = n_pages * c->page_bytes + (c->n_slots ? q->n_choices * c->slot_bytes : 0);
	if (c->cache_bytes && bytes > c->cache_bytes)
		return err_param(
			e, EINVAL, "max_tokens",
			"the request needs %llu bytes of KV pages and states, and there are %llu",
			(unsigned long long)bytes, (unsigned long long)c->cache_bytes);
	for (uint32_t i = 0; i < q->n_boundaries; i++)
		if (q->boundaries[i] > q->n_prompt ||
		    (i && q->boundaries[i] <= q->boundaries[i - 1]))
			return err_set(e, EINVAL,
				       "boundary %u of the prompt is %u: not rising, or not in it",
				       i, q->boundaries[i]);
	if (q->sampling.n_logprobs > TOP_LOGPROBS_MAX)
		return err_param(e, EINVAL, "top_logprobs",
				 "%u log-probabilities a token are more than %d",
				 q->sampling.n_logprobs, TOP_LOGPROBS_MAX);
	if (q->n_prompt_logprobs > TOP_LOGPROBS_MAX)
		return err_param(e, EINVAL, "prompt_logprobs",
				 "%u log-probabilities a token of the prompt are more than %d",
				 q->n_prompt_logprobs, TOP_LOGPROBS_MAX);
	if (q->n_end_tokens > PLAN_BANNED_MAX)
		return err_param(e, EINVAL, "stop_token_ids",
				 "%u tokens that end an answer are more than %d", q->n_end_tokens,
				 PLAN_BANNED_MAX);
	r = handoff_check(c, q, e);
	if (r < 0)
		return r;
	r = check_tokens(q->prompt, q->n_prompt, c->vocab_size, "prompt", e);
	if (r < 0)
		return r;
	return check_tokens(q->end_tokens, q->n_end_tokens, c->vocab_size, "stop_token_ids", e);
}

int scheduler_submit(struct scheduler *s, const struct scheduler_request *from, uint64_t *ret_id,
		     struct err *e)
{
	struct request *q;
	int r = check_request(&s->config, from, e);

	if (r < 0)
		return r;
	if (s->config.max_waiting && s->n_waiting - s->n_retracted >= s->config.max_waiting)
		return err_set(e, EAGAIN, "%u requests are waiting already: try again later",
			       s->n_waiting - s->n_retracted);
	if (s->n_waiting == UINT32_MAX || map_reserve(&s->requests) < 0 ||
	    waiting_reserve(&s->waiting, s->requests.n + 1) < 0 ||
	    request_new(from, from->page_keys ? from->n_prompt / s->config.page_tokens : 0,
			from->handoff == HANDOFF_SEND ? from->n_prompt / s->config.page_tokens : 0,
			&q) < 0)
		return err_set(e, ENOMEM, "not enough memory for a request of %u tokens",
			       from->n_prompt);
	q->id = ++s->last_id;
	map_insert(&s->requests, &q->by_id, q->id);
	waiting_insert(&s->waiting, q);
	s->n_waiting++;
	*ret_id = q->id;
	return 0;
}

/* ---- ends ---- */

static void drop(struct scheduler *s, struct request *r)
{
	map_remove(&s->requests, &r->by_id);
	request_free(r);
}

void scheduler_settle(struct scheduler *s)
{
	list_for_each (node, &s->ending) {
		struct sequence *q = container_of(node, struct sequence, node);
		struct request *r = q->request;

		if (!sequence_settled(s, q) ||
		    (q == r->trunk && (!request_over(r) || request_ships(r))))
			continue;
		admission_release(s, q);
		if (request_over(r) && !r->n_held) /* no other sequence of it is in the list */
			drop(s, r);
	}
}

void scheduler_note_ended(struct scheduler *s, struct request *r)
{
	for (uint32_t i = 0; i < r->n_choices; i++) {
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
		drop(s, r);
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

	if (!r || choice >= r->n_choices || r->choices[choice].ended)
		return;
	request_end_choice(&r->choices[choice]);
	scheduler_note_ended(s, r);
	scheduler_settle(s);
}

/* ---- steps ---- */

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
		.user = r->user,
		.choice = q->choice,
		.finish = request_draw(q, result->token),
		.hit = r->hit,
		.draw = result,
	};
	ret->request_finished = request_over(r);
	return true;
}

/* What was said of tokens of a prompt becomes an event; nobody asks any more when the request is over. */
static bool commit_score(const struct request *r, const struct plan_row *row,
			 const struct draw_result *results, uint32_t n, struct scheduler_event *ret)
{
	if (request_over(r))
		return false;
	*ret = (struct scheduler_event){
		.request = r->id,
		.user = r->user,
		.hit = r->hit,
		.scores = results,
		.first_score = row->start + 1,
		.n_scores = n,
	};
	return true;
}

/* A row has run, or (ran false) it never will: what it leaves is handed over, what it held back is
 * free. */
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
	if (end < q->request->n_prompt)
		sharing_published(s, q->request, end);
	else
		sharing_end(s, q->request);
}

uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events)
{
	const struct step *t = step_of(s, s->committed + 1);
	const struct plan *p = &t->plan;
	uint32_t n_events = 0, d = 0, k = 0, scored = p->n_draws;

	assert(plans_out(s));
	for (uint32_t i = 0; i < p->n_rows; i++) {
		for (; k < p->n_scores && p->scores[k].row == i; k++) {
			n_events += commit_score(t->more[i].owner->request, &p->rows[i],
						 results + scored, p->scores[k].n_tokens,
						 &events[n_events]);
			scored += p->scores[k].n_tokens;
		}
		for (; d < p->n_draws && p->draws[d].row == i; d++) {
			struct sequence *q = t->draw_owners[d];

			assert(results[d].token >= 0 &&
			       (uint32_t)results[d].token < s->config.vocab_size);
			q->n_drawing--;
			n_events += scheduler_draw(q, &results[d], &events[n_events]);
			if (q->ended)
				scheduler_note_ended(s, q->request);
		}
		commit_row(s, t, i, true);
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
		.user = r->user,
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
	/* Those that paused, and a prompt that got no row: none of them is over, and each leaves its list. */
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
	*ret = (struct scheduler_stats){
		.running = pool_size(s->seats) - pool_available(s->seats),
		.waiting = s->n_waiting,
		.retractions = s->retractions,
		.replayed_tokens = s->replayed_tokens,
		.prompt_tokens = s->prompt_tokens,
		.cached_tokens = s->cached_tokens,
		.shared_waits = s->shared_waits,
		.receives = s->receives,
		.receives_failed = s->receives_failed,
		.loads_begun = s->loads_begun,
		.loads_failed = s->loads_failed,
		.stores_dropped = s->stores_dropped,
		.stores_waiting = s->n_stores,
	};
	memcpy(ret->misses, s->misses, sizeof(ret->misses));
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
		h = mix_add(h, (uint64_t)p->scores[i].row << 32 | p->scores[i].n_tokens);
	for (uint32_t i = 0; i < p->n_ships; i++)
		h = mix_add(mix_add(h, (uint64_t)p->ships[i].row << 32 | p->ships[i].first_page),
			    (uint64_t)p->ships[i].n_pages << 1 | p->ships[i].state);
	return mix_add(mix_add(h, p->n_resets),
		       (uint64_t)p->n_page_copies << 32 | p->n_state_copies);
}
