#include "prefix_cache/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "prefix_cache/radix.h"

/* Equal scores: what was never hit, then what is shallow, then what was not used for longest. The node's number makes the
 * order complete; it counts nodes and does not depend on the ids of pages and slots. */
bool heap_key_before(const struct heap_key *a, const struct heap_key *b)
{
	if (a->score != b->score)
		return a->score < b->score;
	if (a->hit != b->hit)
		return b->hit;
	if (a->depth != b->depth)
		return a->depth < b->depth;
	if (a->used != b->used)
		return a->used < b->used;
	return a->id < b->id;
}

int heap_init(struct heap *h, uint32_t cap)
{
	*h = (struct heap){.cap = cap};
	h->entries = calloc(MAX(cap, 1u), sizeof(*h->entries));
	return h->entries ? 0 : -ENOMEM;
}

void heap_release(struct heap *h)
{
	free(h->entries);
	*h = (struct heap){0};
}

static void put(struct heap *h, uint32_t i, struct heap_entry e)
{
	h->entries[i] = e;
	e.node->seat.place = i;
}

static void rise(struct heap *h, uint32_t i, struct heap_entry e)
{
	while (i && heap_key_before(&e.key, &h->entries[(i - 1) / 2].key)) {
		put(h, i, h->entries[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put(h, i, e);
}

/* Places e at i or where it belongs above or below. */
static void settle(struct heap *h, uint32_t i, struct heap_entry e)
{
	for (;;) {
		uint64_t child = (uint64_t)i * 2 + 1;

		if (child + 1 < h->n &&
		    heap_key_before(&h->entries[child + 1].key, &h->entries[child].key))
			child++;
		if (child >= h->n || !heap_key_before(&h->entries[child].key, &e.key))
			break;
		put(h, i, h->entries[child]);
		i = (uint32_t)child;
	}
	rise(h, i, e);
}

void heap_push(struct heap *h, struct prefix_node *n, const struct heap_key *key)
{
	assert(h->n < h->cap);
	rise(h, h->n++, (struct heap_entry){*key, n});
}

void heap_remove(struct heap *h, struct prefix_node *n)
{
	uint32_t i = n->seat.place;

	assert(i < h->n && h->entries[i].node == n);
	h->n--;
	if (i < h->n)
		settle(h, i, h->entries[h->n]);
}

void heap_change(struct heap *h, struct prefix_node *n, const struct heap_key *key)
{
	assert(n->seat.place < h->n && h->entries[n->seat.place].node == n);
	settle(h, n->seat.place, (struct heap_entry){*key, n});
}
