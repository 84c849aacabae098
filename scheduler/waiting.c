#include "scheduler/waiting.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "scheduler/request.h"

int waiting_reserve(struct waiting *q, size_t n)
{
	enum { FIRST_ROOM = 64 };
	size_t room = MAX(q->room, (size_t)FIRST_ROOM);
	struct request **grown;

	if (n <= q->room)
		return 0;
	while (room < n)
		room *= 2;
	grown = realloc(q->v, room * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	q->v = grown;
	q->room = room;
	return 0;
}

void waiting_free(struct waiting *q)
{
	free(q->v);
	*q = (struct waiting){0};
}

static bool before(const struct request *a, const struct request *b)
{
	return a->priority != b->priority ? a->priority < b->priority : a->id < b->id;
}

static void put(struct waiting *q, size_t i, struct request *r)
{
	q->v[i] = r;
	r->waiting_index = i;
}

/* Moves r, whose place is i, to where it belongs. */
static void settle(struct waiting *q, size_t i, struct request *r)
{
	for (; i > 0 && before(r, q->v[(i - 1) / 2]); i = (i - 1) / 2)
		put(q, i, q->v[(i - 1) / 2]);
	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < q->n && before(q->v[child + 1], q->v[child]))
			child++;
		if (child >= q->n || !before(q->v[child], r))
			break;
		put(q, i, q->v[child]);
		i = child;
	}
	put(q, i, r);
}

void waiting_insert(struct waiting *q, struct request *r)
{
	assert(q->n < q->room && r->waiting_index == WAITING_NONE);
	settle(q, q->n++, r);
}

void waiting_remove(struct waiting *q, struct request *r)
{
	size_t i = r->waiting_index;
	struct request *last;

	if (i == WAITING_NONE)
		return;
	r->waiting_index = WAITING_NONE;
	last = q->v[--q->n];
	if (last != r)
		settle(q, i, last);
}

struct request *waiting_first(const struct waiting *q)
{
	return q->n ? q->v[0] : NULL;
}
