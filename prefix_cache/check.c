/* Asserts the invariants of the tree, of locks, heaps and pools. Counts that other files keep are counted again from
 * scratch. The check takes O(nodes * children + pages), so it is for tests. */
#undef NDEBUG /* assertions stay on in release builds: the callers of this file want them */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "prefix_cache/prefix_cache_internal.h"

struct count {
	uint64_t nodes, spaces, pages, slots, shared, evictable_pages, evictable_slots, seated;
	uint8_t *page_seen, *slot_seen;
};

static bool is_root(const struct prefix_cache *c, const struct prefix_node *n)
{
	return n == &c->tree.root;
}

static void check_edge(const struct prefix_cache *c, const struct prefix_node *n, struct count *k)
{
	const struct radix *t = &c->tree;
	uint64_t hash = radix_content(n->parent);
	uint32_t shared = 0;

	assert(n->cap_pages >= n->n_pages &&
	       n->depth == n->parent->depth + n->n_pages * t->page_tokens);
	assert(n->id && n->id <= t->last_id);
	assert(!(c->config.refuse_decoded && n->origin));
	for (uint32_t i = 0; i < n->n_pages; i++) {
		uint32_t page = n->pages[i];

		hash = radix_page_hash(t, hash, n->tokens + (size_t)i * t->page_tokens);
		assert(n->hashes[i] == hash);
		assert(page < c->config.n_pages && !k->page_seen[page]);
		k->page_seen[page] = 1;
		assert(c->page_owner[page] == n && pool_refs(c->pages, page) >= 1);
		shared += pool_refs(c->pages, page) > 1;
	}
	assert(shared == n->shared);
	k->shared += shared;
	k->pages += n->n_pages;
	if (!n->locks)
		k->evictable_pages += n->n_pages - shared;
}

static void check_slot(const struct prefix_cache *c, const struct prefix_node *n, struct count *k)
{
	if (n->slot == POOL_NONE)
		return;
	assert(n->n_pages && c->config.state_tokens && n->depth % c->config.state_tokens == 0);
	assert(n->slot < c->config.n_slots && !k->slot_seen[n->slot] &&
	       c->slot_owner[n->slot] == n);
	assert(!n->state_evicted && pool_refs(c->slots, n->slot) == 1 + c->pins[n->slot]);
	k->slot_seen[n->slot] = 1;
	k->slots++;
	k->evictable_slots += !c->pins[n->slot];
}

static void check_place(const struct prefix_cache *c, const struct prefix_node *n, struct count *k)
{
	const struct evict_heap *h;

	assert(n->seat.group == evict_group_of(c, n));
	if (n->seat.group == EVICT_NOT)
		return;
	h = &c->evict.heaps[n->seat.group];
	assert(n->seat.place < h->n && h->v[n->seat.place].node == n);
	assert(h->v[n->seat.place].key.used == n->used &&
	       h->v[n->seat.place].key.depth ==
		       (n->seat.group == EVICT_STATE ? n->depth : UINT32_MAX));
	k->seated++;
}

static const struct prefix_node *child_at(const struct list *sibling)
{
	return container_of(sibling, const struct prefix_node, sibling);
}

/* Checks links and locks, and that no two children have the same origin and equal tokens in their first pages. */
static void check_children(const struct prefix_cache *c, const struct prefix_node *n)
{
	const struct list *before = &n->children;
	uint32_t n_children = 0, locked = 0;
	bool pinned = n->slot != POOL_NONE && c->pins[n->slot];

	for (const struct list *at = before->next; at != &n->children; before = at, at = at->next) {
		const struct prefix_node *child = child_at(at);

		assert(child->parent == n && at->prev == before);
		assert(is_root(c, n) == !child->n_pages);
		for (const struct list *after = at->next; after != &n->children && child->n_pages;
		     after = after->next)
			assert(child_at(after)->origin != child->origin ||
			       memcmp(child_at(after)->tokens, child->tokens,
				      c->tree.page_tokens * sizeof(*child->tokens)));
		n_children++;
		locked += child->locks > 0;
	}
	assert(n->children.prev == before && n->n_children == n_children);
	assert(n->locks >= locked + pinned);
	if (is_root(c, n))
		assert(n->locks == locked);
}

/* Checks that every node is found through the map, and that variants are in the order in which a match tries them
 * (radix.h). */
static void check_map(const struct prefix_cache *c)
{
	const struct radix *t = &c->tree;
	uint64_t n = 0;

	for (uint64_t b = 0; b < t->nodes.n_buckets; b++)
		for (const struct map_node *at = t->nodes.buckets[b]; at; at = at->next)
			n++;
	assert(n == t->nodes.n && n == t->n_nodes + t->n_spaces);
	for (const struct prefix_node *at = radix_walk(&t->root); at; at = radix_walk(at)) {
		const struct prefix_node *next;

		if (!at->n_pages) {
			assert(radix_find_space(t, &at->space) == at);
			continue;
		}
		assert(radix_find(t, at->parent, at->tokens, at->hashes[0], at->origin) == at);
		next = radix_next_variant(t, at);
		assert(!next || next->origin);
		if (!next || !at->origin)
			continue;
		for (const struct list *older = &at->sibling; older != &next->sibling;
		     older = older->next)
			assert(older != &at->parent->children);
	}
}

static void check_heaps(const struct prefix_cache *c, uint64_t seated)
{
	for (int g = 0; g < EVICT_GROUPS; g++) {
		const struct evict_heap *h = &c->evict.heaps[g];

		assert(h->n <= h->cap && h->n <= seated);
		seated -= h->n;
		for (uint32_t i = 0; i < h->n; i++) {
			assert(h->v[i].node->seat.group == (enum evict_group)g);
			assert(!i || !evict_key_before(&h->v[i].key, &h->v[(i - 1) / 2].key));
		}
	}
	assert(seated == 0);
}

static void check_pools(const struct prefix_cache *c, const struct count *k)
{
	uint64_t used_pages = 0, used_slots = 0, pins = 0;

	for (uint32_t i = 0; i < c->config.n_pages; i++) {
		assert(k->page_seen[i] || (!c->page_owner[i] && !c->page_marks[i]));
		used_pages += pool_refs(c->pages, i) > 0;
	}
	for (uint32_t i = 0; i < c->config.n_slots; i++) {
		assert(k->slot_seen[i] || (!c->slot_owner[i] && !c->slot_marks[i]));
		assert(pool_refs(c->slots, i) >= c->pins[i]);
		used_slots += pool_refs(c->slots, i) > 0;
		pins += c->pins[i];
	}
	assert(pins == c->n_pins);
	assert(used_pages + pool_available(c->pages) == c->config.n_pages &&
	       used_pages >= k->pages);
	assert(used_slots + pool_available(c->slots) == c->config.n_slots &&
	       used_slots >= k->slots);
	if (c->config.budget_bytes)
		assert(used_pages * c->config.page_bytes + used_slots * c->config.slot_bytes <=
		       c->config.budget_bytes);
}

void prefix_cache_check(const struct prefix_cache *c)
{
	struct count k = {.page_seen = calloc(c->config.n_pages + (size_t)1, 1),
			  .slot_seen = calloc(c->config.n_slots + (size_t)1, 1)};

	assert(k.page_seen && k.slot_seen);
	check_children(c, &c->tree.root);
	for (const struct prefix_node *n = radix_walk(&c->tree.root); n; n = radix_walk(n)) {
		check_children(c, n);
		check_slot(c, n, &k);
		check_place(c, n, &k);
		if (n->n_pages) {
			k.nodes++;
			check_edge(c, n, &k);
		} else {
			k.spaces++;
			assert(n->depth == 0 && n->slot == POOL_NONE &&
			       (n->n_children || n->locks));
		}
	}
	assert(k.nodes == c->tree.n_nodes && k.spaces == c->tree.n_spaces);
	assert(k.pages == c->tree_pages && k.slots == c->tree_slots && k.shared == c->shared_pages);
	assert(k.evictable_pages == c->evictable_pages && k.evictable_slots == c->evictable_slots);
	check_map(c);
	check_heaps(c, k.seated);
	check_pools(c, &k);
	free(k.page_seen);
	free(k.slot_seen);
}
