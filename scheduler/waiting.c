#include "scheduler/waiting.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/heap.h"
#include "scheduler/request.h"

int waiting_reserve(struct waiting *q, size_t n)
{
	return array_grow(q->v, q->room, n) ? 0 : -ENOMEM;
}

void waiting_free(struct waiting *q)
{
	free(q->v);
	*q = (struct waiting){0};
}

bool waiting_before(const struct request *x, const struct request *y)
{
	return x->ask.priority != y->ask.priority ? x->ask.priority < y->ask.priority
						  : x->id < y->id;
}

static bool goes_before(const void *a, const void *b)
{
	return waiting_before(*(struct request *const *)a, *(struct request *const *)b);
}

static void element_moved(void *element, size_t place)
{
	(*(struct request **)element)->waiting_index = place;
}

static const struct heap_kind by_turn = {
	.size = sizeof(struct request *),
	.before = goes_before,
	.moved = element_moved,
};

void waiting_insert(struct waiting *q, struct request *r)
{
	assert(q->n < q->room && r->waiting_index == WAITING_NONE);
	heap_add(&by_turn, q->v, q->n++, &r);
}

void waiting_remove(struct waiting *q, struct request *r)
{
	if (r->waiting_index == WAITING_NONE)
		return;
	heap_take(&by_turn, q->v, q->n--, r->waiting_index);
	r->waiting_index = WAITING_NONE;
}

struct request *waiting_first(const struct waiting *q)
{
	return q->n ? q->v[0] : NULL;
}
