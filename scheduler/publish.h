/*
 * Handing over to the prefix cache what a row has computed: whole pages, and the states that were
 * kept.
 *
 * Happens at the commit of the row's plan. Pages go over piece by piece, so that a node ends where
 * a state belongs. Where the cache cannot take something (no memory in the host, decoded tokens
 * refused), the sequence keeps its pages and goes on; slots are put back.
 */
#ifndef SCHEDULER_PUBLISH_H
#define SCHEDULER_PUBLISH_H

#include "scheduler/scheduler_internal.h"

/* `computed`: the row has run, and the tokens up to its end are known; otherwise its slots are put
 * back. */
void publish_row(struct scheduler *s, const struct plan_row *row, const struct step_row *more,
		 bool computed);

/* The state that q's next row reads is to be a checkpoint: q keeps its slot pinned and goes on in another. Returns the
 * slot, which q does not own any more; POOL_NONE: there is no other, and nothing changed. */
uint32_t publish_give_slot(struct scheduler *s, struct sequence *q) MUST_CHECK;

/* q's whole prompt is there, and in q's slot the state behind it: all of it was computed elsewhere, as a prefill. */
void publish_received(struct scheduler *s, struct sequence *q);

#endif
