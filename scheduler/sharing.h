/*
 * Identical beginnings that arrive together are computed once.
 *
 * A *leader* is an admitted request whose prompt is not computed whole yet. A request that is about to be admitted is compared with the
 * leaders. When it shares more whole pages with one of them than the cache can give it, and the leader leaves a state where the two
 * prompts part, or can still be asked to, then it waits among the leader's *followers*. It queues again when that state is published, or
 * when the leader is done. Leaders are admitted requests, so no two requests wait for each other.
 */
#pragma once

#include "scheduler/scheduler_internal.h"

/* True: r, the first in the queue, has left the queue and follows another request. */
bool sharing_follow(struct scheduler *s, struct request *r,
		    const struct prefix_match *m) MUST_CHECK;

/* The leader's prompt is published up to n_tokens: followers that wait for that, or less, queue again. */
void sharing_published(struct scheduler *s, struct request *leader, uint32_t n_tokens);

/* r leads no more; its followers queue again. */
void sharing_end(struct scheduler *s, struct request *r);

/* Takes r out of the queue, or away from its leader. False: it was in neither. */
bool sharing_leave(struct scheduler *s, struct request *r);
