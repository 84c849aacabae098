/* Changes of the tree and of all that depends on it: the owners of pages and slots, the counts of memory that can be
 * evicted, and the order of eviction. The tree has one reference in the pool to each of its pages and slots. */
#include <assert.h>

#include "prefix_cache/prefix_cache_internal.h"

uint32_t prefix_node_tokens(const struct prefix_node *n)
{
	return n->depth;
}

bool prefix_node_has_checkpoint(const struct prefix_node *n)
{
	return n->slot != POOL_NONE;
}

uint32_t prefix_node_slot(const struct prefix_node *n)
{
	return n->slot;
}

struct prefix_node *tree_split(struct prefix_cache *c, struct prefix_node *n, uint32_t k)
{
	struct prefix_node *prefix = radix_new_node(&c->tree, k);

	if (!prefix)
		return NULL;
	radix_split(&c->tree, n, k, prefix);
	for (uint32_t i = 0; i < k; i++) {
		c->page_owner[prefix->pages[i]] = prefix;
		prefix->shared += pool_refs(c->pages, prefix->pages[i]) > 1;
	}
	n->shared -= prefix->shared;
	return prefix;
}

/* Makes the tree the owner of a page of n's edge. The reference of the request that extended the tree becomes the
 * tree's. */
static void own_page(struct prefix_cache *c, struct prefix_node *n, uint32_t page)
{
	assert(!c->page_owner[page] && pool_refs(c->pages, page));
	c->page_owner[page] = n;
	c->tree_pages++;
	if (pool_refs(c->pages, page) > 1) {
		n->shared++;
		c->shared_pages++;
	}
}

/* Follows the tree below `node` as far as it has these pages with this origin. Returns the last node that was reached,
 * or `node` if there is none. *ret_found gets the number of pages found, *ret_in_edge how many of them are in the last
 * node's edge. */
static struct prefix_node *follow(const struct prefix_cache *c, struct prefix_node *node,
				  const int32_t *tokens, uint32_t n_pages, uint64_t origin,
				  uint32_t *ret_found, uint32_t *ret_in_edge)
{
	const struct radix *t = &c->tree;

	*ret_found = *ret_in_edge = 0;
	while (*ret_found < n_pages) {
		const int32_t *at = tokens + (size_t)*ret_found * t->page_tokens;
		struct prefix_node *child =
			radix_find(t, node, at, radix_page_hash(t, radix_content(node), at),
				   origin);

		if (!child)
			break;
		*ret_in_edge = radix_equal_pages(t, child, at, n_pages - *ret_found);
		*ret_found += *ret_in_edge;
		node = child;
		if (*ret_in_edge < child->n_pages)
			break;
	}
	return node;
}

/* Returns whether pages of this origin can be added to the node's edge: the node is a leaf of the same origin that only
 * the caller has locked; there is no state at its end, and none was evicted there. */
static bool can_grow_in_place(const struct prefix_node *n, uint64_t origin)
{
	return n->n_pages && n->locks == 1 && !n->n_children && n->slot == POOL_NONE &&
	       !n->state_evicted && n->origin == origin;
}

struct prefix_node *prefix_cache_extend(struct prefix_cache *c, struct prefix_node *node,
					const int32_t *tokens, uint32_t *pages, uint32_t n_pages,
					uint64_t origin)
{
	struct radix *t = &c->tree;
	struct prefix_node *at, *end, *leaf = NULL;
	uint32_t found, in_edge, left;

	assert(node->locks);
	if ((c->config.refuse_decoded && origin != PREFIX_PREFILLED) ||
	    (uint64_t)node->depth + (uint64_t)n_pages * t->page_tokens > UINT32_MAX)
		return NULL;
	if (!n_pages)
		return node;
	c->now++;
	at = follow(c, node, tokens, n_pages, origin, &found, &in_edge);
	left = n_pages - found;
	tokens += (size_t)found * t->page_tokens;

	/* All steps that can fail come before the first change. */
	if (!found && can_grow_in_place(node, origin)) {
		if (radix_append(t, node, tokens, pages, n_pages))
			return NULL;
		for (uint32_t i = 0; i < n_pages; i++)
			own_page(c, node, pages[i]);
		node_touch(c, node);
		return node;
	}
	if (left) {
		leaf = radix_new_node(t, left);
		if (!leaf)
			return NULL;
	}
	end = at;
	if (found && in_edge < at->n_pages) {
		end = tree_split(c, at, in_edge);
		if (!end) {
			radix_free_node(leaf);
			return NULL;
		}
	}

	/* The tree had the pages from `node` to `end` already, so the caller's pages are put back. */
	for (struct prefix_node *n = end; n != node; n = n->parent) {
		uint32_t first = (radix_start(t, n) - node->depth) / t->page_tokens;

		for (uint32_t i = 0; i < n->n_pages; i++) {
			prefix_cache_put_page(c, pages[first + i]);
			pages[first + i] = n->pages[i];
		}
	}
	if (leaf) {
		radix_hang(t, end, leaf, tokens, pages + found, left, origin);
		for (uint32_t i = 0; i < left; i++)
			own_page(c, leaf, pages[found + i]);
		c->evictable_pages += leaf->n_pages - leaf->shared; /* until it is locked below */
		evict_rescore(c, end);
		end = leaf;
	}
	node_lock(c, end);
	node_touch(c, end);
	node_unlock(c, node);
	return end;
}

void prefix_cache_checkpoint(struct prefix_cache *c, struct prefix_node *n, uint32_t slot,
			     enum prefix_checkpoint kind)
{
	assert(n->locks && n->n_pages && c->config.state_tokens &&
	       n->depth % c->config.state_tokens == 0);
	assert(slot < c->config.n_slots && pool_refs(c->slots, slot) && !c->slot_owner[slot]);
	c->now++;
	if (n->slot != POOL_NONE) {
		n->slot_common = true;
		n->kind = MIN(n->kind, kind);
		evict_rescore(c, n);
		pool_put(c->slots, slot);
		return;
	}
	n->slot = slot;
	n->kind = kind;
	n->slot_hits = 0;
	n->slot_common = n->state_evicted = false;
	c->slot_owner[slot] = n;
	c->tree_slots++;
	if (c->pins[slot])
		node_lock(c, n);
	else
		c->evictable_slots++;
	node_touch(c, n);
}

uint32_t tree_detach(struct prefix_cache *c, struct prefix_node *n)
{
	uint32_t slot = n->slot;

	assert(slot != POOL_NONE);
	c->slot_owner[slot] = NULL;
	c->slot_marks[slot] = false;
	n->slot = POOL_NONE;
	c->tree_slots--;
	if (c->pins[slot])
		node_unlock(c, n);
	else
		c->evictable_slots--;
	evict_place(c, n);
	return slot;
}

void prefix_cache_retire(struct prefix_cache *c, struct prefix_node *n)
{
	if (n->slot == POOL_NONE || n->kind != PREFIX_CHECKPOINT_DECODE || n->slot_hits ||
	    n->slot_common)
		return;
	assert(n->locks);
	c->now++;
	pool_put(c->slots, tree_detach(c, n));
}

void tree_drop_leaf(struct prefix_cache *c, struct prefix_node *n)
{
	struct prefix_node *parent = n->parent;

	assert(!n->locks && !n->n_children && n->n_pages);
	if (n->slot != POOL_NONE)
		pool_put(c->slots, tree_detach(c, n));
	evict_leave(c, n);
	c->evictable_pages -= n->n_pages - n->shared;
	c->shared_pages -= n->shared;
	c->tree_pages -= n->n_pages;
	for (uint32_t i = 0; i < n->n_pages; i++) {
		c->page_owner[n->pages[i]] = NULL;
		c->page_marks[n->pages[i]] = false;
		pool_put(c->pages, n->pages[i]);
	}
	radix_remove(&c->tree, n);
	if (parent->parent == &c->tree.root && !parent->n_children && !parent->locks)
		radix_remove(&c->tree, parent);
	else
		evict_rescore(c, parent);
}
