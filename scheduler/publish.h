/*
 * Publishing: at the commit of a row's plan, the whole pages that it has computed and the states that it has kept are handed over to the
 * prefix cache.
 *
 * Pages go over piece by piece, so that a node of the tree ends where a state belongs. When the cache does not take something (the host
 * is out of memory, or decoded pages are refused), the sequence keeps its pages and goes on; slots are put back.
 */
#pragma once

#include "scheduler/scheduler_internal.h"

/* `computed`: the row has run, and the tokens up to its end are known. Otherwise its slots are put back. */
void publish_row(struct scheduler *s, const struct plan_row *row, const struct step_row *more,
		 bool computed);

/* Makes a checkpoint of the state that q's next row reads: q gives its slot away, has it pinned for that row, and gets another one to
 * write. Returns the slot; POOL_NONE, and nothing changed: there is no other slot. */
uint32_t publish_give_slot(struct scheduler *s, struct sequence *q) MUST_CHECK;

/* Publishes q's whole prompt, which another worker prefilled, and the state behind it in q's slot. */
void publish_received(struct scheduler *s, struct sequence *q);
