/*
 * Admission: who may hold seats, state slots and pages.
 *
 * A transaction: what the prefix cache has is looked up, what is needed beside it is compared with
 * what is free or can be evicted, and taken whole or not at all. A refusal changes nothing. A
 * request needs, for n living choices: n seats, n slots, and pages for
 *
 *     position   0          W        known        + a page of growth, at most the end
 *                | whole    | partial  |  growth |
 *                | shared,  | per choice         |     W = n_prompt rounded down to a page
 *                | once     |                    |
 *
 * "known" are the prompt and, of a request that comes back, the tokens drawn. Growth is what makes
 * an admission worth it: without it all admitted sequences could stop at once at the end of their
 * pages. Further pages are taken one by one (admission_grow).
 */
#ifndef SCHEDULER_ADMISSION_H
#define SCHEDULER_ADMISSION_H

#include "scheduler/scheduler_internal.h"

/* Pages that n_choices of such a request hold together at their longest. */
uint64_t admission_pages(const struct scheduler_config *c, uint32_t n_prompt, uint32_t max_tokens,
			 uint32_t n_choices);

/* What the cache has for a waiting request: to be admitted by it before anything else is looked up.
 */
void admission_match(struct scheduler *s, const struct request *r, struct prefix_match *ret);

/* Admits a waiting request that matches m: takes it out of the queue and gives each of its living
 * choices what it needs; its trunk is at m->n_tokens. False, and nothing changed, when that is not
 * there now. */
bool admission_admit(struct scheduler *s, struct request *r,
		     const struct prefix_match *m) MUST_CHECK;

/* Room for a waiting request whose prompt comes from elsewhere: what admission_admit gives one of which nothing
 * can be resumed, but for the pages that the cache has as prefilled. The request receives then. miss: why it found no more.
 * False as there; also when the host has no memory. */
bool admission_receive(struct scheduler *s, struct request *r, enum prefix_miss miss) MUST_CHECK;

/* It has come: the request counts as admitted. */
void admission_received(struct scheduler *s, struct request *r);

/* The position after what is planned has a page. */
static inline bool admission_has_page(const struct scheduler *s, const struct sequence *q)
{
	return q->n_planned < (uint64_t)q->n_pages * s->config.page_tokens;
}

/* Gives it one; false when there is none to be had now. */
bool admission_grow(struct scheduler *s, struct sequence *q) MUST_CHECK;

/* Other choices get the trunk's whole pages, and copies of its partial page and state: the fork. */
void admission_fork(struct scheduler *s, struct request *r, struct plan *p,
		    struct plan_copy *page_copies, struct plan_copy *state_copies);

/* Gives back what a choice holds, if it holds anything. Not while a plan that is out has it. */
void admission_release(struct scheduler *s, struct sequence *q);

#endif
