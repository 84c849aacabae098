/* Seats for every client. While requests of others wait, an owner (scheduler_request.owner: a key or an address) gets
 * no seat beyond half of the seats (rounded up), whatever the priorities say. But an owner without a seat may get as
 * many as one request needs. If an owner got more than half while nobody else waited, requests of it are retracted
 * (retract.h). Requests without an owner are never held back. */
#pragma once

#include "scheduler/scheduler_internal.h"

/* Returns the request that is to be admitted next. It is the first one that waits, unless its owner has a seat and
 * would then have more than half of all seats, and a request of another owner can go before it. NULL: none waits. */
struct request *fairness_first(const struct scheduler *s);

/* Returns a request that is to be retracted, so that a waiting request of another owner gets seats. Of the decoding
 * requests of the owner that has more than half of the seats, it is the one with fewest tokens. NULL: there is no such
 * request; a prompt is begun and not planned to its end; or the waiting request has enough free seats, or too few even
 * together with the seats beyond half. Two kinds of requests are never chosen, so an owner may keep more than half: a
 * request whose bits could change (request.origin_known), and one with so many choices that its owner would be left
 * with less than half. */
struct request *fairness_victim(const struct scheduler *s);
