/*
 * The waiting requests, first by priority (lower first), then by id: a binary heap, so that first,
 * insertion and removal from the middle cost the logarithm of its length. A retracted request has
 * kept its id and so its place.
 */
#ifndef SCHEDULER_WAITING_H
#define SCHEDULER_WAITING_H

#include <stddef.h>

#include "base/macros.h"

#define WAITING_NONE SIZE_MAX

struct request;

struct waiting {
	struct request **v; /* [n] owned array of borrowed requests; v[i]->waiting_index == i */
	size_t n, room;
};

/* Room for n requests in all, so that insertions cannot fail. -ENOMEM. */
int waiting_reserve(struct waiting *q, size_t n) MUST_CHECK;
void waiting_free(struct waiting *q);

void waiting_insert(struct waiting *q, struct request *r);

/* Takes r out; nothing when it is not in. */
void waiting_remove(struct waiting *q, struct request *r);

/* NULL: empty. */
struct request *waiting_first(const struct waiting *q);

#endif
