/* Retraction: when no plan is out and every sequence lacks memory to go on, one request gives back all its memory and
 * waits for admission again. It is the request with most tokens, of equal ones the oldest. The cache keeps its pages
 * and states as long as there is room, and its tokens are kept. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Retracts one request. False: no request decodes, so none can be retracted. Not while a plan is out. */
bool retract_one(struct scheduler *s) MUST_CHECK;
