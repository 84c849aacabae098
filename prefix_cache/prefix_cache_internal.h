/* For the files of this room only: the cache, its counts, and the functions that keep the counts right. */
#pragma once

#include "prefix_cache/evict.h"
#include "prefix_cache/ghosts.h"
#include "prefix_cache/prefix_cache.h"
#include "prefix_cache/radix.h"

struct prefix_cache {
	struct prefix_cache_config config;
	struct pool *pages, *slots;
	struct prefix_node **page_owner; /* [n_pages] the node whose edge has the page, or NULL */
	struct prefix_node **slot_owner; /* [n_slots] the node whose state is in it, or NULL */
	uint32_t *pins;			 /* [n_slots] */
	bool *page_marks, *slot_marks;	 /* [n_pages], [n_slots] by id; true: marked */
	struct radix tree;
	struct evict evict;
	struct ghosts ghosts;
	uint64_t now; /* the time: a count of calls */
	/* Counts. A page of the tree to which a request has a reference as well is *shared*: it does not come free when
	 * its node is evicted. */
	uint64_t tree_pages, tree_slots, shared_pages;
	uint64_t evictable_pages; /* pages of unlocked nodes, but not the shared pages */
	uint64_t evictable_slots; /* slots of the tree that are not pinned */
	uint64_t n_pins;
	uint64_t evicted_pages, evicted_slots, evicted_unhit_slots;
};

/* ---- lock.c ---- */

/* Locks the node; the first lock of a node also locks its parent. */
void node_lock(struct prefix_cache *c, struct prefix_node *n);

/* Gives a lock back. When a node's last lock is given back, its parent is unlocked, too. A space without locks and
 * children is removed. */
void node_unlock(struct prefix_cache *c, struct prefix_node *n);

/* Notes for the order of eviction that the node is used now. */
void node_touch(struct prefix_cache *c, struct prefix_node *n);

/* ---- tree.c: changes of the tree and of all that depends on it ---- */

/* Splits n's edge after k pages. Returns the node of the first k; NULL when out of memory. */
struct prefix_node *tree_split(struct prefix_cache *c, struct prefix_node *n,
			       uint32_t k) MUST_CHECK;

/* Removes the node's checkpoint. Returns its slot; the tree's reference to it passes to the caller. */
uint32_t tree_detach(struct prefix_cache *c, struct prefix_node *n);

/* Removes an unlocked leaf and puts its pages and slot back. Its space goes too if that is empty and unlocked then. */
void tree_drop_leaf(struct prefix_cache *c, struct prefix_node *n);
