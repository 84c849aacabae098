/* Locks and pins keep nodes and slots from eviction.
 *
 *     node->locks == locks of callers + 1 if its slot is pinned + number of children with locks
 *
 * So another lock on a node that is locked already changes this node alone. Below an unlocked node no node is locked:
 * all of them can be evicted, leaf by leaf. A pinned slot of the tree locks its node, because a leaf is only evicted
 * with its slot. Each pin has a reference to the slot in the pool, so that the slot is not reused when it leaves the
 * tree. */
#include <assert.h>

#include "prefix_cache/prefix_cache_internal.h"

void node_touch(struct prefix_cache *c, struct prefix_node *n)
{
	n->used = c->now;
	evict_rescore(c, n);
}

void node_lock(struct prefix_cache *c, struct prefix_node *n)
{
	for (; n && n->locks++ == 0; n = n->parent) {
		c->evictable_pages -= n->n_pages - n->shared;
		node_touch(c, n);
	}
}

void node_unlock(struct prefix_cache *c, struct prefix_node *n)
{
	assert(n->locks);
	while (n && --n->locks == 0) {
		struct prefix_node *parent = n->parent;

		c->evictable_pages += n->n_pages - n->shared;
		if (parent == &c->tree.root && !n->n_children)
			radix_remove(&c->tree, n);
		else
			node_touch(c, n);
		n = parent;
	}
}

void prefix_cache_lock(struct prefix_cache *c, struct prefix_node *n)
{
	assert(n->locks);
	c->now++;
	node_lock(c, n);
}

void prefix_cache_unlock(struct prefix_cache *c, struct prefix_node *n)
{
	c->now++;
	node_unlock(c, n);
}

void prefix_cache_pin(struct prefix_cache *c, uint32_t slot)
{
	struct prefix_node *n;

	assert(slot < c->config.n_slots);
	n = c->slot_owner[slot];
	pool_ref(c->slots, slot);
	c->n_pins++;
	if (c->pins[slot]++ || !n)
		return;
	c->evictable_slots--;
	node_lock(c, n);
	evict_place(c, n);
}

void prefix_cache_unpin(struct prefix_cache *c, uint32_t slot)
{
	struct prefix_node *n;

	assert(slot < c->config.n_slots && c->pins[slot]);
	n = c->slot_owner[slot];
	pool_put(c->slots, slot);
	c->n_pins--;
	if (--c->pins[slot] || !n)
		return;
	c->evictable_slots++;
	node_unlock(c, n);
	evict_place(c, n);
}
