#include "scheduler/admission.h"

#include <assert.h>

uint64_t admission_pages(const struct scheduler_config *c, uint32_t n_prompt, uint32_t max_tokens,
			 uint32_t n_choices)
{
	uint64_t shared = n_prompt / c->page_tokens;
	uint64_t all = CEIL_DIV((uint64_t)n_prompt + max_tokens, (uint64_t)c->page_tokens);

	return shared + n_choices * (all - shared);
}

/* What one pool gives never runs out here: admission has counted. */
static uint32_t take(struct pool *p)
{
	uint32_t id = pool_get(p);

	assert(id != POOL_NONE);
	return id;
}

static void seat_choice(struct scheduler *s, struct sequence *q)
{
	struct request *r = q->request;
	uint32_t shared = r->n_prompt / s->config.page_tokens;

	q->seat = take(s->seats);
	q->slot = take(s->slots);
	q->pages = s->tables + (size_t)q->seat * s->table_pages;
	q->n_pages = (uint32_t)admission_pages(&s->config, r->n_prompt, r->max_tokens, 1);
	for (uint32_t i = 0; i < q->n_pages; i++) {
		if (i < shared && q != r->trunk) {
			q->pages[i] = r->trunk->pages[i];
			pool_ref(s->pages, q->pages[i]);
		} else {
			q->pages[i] = take(s->pages);
		}
	}
	r->n_held++;
}

bool admission_admit(struct scheduler *s, struct request *r)
{
	uint64_t n_pages = admission_pages(&s->config, r->n_prompt, r->max_tokens, r->n_live);

	if (pool_available(s->seats) < r->n_live || pool_available(s->slots) < r->n_live ||
	    pool_available(s->pages) < n_pages)
		return false;
	request_advance(r, REQUEST_ADMIT);
	list_remove(&r->waiting);
	s->n_waiting--;
	r->trunk = request_first_live(r);
	for (uint32_t i = r->trunk->choice; i < r->n_choices; i++)
		if (!r->choices[i].ended)
			seat_choice(s, &r->choices[i]);
	return true;
}

/* The trunk ends before the fork: the next living choice takes over what the prefill wrote. */
static void hand_over_trunk(struct scheduler *s, struct request *r)
{
	struct sequence *from = r->trunk, *to = request_first_live(r);
	uint32_t partial = r->n_prompt / s->config.page_tokens;
	uint32_t slot = from->slot, page = from->pages[partial];

	r->trunk = to;
	if (!to)
		return;
	from->slot = to->slot;
	to->slot = slot;
	from->pages[partial] = to->pages[partial];
	to->pages[partial] = page;
}

void admission_release(struct scheduler *s, struct sequence *q)
{
	struct request *r = q->request;

	assert(q->ended);
	if (q->seat == POOL_NONE)
		return;
	if (q == r->trunk)
		hand_over_trunk(s, r);
	for (uint32_t i = 0; i < q->n_pages; i++)
		pool_put(s->pages, q->pages[i]);
	pool_put(s->slots, q->slot);
	pool_put(s->seats, q->seat);
	list_remove(&q->node);
	q->seat = q->slot = POOL_NONE;
	q->n_pages = 0;
	r->n_held--;
}
