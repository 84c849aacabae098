/*
 * Retraction: when no plan is out and no sequence can go on for want of memory, one request gives back everything that it holds and waits
 * for admission again. It is the request with most tokens, of equal ones the oldest. The cache keeps what it computed as long as there is
 * room, and its tokens are not forgotten.
 */
#pragma once

#include "scheduler/scheduler_internal.h"

/* False: no request decodes, so none can be retracted. Not while a plan is out. */
bool retract_one(struct scheduler *s) MUST_CHECK;
