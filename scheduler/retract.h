/* Retraction: when no plan is out and no row can be planned, one decoding request gives back all its memory and waits
 * for admission again. It is the decoding request with most tokens, of equal ones the oldest. It keeps the tokens that
 * it drew; the pages and checkpoints that it has left in the cache stay there as long as there is room. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Retracts one request. False: no request decodes, so none can be retracted. Not to be called while a plan is out. */
bool retract_one(struct scheduler *s) MUST_CHECK;
