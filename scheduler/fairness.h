/* Seats for every client. While requests of others wait, an owner (scheduler_request.owner: a key or an address) gets no
 * more than half of the seats, whatever the priorities say. Requests without an owner are never held back. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Returns the request that is to be admitted next: the first one that waits, unless its owner would have more than half
 * of the seats and a request of another one can go before it. NULL: none waits. */
struct request *fairness_first(const struct scheduler *s);
