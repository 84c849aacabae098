/* Lets prompts that arrive together share the computation of an identical beginning.
 *
 * A *leader* is an admitted request whose prompt is computed here and not yet to its end. A request that may use the
 * cache, and whose prompt is to be computed here, is compared with the leaders of its space before it is admitted. It
 * becomes a *follower* of one of them if two things hold: it shares more whole pages with that leader than with the
 * cache; and the leader can be asked to leave a state at the end of the shared pages, or a plan that is out leaves a
 * useful state at or before their end. (In a model without states it is enough that the leader has not computed all of
 * the shared pages.) A request that needs prefilled pages follows only leaders whose pages are all prefilled. The
 * follower queues again when the leader's pages up to that state are published, or when the leader leads no more.
 * Leaders are admitted requests, so no two requests wait for each other. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Returns true if r, which was in the queue, now follows another request. m: what admission_match has just found. */
bool sharing_follow(struct scheduler *s, struct request *r,
		    const struct prefix_match *m) MUST_CHECK;

/* To be called when the leader's prompt is published up to n_tokens: lets the followers queue again that wait for at
 * most so many tokens. */
void sharing_published(struct scheduler *s, struct request *leader, uint32_t n_tokens);

/* Ends r as a leader, if it is one: its followers queue again. */
void sharing_end(struct scheduler *s, struct request *r);

/* Takes r out of the queue, or from the followers of its leader. False: r was in neither. */
bool sharing_leave(struct scheduler *s, struct request *r);
