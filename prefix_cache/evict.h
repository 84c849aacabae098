/* The order of eviction. A node that can be evicted, or can lose its slot, is in one of three groups:
 *
 *     EVICT_BARE    an unlocked leaf without a state: eviction frees its pages and removes it
 *     EVICT_LEAF    an unlocked leaf with a state: eviction frees its pages and its slot, and removes it
 *     EVICT_STATE   an inner or a locked node with a state that is not pinned: eviction frees its slot
 *
 * (A page to which a request has a reference too comes free when the request gives it back.) When pages are short a
 * node of BARE or LEAF is evicted, when slots are short one of LEAF or STATE, and when the budget is used up one of any
 * group: the one with the lowest score.
 *
 * A node is worth the work that it saves for each byte that it takes, times the chance that it will be used again.
 * That chance falls with the time t since the last use, as e^(-t / reuse_time), where reuse_time is a moving mean of
 * the times after which leaves were used again. The logarithm of this worth falls equally fast for all nodes, so nodes
 * can be compared by a score that does not change with time:
 *
 *     score = time of last use + reuse_time * log(expected uses * tokens to compute again / bytes that come free)
 *
 * So of two conversations that were used at about the same time, the one that is worth more for its bytes is kept
 * longer. And of two that are worth the same, the one that was used last.
 *
 * In a model with states a request cannot resume at a BARE leaf, so the score of each BARE leaf is lower than that of
 * every node in the other groups. Among the BARE leaves of such a model, those that were never hit are evicted first;
 * of two that are alike in this, the one that was unused for longer.
 *
 * A node's score is computed again when it is used, when it changes its group, when it gets or loses a child, and when
 * a second checkpoint is put on it. Other changes reach the scores late, among them:
 *
 *  - When a checkpoint is evicted, more tokens would have to be computed again without the next checkpoints below it,
 *    so the scores of their nodes should grow. Each of these scores is corrected when its node comes up for eviction:
 *    if it grew, the node goes back into its heap. (At most 16 scores of a group are corrected for one eviction.)
 *  - When a checkpoint is added, the scores of the nodes with the next checkpoints below it should shrink. They shrink
 *    only when they are computed again for another reason.
 *
 * So an eviction costs O(log n) for n nodes, a bounded number of walks up to the nearest checkpoint, and the freeing of
 * the node's pages. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct prefix_cache;
struct prefix_node;

enum evict_group { EVICT_BARE, EVICT_LEAF, EVICT_STATE, EVICT_GROUPS, EVICT_NOT = EVICT_GROUPS };

/* A node's place in the order of eviction. Of nodes with equal scores one that was never hit goes first, then the
 * shallower one (unlocked leaves count as the deepest), then the one that was unused for longer, then the one with the
 * lower id. The order does not depend on the ids of pages and slots. */
struct evict_key {
	double score;
	uint64_t used; /* time of the last use */
	uint64_t id;
	uint32_t depth;
	bool hit;
};

bool evict_key_before(const struct evict_key *a, const struct evict_key *b);

/* The place of a node in the heaps of struct evict; group EVICT_NOT: it is in none. */
struct evict_seat {
	enum evict_group group;
	uint32_t place; /* heaps[group].v[place].node is the node */
};

/* The nodes of a group: a heap (base/heap.h), the node to evict first on top. The keys lie in the heap itself, so that
 * comparing reads no node. Memory for every node that can be in the group is allocated at the start. */
struct evict_heap {
	struct evict_entry {
		struct evict_key key;
		struct prefix_node *node; /* borrowed */
	} * v;				  /* owned */
	uint32_t n, cap;
};

struct evict {
	struct evict_heap heaps[EVICT_GROUPS];
	double reuse_time; /* in calls, like all times of the cache */
};

/* Allocates the heaps of a cache of n_pages pages and n_slots slots. -ENOMEM. */
int evict_init(struct evict *e, uint32_t n_pages, uint32_t n_slots) MUST_CHECK;
void evict_release(struct evict *e);

/* Notes that a request resumes at n: if n is an unlocked leaf, the time since its last use counts in reuse_time. To be
 * called before n is locked and touched (node_touch). */
void evict_note_return(struct prefix_cache *c, const struct prefix_node *n);

/* Returns the group that the node should be in now; EVICT_NOT: none. */
enum evict_group evict_group_of(const struct prefix_cache *c, const struct prefix_node *n);

/* evict_place and evict_rescore are called after a change of locks, pins, slot or children. Both put the node into the
 * group where it should be now; evict_rescore also gives it its new key if it stays in its group. evict_leave takes the
 * node out of its group, before it is freed. */
void evict_place(struct prefix_cache *c, struct prefix_node *n);
void evict_rescore(struct prefix_cache *c, struct prefix_node *n);
void evict_leave(struct prefix_cache *c, struct prefix_node *n);

/* Evicts until n_pages pages and n_slots slots are free and the budget allows to take them. False: that cannot be
 * reached, and nothing was evicted. */
bool evict_make_room(struct prefix_cache *c, uint32_t n_pages, uint32_t n_slots) MUST_CHECK;
