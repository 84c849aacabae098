/* What the files of this room share: the cache, its counts, and who may change them. */
#ifndef PREFIX_CACHE_PREFIX_CACHE_INTERNAL_H
#define PREFIX_CACHE_PREFIX_CACHE_INTERNAL_H

#include "prefix_cache/evict.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/prefix_cache.h"
#include "prefix_cache/radix.h"

struct prefix_cache {
	struct prefix_cache_config config;
	struct pool *pages, *slots;
	struct prefix_node **page_owner; /* [n_pages] the node that has it, or NULL; borrowed */
	struct prefix_node **slot_owner; /* [n_slots] */
	uint32_t *pins;			 /* [n_slots] */
	bool *page_marks, *slot_marks;	 /* [n_pages], [n_slots]; of what is the tree's */
	struct radix tree;
	struct evict evict;
	struct ghosts ghosts;
	uint64_t now; /* counts calls */
	/* Kept up to date by tree.c, lock.c and prefix_cache.c. A page that a request has a reference to as well (shared) comes
	 * free for nobody when its node goes. */
	uint64_t tree_pages, tree_slots, shared_pages;
	uint64_t evictable_pages; /* of unlocked nodes, not shared */
	uint64_t evictable_slots; /* not pinned */
	uint64_t n_pins;
	uint64_t evicted_pages, evicted_slots, evicted_unhit_slots;
};

/* ---- lock.c ---- */

/* A lock on the node, and one on each node above until one that had some. */
void node_lock(struct prefix_cache *c, struct prefix_node *n);

/* The reverse. A space that nobody needs any more is gone afterwards. */
void node_unlock(struct prefix_cache *c, struct prefix_node *n);

/* Used now: for the order of eviction. */
void node_touch(struct prefix_cache *c, struct prefix_node *n);

/* ---- tree.c: changes of the tree with all that hangs on it ---- */

/* An edge splits after k pages; returns the prefix, or NULL when out of memory. */
struct prefix_node *tree_split(struct prefix_cache *c, struct prefix_node *n,
			       uint32_t k) MUST_CHECK;

/* The state leaves the node; the slot is the caller's, with one reference. */
uint32_t tree_detach(struct prefix_cache *c, struct prefix_node *n);

/* An unlocked leaf goes, its pages and slot back to the pools. */
void tree_drop_leaf(struct prefix_cache *c, struct prefix_node *n);

#endif
