#include "scheduler/scheduler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "scheduler/admission.h"
#include "scheduler/scheduler_internal.h"

static int check_config(const struct scheduler_config *c, struct err *e)
{
	if (!c->page_tokens || c->page_tokens % CHUNK_TOKENS || c->page_tokens > INT32_MAX)
		return err_set(e, EINVAL, "a page of %u tokens is not a multiple of %d up to %d",
			       c->page_tokens, CHUNK_TOKENS, INT32_MAX);
	if (c->max_prefill_tokens < c->page_tokens)
		return err_set(e, EINVAL,
			       "a prefill budget of %u tokens is less than a page of %u tokens",
			       c->max_prefill_tokens, c->page_tokens);
	if (!c->n_pages || !c->max_seqs)
		return err_set(e, EINVAL, "%u pages and %u sequences: both must be at least 1",
			       c->n_pages, c->max_seqs);
	if (c->n_slots < c->max_seqs || c->n_slots > INT32_MAX)
		return err_set(e, EINVAL,
			       "%u state slots for %u sequences: not between that and %d",
			       c->n_slots, c->max_seqs, INT32_MAX);
	if (c->max_model_len < 2 || c->max_model_len > INT32_MAX)
		return err_set(e, EINVAL, "a context length of %u is not between 2 and %d",
			       c->max_model_len, INT32_MAX);
	if (!c->vocab_size || c->vocab_size > INT32_MAX)
		return err_set(e, EINVAL, "a vocabulary of %u tokens is not between 1 and %d",
			       c->vocab_size, INT32_MAX);
	return 0;
}

static int allocate(struct scheduler *s)
{
	const struct scheduler_config *c = &s->config;
	struct step *t = &s->step;
	size_t table_bytes;

	s->table_pages = MIN(CEIL_DIV(c->max_model_len, c->page_tokens), c->n_pages);
	if (__builtin_mul_overflow((size_t)s->table_pages, sizeof(*s->tables), &table_bytes))
		return -ENOMEM;
	s->pages = pool_new(c->n_pages);
	s->slots = pool_new(c->n_slots);
	s->seats = pool_new(c->max_seqs);
	s->tables = calloc(c->max_seqs, table_bytes);
	t->rows = calloc(c->max_seqs, sizeof(*t->rows));
	t->row_owners = calloc(c->max_seqs, sizeof(*t->row_owners));
	t->draws = calloc(c->max_seqs, sizeof(*t->draws));
	t->draw_owners = calloc(c->max_seqs, sizeof(*t->draw_owners));
	t->resets = calloc(c->max_seqs, sizeof(*t->resets));
	t->page_copies = calloc(c->max_seqs, sizeof(*t->page_copies));
	t->state_copies = calloc(c->max_seqs, sizeof(*t->state_copies));
	if (!s->pages || !s->slots || !s->seats || !s->tables || !t->rows || !t->row_owners ||
	    !t->draws || !t->draw_owners || !t->resets || !t->page_copies || !t->state_copies)
		return -ENOMEM;
	return 0;
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
	list_init(&s->waiting);
	list_init(&s->decoding);
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

void scheduler_free(struct scheduler *s)
{
	if (!s)
		return;
	request_map_release(&s->requests);
	pool_free(s->pages);
	pool_free(s->slots);
	pool_free(s->seats);
	free(s->tables);
	free(s->step.rows);
	free(s->step.row_owners);
	free(s->step.draws);
	free(s->step.draw_owners);
	free(s->step.resets);
	free(s->step.page_copies);
	free(s->step.state_copies);
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
	uint64_t length = (uint64_t)q->n_prompt + q->max_tokens, n_pages;
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
	if (q->sampling.n_logprobs > TOP_LOGPROBS_MAX)
		return err_param(e, EINVAL, "top_logprobs",
				 "%u log-probabilities a token are more than %d",
				 q->sampling.n_logprobs, TOP_LOGPROBS_MAX);
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
	if (s->n_waiting == UINT32_MAX || request_map_reserve(&s->requests) < 0 ||
	    request_new(from, &q) < 0)
		return err_set(e, ENOMEM, "not enough memory for a request of %u tokens",
			       from->n_prompt);
	q->id = ++s->last_id;
	request_map_insert(&s->requests, q);
	list_append(&s->waiting, &q->waiting);
	s->n_waiting++;
	*ret_id = q->id;
	return 0;
}

/* Forgets a request that is over, once none of its choices holds anything. */
static void drop_if_over(struct scheduler *s, struct request *r)
{
	if (!request_over(r) || r->n_held)
		return;
	if (!list_empty(&r->waiting)) {
		list_remove(&r->waiting);
		s->n_waiting--;
	}
	if (s->head == r)
		s->head = NULL;
	request_map_remove(&s->requests, r);
	request_free(r);
}

/* Releases the choices of r that have ended, then r itself if that was all. */
static void settle(struct scheduler *s, struct request *r)
{
	for (uint32_t i = 0; i < r->n_choices; i++)
		if (r->choices[i].ended)
			admission_release(s, &r->choices[i]);
	drop_if_over(s, r);
}

/* Every request that holds something is in the plan that is out, and is settled at its commit. */
static bool settled_at_commit(const struct scheduler *s, const struct request *r)
{
	return s->plan_out && r->n_held;
}

void scheduler_abort(struct scheduler *s, uint64_t id)
{
	struct request *r = request_map_find(&s->requests, id);

	if (!r)
		return;
	request_abort(r);
	if (!settled_at_commit(s, r))
		settle(s, r);
}

void scheduler_finish_choice(struct scheduler *s, uint64_t id, uint32_t choice)
{
	struct request *r = request_map_find(&s->requests, id);

	if (!r || choice >= r->n_choices)
		return;
	request_end_choice(&r->choices[choice]);
	if (!settled_at_commit(s, r))
		settle(s, r);
}

const struct plan *scheduler_plan(struct scheduler *s)
{
	assert(!s->plan_out);
	s->plan_out = plan_build(s);
	return s->plan_out ? &s->step.plan : NULL;
}

/* A draw of a living choice becomes an event; a choice that ended meanwhile gets none. */
static bool commit_draw(struct sequence *q, const struct draw_result *result,
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
		.draw = result,
	};
	ret->request_finished = request_over(r);
	return true;
}

/* A window has run; its draws, if it was the last, are committed already. */
static void commit_window(struct scheduler *s, struct request *r, uint32_t n_tokens)
{
	r->n_prefilled += n_tokens;
	if (r->n_prefilled == r->n_prompt && !request_over(r)) {
		request_advance(r, REQUEST_PREFILLED);
		for (uint32_t i = 0; i < r->n_choices; i++)
			if (!r->choices[i].ended)
				list_append(&s->decoding, &r->choices[i].node);
	}
	settle(s, r);
}

/* A decode row has run: its sequence goes on or is released. */
static void commit_decode(struct scheduler *s, struct sequence *q)
{
	if (!q->ended)
		return;
	admission_release(s, q);
	drop_if_over(s, q->request);
}

static void commit_row(struct scheduler *s, uint32_t i)
{
	const struct plan_row *row = &s->step.rows[i];
	struct sequence *owner = s->step.row_owners[i];

	if (row->decode)
		commit_decode(s, owner);
	else
		commit_window(s, owner->request, row->n_tokens);
}

uint32_t scheduler_commit(struct scheduler *s, const struct draw_result *results,
			  struct scheduler_event *events)
{
	const struct plan *p = &s->step.plan;
	uint32_t n_events = 0, d = 0;

	assert(s->plan_out);
	s->plan_out = false;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		for (; d < p->n_draws && p->draws[d].row == i; d++) {
			assert(results[d].token >= 0 &&
			       (uint32_t)results[d].token < s->config.vocab_size);
			n_events +=
				commit_draw(s->step.draw_owners[d], &results[d], &events[n_events]);
		}
		commit_row(s, i);
	}
	return n_events;
}

uint32_t scheduler_fail(struct scheduler *s, struct scheduler_event *events)
{
	const struct plan *p = &s->step.plan;
	uint32_t n_events = 0;

	assert(s->plan_out);
	s->plan_out = false;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		struct request *r = s->step.row_owners[i]->request;

		if (!request_over(r)) {
			request_abort(r);
			events[n_events++] = (struct scheduler_event){
				.request = r->id,
				.user = r->user,
				.request_finished = true,
			};
		}
		commit_row(s, i);
	}
	return n_events;
}

int scheduler_shuffle(struct scheduler *s, uint64_t seed)
{
	if (pool_available(s->seats) != pool_size(s->seats))
		return -EBUSY;
	pool_shuffle(s->pages, seed);
	pool_shuffle(s->slots, seed + 1);
	pool_shuffle(s->seats, seed + 2);
	return 0;
}

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *ret)
{
	*ret = (struct scheduler_stats){
		.running = pool_size(s->seats) - pool_available(s->seats),
		.waiting = s->n_waiting,
		.free_pages = pool_available(s->pages),
		.free_slots = pool_available(s->slots),
	};
}
