#include "prefix_cache/radix.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mix.h"

/* ---- hashing ---- */

uint64_t radix_page_hash(const struct radix *t, uint64_t before, const int32_t *tokens)
{
	const unsigned char *at = (const unsigned char *)tokens;
	size_t left = (size_t)t->page_tokens * sizeof(*tokens);
	uint64_t h = before ^ t->key[0], words[2];

	for (; left >= sizeof(words); left -= sizeof(words), at += sizeof(words)) {
		memcpy(words, at, sizeof(words));
		h = mix_product(words[0] ^ t->key[1], words[1] ^ h);
	}
	if (left) {
		words[0] = words[1] = 0;
		memcpy(words, at, left);
		h = mix_product(words[0] ^ t->key[1], words[1] ^ h);
	}
	return mix_product(h ^ t->key[1], t->key[0] ^ MIX_GOLDEN);
}

uint64_t radix_space_content(const struct radix *t, const struct prefix_space *s)
{
	return mix_product(mix_product(s->id[0] ^ t->key[1], s->id[1] ^ t->key[0]) ^ t->key[0],
			   t->key[1]);
}

uint64_t radix_content(const struct prefix_node *n)
{
	return n->n_pages ? n->hashes[n->n_pages - 1] : n->content;
}

/* Returns the hash by which the map finds the node. */
static uint64_t node_hash(const struct prefix_node *n)
{
	return n->n_pages ? n->hashes[0] : n->content;
}

/* ---- the map ---- */

static struct prefix_node *node_of(struct map_node *n)
{
	return n ? container_of(n, struct prefix_node, found) : NULL;
}

static size_t page_bytes(const struct radix *t)
{
	return (size_t)t->page_tokens * sizeof(int32_t);
}

static bool begins_with(const struct radix *t, const struct prefix_node *n,
			const struct prefix_node *parent, const int32_t *tokens)
{
	return n->parent == parent && n->n_pages && !memcmp(n->tokens, tokens, page_bytes(t));
}

/* Adds n in the order of variants (radix.h): the youngest last, but origin 0 first. */
static void add_to_map(struct radix *t, struct prefix_node *n)
{
	(n->origin == PREFIX_PREFILLED ? map_insert : map_append)(&t->nodes, &n->found,
								  node_hash(n));
}

struct prefix_node *radix_first(const struct radix *t, const struct prefix_node *parent,
				const int32_t *tokens, uint64_t hash)
{
	struct prefix_node *n = node_of(map_first(&t->nodes, hash));

	while (n && !begins_with(t, n, parent, tokens))
		n = node_of(map_next(&n->found));
	return n;
}

struct prefix_node *radix_next_variant(const struct radix *t, const struct prefix_node *n)
{
	struct prefix_node *next = node_of(map_next(&n->found));

	while (next && !(n->n_pages && begins_with(t, next, n->parent, n->tokens)))
		next = node_of(map_next(&next->found));
	return next;
}

struct prefix_node *radix_find(const struct radix *t, const struct prefix_node *parent,
			       const int32_t *tokens, uint64_t hash, uint64_t origin)
{
	struct prefix_node *n = radix_first(t, parent, tokens, hash);

	while (n && n->origin != origin)
		n = radix_next_variant(t, n);
	return n;
}

struct prefix_node *radix_find_space(const struct radix *t, const struct prefix_space *s)
{
	struct prefix_node *n = node_of(map_first(&t->nodes, radix_space_content(t, s)));

	while (n &&
	       !(n->parent == &t->root && n->space.id[0] == s->id[0] && n->space.id[1] == s->id[1]))
		n = node_of(map_next(&n->found));
	return n;
}

/* ---- edges ---- */

/* Allocates the block of an edge with room for cap pages, and points its arrays into it. -ENOMEM. */
static int edge_alloc(const struct radix *t, uint32_t cap, struct prefix_node *ret)
{
	size_t n_tokens, bytes, n_ids;
	char *block;

	if (__builtin_mul_overflow((size_t)cap, (size_t)t->page_tokens, &n_tokens) ||
	    __builtin_mul_overflow((size_t)cap, sizeof(uint64_t) + sizeof(uint32_t), &n_ids) ||
	    __builtin_mul_overflow(n_tokens, sizeof(int32_t), &bytes) ||
	    __builtin_add_overflow(bytes, n_ids, &bytes))
		return -ENOMEM;
	block = malloc(bytes);
	if (!block)
		return -ENOMEM;
	ret->hashes = (uint64_t *)block;
	ret->tokens = (int32_t *)(block + cap * sizeof(uint64_t));
	ret->pages = (uint32_t *)(ret->tokens + n_tokens);
	ret->cap_pages = cap;
	return 0;
}

static void edge_copy(const struct radix *t, struct prefix_node *to, const struct prefix_node *from,
		      uint32_t n_pages)
{
	memcpy(to->hashes, from->hashes, n_pages * sizeof(*to->hashes));
	memcpy(to->tokens, from->tokens, n_pages * page_bytes(t));
	memcpy(to->pages, from->pages, n_pages * sizeof(*to->pages));
}

/* Adds pages to the end of n's edge, which must have room for them. before: the hash of the path up to that end. */
static void edge_push(const struct radix *t, struct prefix_node *n, uint64_t before,
		      const int32_t *tokens, const uint32_t *pages, uint32_t n_pages)
{
	for (uint32_t i = 0; i < n_pages; i++) {
		before = radix_page_hash(t, before, tokens + (size_t)i * t->page_tokens);
		n->hashes[n->n_pages + i] = before;
	}
	memcpy(n->tokens + (size_t)n->n_pages * t->page_tokens, tokens, n_pages * page_bytes(t));
	memcpy(n->pages + n->n_pages, pages, n_pages * sizeof(*pages));
	n->n_pages += n_pages;
	n->depth += n_pages * t->page_tokens;
}

uint32_t radix_equal_pages(const struct radix *t, const struct prefix_node *n,
			   const int32_t *tokens, uint32_t max)
{
	uint32_t k = MIN(n->n_pages, max), i = 0;

	if (!memcmp(n->tokens, tokens, k * page_bytes(t)))
		return k;
	while (!memcmp(n->tokens + (size_t)i * t->page_tokens, tokens + (size_t)i * t->page_tokens,
		       page_bytes(t)))
		i++;
	return i;
}

/* ---- nodes ---- */

struct prefix_node *radix_new_node(const struct radix *t, uint32_t n_pages)
{
	struct prefix_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->slot = POOL_NONE;
	n->seat.group = EVICT_NOT;
	list_init(&n->children);
	list_init(&n->sibling);
	if (n_pages && edge_alloc(t, n_pages, n)) {
		free(n);
		return NULL;
	}
	return n;
}

void radix_free_node(struct prefix_node *n)
{
	if (!n)
		return;
	free(n->hashes);
	free(n);
}

static void link_child(struct prefix_node *parent, struct prefix_node *n)
{
	n->parent = parent;
	list_append(&parent->children, &n->sibling);
	parent->n_children++;
}

struct prefix_node *radix_add_space(struct radix *t, const struct prefix_space *s)
{
	struct prefix_node *n = radix_new_node(t, 0);

	if (!n)
		return NULL;
	n->space = *s;
	n->content = radix_space_content(t, s);
	link_child(&t->root, n);
	add_to_map(t, n);
	t->n_spaces++;
	return n;
}

void radix_hang(struct radix *t, struct prefix_node *parent, struct prefix_node *n,
		const int32_t *tokens, const uint32_t *pages, uint32_t n_pages, uint64_t origin)
{
	assert(n_pages && n->cap_pages >= n_pages && !n->n_pages);
	n->depth = parent->depth;
	n->origin = origin;
	n->id = ++t->last_id;
	edge_push(t, n, radix_content(parent), tokens, pages, n_pages);
	link_child(parent, n);
	add_to_map(t, n);
	t->n_nodes++;
}

void radix_split(struct radix *t, struct prefix_node *n, uint32_t k, struct prefix_node *prefix)
{
	assert(k && k < n->n_pages && prefix->cap_pages >= k);
	edge_copy(t, prefix, n, k);
	prefix->n_pages = k;
	prefix->depth = radix_start(t, n) + k * t->page_tokens;
	prefix->origin = n->origin;
	prefix->locks = n->locks ? 1 : 0;
	prefix->used = n->used;
	prefix->id = ++t->last_id;

	/* The prefix takes n's place in the map and among the siblings, because it begins with the same page as n
	 * did. */
	map_replace(&t->nodes, &n->found, &prefix->found);
	prefix->parent = n->parent;
	list_append(&n->sibling, &prefix->sibling);
	list_remove(&n->sibling);

	n->n_pages -= k;
	memmove(n->hashes, n->hashes + k, n->n_pages * sizeof(*n->hashes));
	memmove(n->tokens, n->tokens + (size_t)k * t->page_tokens, n->n_pages * page_bytes(t));
	memmove(n->pages, n->pages + k, n->n_pages * sizeof(*n->pages));
	link_child(prefix, n);
	add_to_map(t, n);
	t->n_nodes++;
}

int radix_append(struct radix *t, struct prefix_node *n, const int32_t *tokens,
		 const uint32_t *pages, uint32_t n_pages)
{
	assert(!n->n_children && n->n_pages);
	if (n->cap_pages - n->n_pages < n_pages) {
		uint64_t want = (uint64_t)n->n_pages + MAX(n->n_pages, n_pages);
		struct prefix_node larger = *n;

		if (want > UINT32_MAX || edge_alloc(t, (uint32_t)want, &larger))
			return -ENOMEM;
		edge_copy(t, &larger, n, n->n_pages);
		free(n->hashes);
		n->hashes = larger.hashes;
		n->tokens = larger.tokens;
		n->pages = larger.pages;
		n->cap_pages = larger.cap_pages;
	}
	edge_push(t, n, radix_content(n), tokens, pages, n_pages);
	return 0;
}

void radix_remove(struct radix *t, struct prefix_node *n)
{
	assert(!n->n_children && n->parent);
	map_remove(&t->nodes, &n->found);
	list_remove(&n->sibling);
	n->parent->n_children--;
	*(n->n_pages ? &t->n_nodes : &t->n_spaces) -= 1;
	radix_free_node(n);
}

struct prefix_node *radix_walk(const struct prefix_node *n)
{
	if (n->n_children)
		return list_first(&n->children, struct prefix_node, sibling);
	while (n->parent && n->sibling.next == &n->parent->children)
		n = n->parent;
	return n->parent ? container_of(n->sibling.next, struct prefix_node, sibling) : NULL;
}

struct prefix_node *radix_youngest_leaf(struct prefix_node *n)
{
	while (n->n_children)
		n = container_of(n->children.prev, struct prefix_node, sibling);
	return n;
}

/* ---- the tree ---- */

int radix_init(struct radix *t, uint32_t page_tokens, uint32_t n_pages)
{
	*t = (struct radix){.page_tokens = page_tokens};
	t->root.slot = POOL_NONE;
	t->root.seat.group = EVICT_NOT;
	list_init(&t->root.children);
	if (map_init(&t->nodes, n_pages) < 0)
		return -ENOMEM;
	/* Without a random source the tree works, but clients could make hashes collide. */
	if (getrandom(t->key, sizeof(t->key), GRND_NONBLOCK) != (ssize_t)sizeof(t->key)) {
		t->key[0] = UINT64_C(0xa0761d6478bd642f);
		t->key[1] = UINT64_C(0xe7037ed1a0b428db);
	}
	return 0;
}

void radix_release(struct radix *t)
{
	struct prefix_node *n = &t->root, *parent;

	if (!t->nodes.buckets)
		return;
	/* Removes leaves first, without recursion, because a path may have as many nodes as a prompt has pages. */
	while ((n = radix_youngest_leaf(n)) != &t->root) {
		parent = n->parent;
		radix_remove(t, n);
		n = parent;
	}
	map_release(&t->nodes);
}
