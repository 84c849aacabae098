/*
 * Prompts that are computed by one worker and decoded by another one: what this side of either has to do. Ids and counts only;
 * what brings the bytes from device to device is the engine's and the daemon's.
 *
 * To receive. A request of which enough has to be computed gets room for its whole prompt at once, in the same transaction as any
 * other, and stands aside (Receiving) until all of it is there: pages, state, and first tokens. Nothing of it is in a plan before
 * that, so that late or missing data cannot stall or spoil a step. Of what is here only what a prefill computed is made use
 * of: then all of the prompt is what one cold prefill gives, bit for bit, and is published as such. Receiving requests lead
 * nobody, follow nobody, and are not retracted.
 *
 * To send. Here too a prompt begins only with what a prefill computed. Its rows say what another worker is to get of them
 * (struct plan_ship). Pages are named as soon as they are whole, also those that were found in the cache; the state
 * behind the prompt goes once, with the last row. Who reads them may take longer than the step: so when its tokens are
 * drawn the request keeps (Shipping) its trunk, which has
 *     - a lock on the path of the tree that its pages are on
 *     - a reference to pages that it shipped and in whose place the tree had others already (request.ship_pages)
 *     - the slot with the state, or a pin on it, where it became a checkpoint.
 * Source: the shared reference (hybrid-scheduling) on disaggregation, and what others had to repair in it.
 */
#ifndef SCHEDULER_HANDOFF_H
#define SCHEDULER_HANDOFF_H

#include "scheduler/scheduler_internal.h"

/* -EINVAL: such a request cannot be handed over. */
int handoff_check(const struct scheduler_config *c, const struct scheduler_request *r,
		  struct err *e) MUST_CHECK;

/* Its prompt could come from elsewhere / is to, given what it would begin with here. */
bool handoff_possible(const struct request *r);
bool handoff_wanted(const struct scheduler *s, const struct request *r,
		    const struct prefix_match *m);

/* The row added last is one of r's, which is sent: adds what of it is to be shipped. */
void handoff_ship(const struct scheduler *s, struct request *r, struct plan *p,
		  struct plan_ship *ships);

/* Nobody reads from the device any more. */
void handoff_drop_ships(struct scheduler *s);

#endif
