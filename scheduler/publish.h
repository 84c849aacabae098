/* Publishing: when a row's plan is committed, the whole pages that the row has computed and the states that it has kept
 * are handed over to the prefix cache, if the request uses the cache.
 *
 * The pages up to each state are handed over before that state, so that a node of the tree ends there. When the cache
 * refuses a page (the host is out of memory, or decoded pages are refused), the sequence keeps its pages and goes on;
 * refused slots become free. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Publishes a row if `computed`: it has run, and the tokens up to its end are known. Otherwise only puts its slots for
 * checkpoints back. */
void publish_row(struct scheduler *s, const struct plan_row *row, const struct step_row *more,
		 bool computed);

/* Takes from q the slot with the state that its next row reads, to make a checkpoint of that state. The slot is pinned
 * for that row, and q gets another slot to write. Returns the slot with the state, which is the caller's now;
 * POOL_NONE, and nothing changed: no other slot can be had. */
uint32_t publish_give_slot(struct scheduler *s, struct sequence *q) MUST_CHECK;

/* Publishes the whole pages of q's prompt, which another worker prefilled. If the prompt ends at a multiple of
 * state_tokens, and there is another slot for q to write, the state behind the prompt becomes a checkpoint. Does
 * nothing if the request does not use the cache. */
void publish_received(struct scheduler *s, struct sequence *q);
