/*
 * Retraction: when no plan is out and no sequence can go on for want of memory, one request gives
 * back what it holds and waits for admission again: the one with most tokens, of equal ones the
 * oldest. What it computed stays in the cache as long as nobody needs the room, and its tokens are
 * kept.
 */
#ifndef SCHEDULER_RETRACT_H
#define SCHEDULER_RETRACT_H

#include "scheduler/scheduler_internal.h"

/* False: nobody is decoding, so there is nobody to retract. Not while a plan is out. */
bool retract_one(struct scheduler *s) MUST_CHECK;

#endif
