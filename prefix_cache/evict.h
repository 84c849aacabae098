/*
 * Who goes first when memory is short. Every node that has something to give stands in one of three groups:
 *
 *     EVICT_BARE   an unlocked leaf without a state: goes with its pages
 *     EVICT_LEAF   an unlocked leaf with a state: goes with pages and slot
 *     EVICT_STATE  an inner or a locked node with a state that no step is about to read: loses the slot
 *
 * For want of a page BARE and LEAF help, for want of a slot LEAF and STATE, and all three for the budget. The lowest score
 * goes. What we want to keep is what saves most work for its bytes, times the chance that it is still wanted; and that
 * fades with the time nobody wanted it, as e^(-t / reuse_time), where reuse_time is the mean time after which leaves that
 * were hit came back. The logarithm of that product falls for all alike as time goes by, so that a score can stand still:
 *
 *     score = time of last use + reuse_time * log(likely reuse * tokens to compute again / bytes that come free)
 *
 * A conversation that came back within its usual time outlasts one that did not, however long that one is; of two that were
 * used at about the same time the one that is worth more for its bytes stays.
 *
 * In a model with states nothing can be resumed at a BARE leaf: they go first, the longest unused of them.
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

#include "base/macros.h"

struct prefix_cache;
struct prefix_node;

enum evict_group { EVICT_BARE, EVICT_LEAF, EVICT_STATE, EVICT_GROUPS, EVICT_NOT = EVICT_GROUPS };

/* What a node is worth. Of nodes with equal scores goes first what was never hit, then what is shallow, then what was not
 * used for longest. The node's number makes the order complete; it counts nodes and does not depend on the ids of pages and
 * slots. */
struct evict_key {
	double score;
	uint64_t used; /* the cache's time */
	uint64_t id;
	uint32_t depth;
	bool hit;
};

bool evict_key_before(const struct evict_key *a, const struct evict_key *b);

/* A node's place. */
struct evict_seat {
	enum evict_group group;
	uint32_t place; /* in the heap of its group: v[place].node is the node */
};

/* A group: a heap (base/heap.h) of nodes, the one to evict first on top. The keys lie in the heap itself, so that comparing
 * touches no node. Room for all nodes that can be in it is allocated at the start. */
struct evict_heap {
	struct evict_entry {
		struct evict_key key;
		struct prefix_node *node; /* borrowed */
	} * v;				  /* owned */
	uint32_t n, cap;
};

struct evict {
	struct evict_heap heaps[EVICT_GROUPS];
	double reuse_time; /* in the cache's time */
};

/* -ENOMEM. */
int evict_init(struct evict *e, uint32_t n_pages, uint32_t n_slots) MUST_CHECK;
void evict_release(struct evict *e);

/* Somebody comes back to n, which is not locked and touched yet. */
void evict_note_return(struct prefix_cache *c, const struct prefix_node *n);

/* Where the node belongs now, and what it is worth. */
enum evict_group evict_group_of(const struct prefix_cache *c, const struct prefix_node *n);
void evict_key_of(const struct prefix_cache *c, const struct prefix_node *n, struct evict_key *ret);

/* After locks, pins, slot or children changed: puts the node where it belongs. evict_rescore: also when it
 * stays in its group; evict_leave: before the node goes. */
void evict_place(struct prefix_cache *c, struct prefix_node *n);
void evict_rescore(struct prefix_cache *c, struct prefix_node *n);
void evict_leave(struct prefix_cache *c, struct prefix_node *n);

/* So many pages and slots free, and within the budget with them. False, and nothing changed, when that
 * cannot be had. */
bool evict_make_room(struct prefix_cache *c, uint32_t n_pages, uint32_t n_slots) MUST_CHECK;

#endif
