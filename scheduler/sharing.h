/*
 * Identical beginnings that arrive together are computed once.
 *
 * A request that is to be admitted is compared with those whose prompt is not computed whole yet
 * (leaders). When it shares more whole pages with one of them than the cache can give it, and the
 * leader leaves a state where they part, or can still be made to, it waits among the leader's
 * followers and is looked at again when that state is published, or the leader is gone. Leaders are
 * admitted, so that nobody waits in a circle.
 */
#ifndef SCHEDULER_SHARING_H
#define SCHEDULER_SHARING_H

#include "scheduler/scheduler_internal.h"

/* True when r, the first in the queue, now follows another request (and is out of the queue). */
bool sharing_follow(struct scheduler *s, struct request *r,
		    const struct prefix_match *m) MUST_CHECK;

/* The leader's prompt is published up to n_tokens: followers that wait for no more queue again. */
void sharing_published(struct scheduler *s, struct request *leader, uint32_t n_tokens);

/* r leads no more; whoever follows queues again. */
void sharing_end(struct scheduler *s, struct request *r);

/* r leaves the queue, or whom it follows. False: it was in neither. */
bool sharing_leave(struct scheduler *s, struct request *r);

#endif
