/*
 * A binary heap of nodes, the one to evict first on top. Each node knows its place, so that one in the middle can be
 * taken out or moved. The keys lie in the heap itself: comparing touches no node. Room for
 * all that can be in it is allocated at the start.
 *
 *     entries[i].key is not before entries[(i - 1) / 2].key;  *seat of entries[i].node == i
 */
#ifndef PREFIX_CACHE_HEAP_H
#define PREFIX_CACHE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct prefix_node;

/* By rising score; see heap.c for what decides among equal ones. */
struct heap_key {
	double score;
	uint64_t used; /* the cache's time */
	uint64_t id;
	uint32_t depth;
	bool hit;
};

bool heap_key_before(const struct heap_key *a, const struct heap_key *b);

struct heap {
	struct heap_entry {
		struct heap_key key;
		struct prefix_node *node; /* borrowed */
	} * entries;			  /* owned */
	uint32_t n, cap;
};

/* -ENOMEM. */
int heap_init(struct heap *h, uint32_t cap) MUST_CHECK;
void heap_release(struct heap *h);

/* Keep node->seat.place up to date. */
void heap_push(struct heap *h, struct prefix_node *n, const struct heap_key *key);
void heap_remove(struct heap *h, struct prefix_node *n);
void heap_change(struct heap *h, struct prefix_node *n, const struct heap_key *key);

#endif
