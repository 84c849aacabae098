/* Seats for every client. While requests of others wait, an owner (scheduler_request.owner: a key or an address) has no
 * more than half of the seats, whatever the priorities say. It gets none beyond half, and if it has more from the time
 * when it was alone, requests of it are retracted (retract.h). Requests without an owner are never held back. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Returns the request that is to be admitted next: the first one that waits, unless its owner would have more than half
 * of the seats and a request of another one can go before it. NULL: none waits. */
struct request *fairness_first(const struct scheduler *s);

/* Returns a request that is to be retracted, so that one of another owner gets a seat: of the owner of more than half of
 * the seats, the one with fewest tokens. NULL: there is none. Two kinds of requests are never chosen, so that an owner may
 * keep more than half: one whose bits could change (request.origin_known), and one of so many choices that its owner would
 * be left with less than half. */
struct request *fairness_victim(const struct scheduler *s);
