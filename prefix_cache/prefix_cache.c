#include "prefix_cache/prefix_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mix.h"
#include "prefix_cache/prefix_cache_internal.h"

struct prefix_cache *prefix_cache_new(const struct prefix_cache_config *config)
{
	struct prefix_cache *c = calloc(1, sizeof(*c));

	assert(config->page_tokens && config->state_tokens % config->page_tokens == 0);
	if (!c)
		return NULL;
	c->config = *config;
	c->pages = pool_new(config->n_pages);
	c->slots = pool_new(config->n_slots);
	c->page_owner = calloc(MAX(config->n_pages, 1u), sizeof(*c->page_owner));
	c->slot_owner = calloc(MAX(config->n_slots, 1u), sizeof(*c->slot_owner));
	c->pins = calloc(MAX(config->n_slots, 1u), sizeof(*c->pins));
	c->page_marks = calloc(MAX(config->n_pages, 1u), sizeof(*c->page_marks));
	c->slot_marks = calloc(MAX(config->n_slots, 1u), sizeof(*c->slot_marks));
	if (!c->pages || !c->slots || !c->page_owner || !c->slot_owner || !c->pins ||
	    !c->page_marks || !c->slot_marks ||
	    radix_init(&c->tree, config->page_tokens, config->n_pages) ||
	    evict_init(&c->evict, config->n_pages, config->n_slots) ||
	    ghosts_init(&c->ghosts, config->n_pages)) {
		prefix_cache_free(c);
		return NULL;
	}
	return c;
}

void prefix_cache_free(struct prefix_cache *c)
{
	if (!c)
		return;
	radix_release(&c->tree);
	evict_release(&c->evict);
	ghosts_release(&c->ghosts);
	pool_free(c->pages);
	pool_free(c->slots);
	free(c->page_owner);
	free(c->slot_owner);
	free(c->pins);
	free(c->page_marks);
	free(c->slot_marks);
	free(c);
}

struct prefix_node *prefix_cache_use(struct prefix_cache *c, const struct prefix_key *key,
				     const struct prefix_match *m, uint32_t *pages)
{
	const struct radix *t = &c->tree;
	struct prefix_node *n = m->node;

	if (!n)
		n = radix_add_space(&c->tree, &key->space);
	else if (m->n_tokens < n->depth)
		n = tree_split(c, n, (m->n_tokens - radix_start(t, n)) / t->page_tokens);
	if (!n)
		return NULL;
	assert(n->depth == m->n_tokens && (key->pages_only || n->slot == m->slot));
	c->now++;
	evict_note_return(c, n);
	node_lock(c, n);
	if (n->n_pages) {
		n->hits++;
		n->slot_hits += m->slot != POOL_NONE;
		node_touch(c, n);
	}
	if (m->slot != POOL_NONE)
		prefix_cache_pin(c, m->slot);
	for (const struct prefix_node *at = n; at->n_pages; at = at->parent) {
		uint32_t first = radix_start(t, at) / t->page_tokens;

		for (uint32_t i = 0; i < at->n_pages; i++)
			pages[first + i] = at->pages[i];
	}
	return n;
}

void prefix_cache_origins(const struct prefix_cache *c, const struct prefix_node *n,
			  uint64_t *origins)
{
	for (; n->n_pages; n = n->parent) {
		uint32_t first = radix_start(&c->tree, n) / c->tree.page_tokens;

		for (uint32_t i = 0; i < n->n_pages; i++)
			origins[first + i] = n->origin;
	}
}

/* ---- marks ---- */

static bool *mark_of(const struct prefix_cache *c, enum tier_kind kind, uint32_t id)
{
	assert(id < (kind == TIER_PAGE ? c->config.n_pages : c->config.n_slots));
	return kind == TIER_PAGE ? &c->page_marks[id] : &c->slot_marks[id];
}

void prefix_cache_mark(struct prefix_cache *c, enum tier_kind kind, uint32_t id, bool mark)
{
	bool *marked = mark_of(c, kind, id); /* checks id */

	*marked = mark && (kind == TIER_PAGE ? c->page_owner[id] : c->slot_owner[id]);
}

bool prefix_cache_marked(const struct prefix_cache *c, enum tier_kind kind, uint32_t id)
{
	return *mark_of(c, kind, id);
}

const int32_t *prefix_cache_page_tokens(const struct prefix_cache *c, uint32_t page)
{
	const struct prefix_node *n;
	uint32_t i = 0;

	assert(page < c->config.n_pages && c->page_owner[page]);
	n = c->page_owner[page];
	while (n->pages[i] != page)
		i++;
	return n->tokens + (size_t)i * c->tree.page_tokens;
}

/* ---- memory ---- */

bool prefix_cache_can_take(const struct prefix_cache *c, const struct prefix_match *beside,
			   uint64_t n_pages, uint64_t n_slots)
{
	const struct prefix_cache_config *config = &c->config;
	uint64_t evictable_pages = c->evictable_pages, evictable_slots = c->evictable_slots;
	unsigned __int128 bytes;
	struct prefix_stats s;

	if (beside && beside->node) {
		const struct prefix_node *n = beside->node;

		/* Using the match would split the last edge and lock only its beginning. */
		if (!n->locks && beside->n_tokens < n->depth) {
			uint32_t k =
				(beside->n_tokens - radix_start(&c->tree, n)) / config->page_tokens;

			for (uint32_t i = 0; i < k; i++)
				evictable_pages -= pool_refs(c->pages, n->pages[i]) == 1;
			n = n->parent;
		}
		for (; n && !n->locks; n = n->parent)
			evictable_pages -= n->n_pages - n->shared;
		if (beside->slot != POOL_NONE && !c->pins[beside->slot])
			evictable_slots--;
	}
	prefix_cache_stats(c, &s);
	if (n_pages > s.free_pages + evictable_pages || n_slots > s.free_slots + evictable_slots)
		return false;
	if (!config->budget_bytes)
		return true;
	bytes = s.used_bytes;
	bytes += (unsigned __int128)n_pages * config->page_bytes +
		 (unsigned __int128)n_slots * config->slot_bytes;
	return bytes <= config->budget_bytes +
				(unsigned __int128)evictable_pages * config->page_bytes +
				(unsigned __int128)evictable_slots * config->slot_bytes;
}

uint32_t prefix_cache_take_page(struct prefix_cache *c)
{
	return evict_make_room(c, 1, 0) ? pool_get(c->pages) : POOL_NONE;
}

uint32_t prefix_cache_take_slot(struct prefix_cache *c)
{
	return evict_make_room(c, 0, 1) ? pool_get(c->slots) : POOL_NONE;
}

/* Updates the counts when a page of n gets the first (by 1) or loses the last (by -1) reference of a request. */
static void share(struct prefix_cache *c, struct prefix_node *n, int by)
{
	n->shared += (uint32_t)by;
	c->shared_pages += (uint64_t)by;
	if (!n->locks)
		c->evictable_pages -= (uint64_t)by;
}

void prefix_cache_ref_page(struct prefix_cache *c, uint32_t page)
{
	struct prefix_node *n;

	assert(page < c->config.n_pages);
	n = c->page_owner[page];
	pool_ref(c->pages, page);
	if (n && pool_refs(c->pages, page) == 2)
		share(c, n, 1);
}

void prefix_cache_put_page(struct prefix_cache *c, uint32_t page)
{
	struct prefix_node *n;

	assert(page < c->config.n_pages);
	n = c->page_owner[page];
	/* The caller cannot give back the tree's own reference. */
	assert(!n || pool_refs(c->pages, page) > 1);
	pool_put(c->pages, page);
	if (n && pool_refs(c->pages, page) == 1)
		share(c, n, -1);
}

void prefix_cache_put_slot(struct prefix_cache *c, uint32_t slot)
{
	assert(slot < c->config.n_slots && !c->slot_owner[slot] &&
	       pool_refs(c->slots, slot) > c->pins[slot]);
	pool_put(c->slots, slot);
}

static bool in_use(const struct prefix_cache *c)
{
	return c->tree.root.locks || c->n_pins || c->shared_pages ||
	       pool_size(c->pages) - pool_available(c->pages) != c->tree_pages ||
	       pool_size(c->slots) - pool_available(c->slots) != c->tree_slots;
}

int prefix_cache_flush(struct prefix_cache *c)
{
	struct prefix_node *n;

	if (in_use(c))
		return -EBUSY;
	/* leaves first; a space goes with its last leaf */
	while ((n = radix_youngest_leaf(&c->tree.root)) != &c->tree.root)
		tree_drop_leaf(c, n);
	ghosts_clear(&c->ghosts);
	return 0;
}

int prefix_cache_shuffle(struct prefix_cache *c, uint64_t seed)
{
	if (pool_available(c->pages) != pool_size(c->pages) ||
	    pool_available(c->slots) != pool_size(c->slots))
		return -EBUSY;
	pool_shuffle(c->pages, seed);
	pool_shuffle(c->slots, seed ^ MIX_GOLDEN);
	return 0;
}

/* ---- statistics and views ---- */

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_stats *ret)
{
	uint64_t free_pages = pool_available(c->pages), free_slots = pool_available(c->slots);

	*ret = (struct prefix_stats){
		.nodes = c->tree.n_nodes,
		.spaces = c->tree.n_spaces,
		.free_pages = free_pages,
		.free_slots = free_slots,
		.tree_pages = c->tree_pages,
		.tree_slots = c->tree_slots,
		.evictable_pages = c->evictable_pages,
		.evictable_slots = c->evictable_slots,
		.used_bytes = (pool_size(c->pages) - free_pages) * c->config.page_bytes +
			      (pool_size(c->slots) - free_slots) * c->config.slot_bytes,
		.evicted_pages = c->evicted_pages,
		.evicted_slots = c->evicted_slots,
		.evicted_unhit_slots = c->evicted_unhit_slots,
	};
}

void prefix_cache_walk(const struct prefix_cache *c,
		       bool (*see)(void *arg, const struct prefix_view *v), void *arg)
{
	struct prefix_space space = {{0, 0}};
	struct prefix_view v;

	for (const struct prefix_node *n = radix_walk(&c->tree.root); n; n = radix_walk(n)) {
		if (!n->n_pages) {
			space = n->space;
			continue;
		}
		v = (struct prefix_view){
			.id = n->id,
			.parent = n->parent->id,
			.depth = n->depth,
			.tokens = n->tokens,
			.pages = n->pages,
			.n_tokens = n->n_pages * c->config.page_tokens,
			.n_pages = n->n_pages,
			.slot = n->slot,
			.hits = n->hits,
			.age = c->now - n->used,
			.locks = n->locks,
			.origin = n->origin,
			.kind = n->kind,
			.space = space,
		};
		if (!see(arg, &v))
			return;
	}
}
