/* The waiting requests in their order: the lowest priority number first, of equal ones the lowest id. They are a heap
 * (base/heap.h), so that insertion and removal cost the logarithm of their number. A retracted request keeps its id,
 * and so its place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

#define WAITING_NONE SIZE_MAX

struct request;

struct waiting {
	struct request **v; /* [n] owned array of borrowed requests; v[i]->waiting_index == i */
	size_t n, room;
};

/* Whether x comes before y in the order of the queue. */
bool waiting_before(const struct request *x, const struct request *y);

/* Makes room for n requests in all, so that insertions cannot fail. -ENOMEM. */
int waiting_reserve(struct waiting *q, size_t n) MUST_CHECK;
void waiting_free(struct waiting *q);

void waiting_insert(struct waiting *q, struct request *r);

/* Takes r out; does nothing if it is not in the queue. */
void waiting_remove(struct waiting *q, struct request *r);

/* The first request of the queue; NULL: the queue is empty. */
struct request *waiting_first(const struct waiting *q);
