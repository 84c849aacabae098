/* Admission: which requests get seats, state slots and pages.
 *
 * An admission is a transaction. The scheduler looks a prompt up in the prefix cache, compares the further memory
 * that the request needs with the memory that is free or can be evicted, and takes all of it or nothing; a refusal
 * changes nothing. For n living choices a request needs n seats, n slots (if the model has states), and pages for
 *
 *     position   0          W        known        + a page of growth, but not beyond
 *                | whole    | rest     |  growth |       n_prompt + max_tokens
 *                | shared,  | per choice         |     W = n_prompt rounded down to a page
 *                | once     |                    |
 *
 * "known" is the end of the prompt; of a retracted request, the end of the tokens that its longest living choice has
 * drawn. The growth lets every admitted sequence draw at least one token beyond the known ones. Later pages are taken
 * one by one (admission_grow). When no page is free, the sequence pauses, or a request is retracted (retract.h). */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Returns the most pages that all choices of a request with these numbers hold together. */
uint64_t admission_pages(const struct scheduler_config *c, uint32_t n_prompt, uint32_t max_tokens,
			 uint32_t n_choices);

/* Looks a waiting request up in the cache. Leaves s->key as admission_admit needs it, so no other request may be
 * looked up in between. */
void admission_match(struct scheduler *s, const struct request *r, struct prefix_match *ret);

/* Admits a waiting request for which admission_match returned m: takes it out of the queue, and gives each living
 * choice its seat, slot and pages; the trunk begins at m->n_tokens, or at 0 if device or host lack memory for that.
 * False, and nothing changed: there are not enough seats, slots or pages now. */
bool admission_admit(struct scheduler *s, struct request *r,
		     const struct prefix_match *m) MUST_CHECK;

/* Admits a waiting request whose prompt another worker will send. The request gets memory for the whole prompt, except
 * for pages that the cache has as prefilled. `miss` is the reason why the cache had no more. False, and nothing
 * changed: as in admission_admit, or the host is out of memory. */
bool admission_receive(struct scheduler *s, struct request *r, enum prefix_miss miss) MUST_CHECK;

/* To be called when a request's prompt has arrived from another worker: notes the admission and counts the hit. */
void admission_received(struct scheduler *s, struct request *r);

/* Whether q's block table has a page for the first token that is not planned yet. */
static inline bool admission_has_page(const struct scheduler *s, const struct sequence *q)
{
	return q->n_planned < (uint64_t)q->n_pages * s->config.page_tokens;
}

/* Adds a page to q's block table; false: none can be had now. */
bool admission_grow(struct scheduler *s, struct sequence *q) MUST_CHECK;

/* Forks: gives the other living choices the prompt's whole pages, and adds copies of the trunk's partial page and state
 * to the plan. */
void admission_fork(struct scheduler *s, struct request *r, struct plan *p,
		    struct plan_copy *page_copies, struct plan_copy *state_copies);

/* Gives back everything that a choice holds; does nothing if it has no seat. Not to be called while a plan that is out
 * uses the choice. */
void admission_release(struct scheduler *s, struct sequence *q);
