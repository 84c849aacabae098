/* Retraction: a decoding request gives back all its memory and waits for admission again. It keeps the tokens that it
 * drew; the pages and checkpoints that it has left in the cache stay there as long as there is room. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Retracts r, which has a sequence in s->decoding. Not to be called while a plan is out. */
void retract(struct scheduler *s, struct request *r);

/* For want of memory, when no plan is out and no row can be planned: retracts the decoding request with most tokens, of
 * equal ones the oldest. False: no request decodes. */
bool retract_one(struct scheduler *s) MUST_CHECK;
