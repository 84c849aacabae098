/*
 * Who goes first when memory is short. Every node that has something to give stands in one of three groups:
 *
 *     EVICT_BARE   an unlocked leaf without a state: goes with its pages
 *     EVICT_LEAF   an unlocked leaf with a state: goes with pages and slot
 *     EVICT_STATE  an inner or a locked node with a state that no step is about to read: loses the slot
 *
 * For want of a page BARE and LEAF help, for want of a slot LEAF and STATE, and all three for the budget. The lowest score
 * goes. Scores follow GreedyDual-Size-Frequency (Cherkasova 1998, HPL-98-69):
 *
 *     score = age when last used + likely reuse * tokens to compute again / bytes that come free
 *     age   = the highest score of all that went; so what is not used grows old
 *
 * In a model with states nothing can be resumed at a BARE leaf: score 0, they go first, the longest unused of them.
 *
 * A score changes when the node is used and when it gets a child or loses one; that is seen to at once. It also grows for all
 * nodes below when a checkpoint goes. Nothing is done about that until such a node comes up: then its score is
 * computed again, and it goes back when it grew. (Should many come up together, only the first few are: an
 * eviction touches O(log n) nodes, and those of a path up to the next checkpoint.) It shrinks for all below when a
 * checkpoint comes; they keep what they had until they are used.
 */
#ifndef PREFIX_CACHE_EVICT_H
#define PREFIX_CACHE_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "prefix_cache/heap.h"

struct prefix_cache;
struct prefix_node;

enum evict_group { EVICT_BARE, EVICT_LEAF, EVICT_STATE, EVICT_GROUPS, EVICT_NOT = EVICT_GROUPS };

/* A node's place. */
struct evict_seat {
	enum evict_group group;
	uint32_t place; /* in the heap of its group */
	double age;     /* the cache's when the node was last used */
};

struct evict {
	struct heap heaps[EVICT_GROUPS];
	double age;
};

/* -ENOMEM. */
int evict_init(struct evict *e, uint32_t n_pages, uint32_t n_slots) MUST_CHECK;
void evict_release(struct evict *e);

/* Where the node belongs now, and what it is worth. */
enum evict_group evict_group_of(const struct prefix_cache *c, const struct prefix_node *n);
void evict_key(const struct prefix_cache *c, const struct prefix_node *n, struct heap_key *ret);

/* After locks, pins, slot or children changed: puts the node where it belongs. evict_rescore: also when it
 * stays in its group; evict_leave: before the node goes. */
void evict_place(struct prefix_cache *c, struct prefix_node *n);
void evict_rescore(struct prefix_cache *c, struct prefix_node *n);
void evict_leave(struct prefix_cache *c, struct prefix_node *n);

/* So many pages and slots free, and within the budget with them. False, and nothing changed, when that
 * cannot be had. */
bool evict_make_room(struct prefix_cache *c, uint32_t n_pages, uint32_t n_slots) MUST_CHECK;

#endif
