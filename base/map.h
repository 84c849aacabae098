/* Hash maps through nodes inside their elements. The map compares hashes, the caller compares keys:
 *
 *     for (struct map_node *n = map_first(m, hash); n; n = map_next(n))
 *             if (container_of(n, struct thing, node)->key == key)
 *                     ...
 *
 * Hashes must be spread evenly in their low bits, like results of base/mix.h or consecutive numbers. A map never owns
 * its elements. Only map_init and map_reserve allocate.
 *
 *     buckets[hash & (n_buckets - 1)] is the first node of a chain */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct map_node {
	struct map_node *next; /* the next node of its bucket */
	uint64_t hash;
};

struct map {
	struct map_node **buckets; /* owned */
	uint64_t n_buckets;	   /* a power of two */
	uint64_t n;
};

/* Makes *m an empty map with at least n_buckets buckets; choose about the expected number of nodes. -ENOMEM: *m is all
 * zeros, which map_drain and map_release accept as an empty map. */
int map_init(struct map *m, uint64_t n_buckets) MUST_CHECK;

/* Frees the buckets. Nodes that are still in the map stay the caller's. */
void map_release(struct map *m);

/* To be called before an insertion into a map that may grow beyond the expected size: doubles the number of buckets if
 * there are at least as many nodes as buckets. Nodes with equal hashes may change their order. -ENOMEM: the map is
 * unchanged. */
int map_reserve(struct map *m) MUST_CHECK;

/* Add a node that is in no map: map_insert before all nodes with this hash, map_append after them. */
void map_insert(struct map *m, struct map_node *node, uint64_t hash);
void map_append(struct map *m, struct map_node *node, uint64_t hash);

void map_remove(struct map *m, struct map_node *node);

/* Puts `by`, which is in no map, in the place of `node`, with the hash of `node`. */
void map_replace(struct map *m, struct map_node *node, struct map_node *by);

/* Takes every node out and hands it to `each`. */
void map_drain(struct map *m, void (*each)(void *arg, struct map_node *node), void *arg);

static inline struct map_node *map_skip(struct map_node *node, uint64_t hash)
{
	while (node && node->hash != hash)
		node = node->next;
	return node;
}

/* map_first returns the first node with this hash, map_next the next one with the hash of `node`. NULL: there is
 * none. */
static inline struct map_node *map_first(const struct map *m, uint64_t hash)
{
	return map_skip(m->buckets[hash & (m->n_buckets - 1)], hash);
}

static inline struct map_node *map_next(const struct map_node *node)
{
	return map_skip(node->next, node->hash);
}
