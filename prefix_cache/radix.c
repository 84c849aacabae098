#include "prefix_cache/radix.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- hashing ---- */

/* Both halves of a 128-bit product: the mixing step of wyhash (Wang Yi, public domain). */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t radix_page_hash(const struct radix *t, uint64_t before, const int32_t *tokens)
{
	const unsigned char *at = (const unsigned char *)tokens;
	size_t left = (size_t)t->page_tokens * sizeof(*tokens);
	uint64_t h = before ^ t->key[0], words[2];

	for (; left >= sizeof(words); left -= sizeof(words), at += sizeof(words)) {
		memcpy(words, at, sizeof(words));
		h = mix(words[0] ^ t->key[1], words[1] ^ h);
	}
	if (left) {
		words[0] = words[1] = 0;
		memcpy(words, at, left);
		h = mix(words[0] ^ t->key[1], words[1] ^ h);
	}
	return mix(h ^ t->key[1], t->key[0] ^ UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t radix_space_content(const struct radix *t, const struct prefix_space *s)
{
	return mix(mix(s->id[0] ^ t->key[1], s->id[1] ^ t->key[0]) ^ t->key[0], t->key[1]);
}

uint64_t radix_content(const struct prefix_node *n)
{
	return n->n_pages ? n->hashes[n->n_pages - 1] : n->content;
}

/* What a node is found by. */
static uint64_t node_hash(const struct prefix_node *n)
{
	return n->n_pages ? n->hashes[0] : n->content;
}

/* ---- the map ---- */

static struct prefix_node **bucket(const struct radix *t, uint64_t hash)
{
	return &t->buckets[hash & t->bucket_mask];
}

static size_t page_bytes(const struct radix *t)
{
	return (size_t)t->page_tokens * sizeof(int32_t);
}

static bool begins_with(const struct radix *t, const struct prefix_node *n,
			const struct prefix_node *parent, const int32_t *tokens, uint64_t hash)
{
	return n->parent == parent && n->n_pages && n->hashes[0] == hash &&
	       !memcmp(n->tokens, tokens, page_bytes(t));
}

static bool variants(const struct radix *t, const struct prefix_node *a,
		     const struct prefix_node *b)
{
	return b->n_pages && begins_with(t, a, b->parent, b->tokens, b->hashes[0]);
}

/* Youngest last, but history 0 first: see "variants" above. */
static void map_insert(struct radix *t, struct prefix_node *n)
{
	struct prefix_node **at = bucket(t, node_hash(n));

	if (n->history != PREFIX_PREFILLED)
		while (*at)
			at = &(*at)->chain;
	n->chain = *at;
	*at = n;
}

static struct prefix_node **map_place(const struct radix *t, const struct prefix_node *n)
{
	struct prefix_node **at = bucket(t, node_hash(n));

	while (*at != n)
		at = &(*at)->chain;
	return at;
}

struct prefix_node *radix_first(const struct radix *t, const struct prefix_node *parent,
				const int32_t *tokens, uint64_t hash)
{
	struct prefix_node *n = *bucket(t, hash);

	while (n && !begins_with(t, n, parent, tokens, hash))
		n = n->chain;
	return n;
}

struct prefix_node *radix_next_variant(const struct radix *t, const struct prefix_node *n)
{
	struct prefix_node *next = n->chain;

	while (next && !variants(t, next, n))
		next = next->chain;
	return next;
}

struct prefix_node *radix_find(const struct radix *t, const struct prefix_node *parent,
			       const int32_t *tokens, uint64_t hash, uint64_t history)
{
	struct prefix_node *n = radix_first(t, parent, tokens, hash);

	while (n && n->history != history)
		n = radix_next_variant(t, n);
	return n;
}

struct prefix_node *radix_find_space(const struct radix *t, const struct prefix_space *s)
{
	uint64_t content = radix_space_content(t, s);
	struct prefix_node *n = *bucket(t, content);

	while (n &&
	       !(n->parent == &t->root && n->space.id[0] == s->id[0] && n->space.id[1] == s->id[1]))
		n = n->chain;
	return n;
}

/* ---- edges ---- */

/* A block for cap pages; sets the arrays. -ENOMEM. */
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

/* There is room. */
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
	n->prev = parent->last_child;
	n->next = NULL;
	if (parent->last_child)
		parent->last_child->next = n;
	else
		parent->first_child = n;
	parent->last_child = n;
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
	map_insert(t, n);
	t->n_spaces++;
	return n;
}

void radix_hang(struct radix *t, struct prefix_node *parent, struct prefix_node *n,
		const int32_t *tokens, const uint32_t *pages, uint32_t n_pages, uint64_t history)
{
	assert(n_pages && n->cap_pages >= n_pages && !n->n_pages);
	n->depth = parent->depth;
	n->history = history;
	n->id = ++t->last_id;
	edge_push(t, n, radix_content(parent), tokens, pages, n_pages);
	link_child(parent, n);
	map_insert(t, n);
	t->n_nodes++;
}

void radix_split(struct radix *t, struct prefix_node *n, uint32_t k, struct prefix_node *prefix)
{
	struct prefix_node *parent = n->parent;
	struct prefix_node **at;

	assert(k && k < n->n_pages && prefix->cap_pages >= k);
	edge_copy(t, prefix, n, k);
	prefix->n_pages = k;
	prefix->depth = radix_start(t, n) + k * t->page_tokens;
	prefix->history = n->history;
	prefix->locks = n->locks ? 1 : 0;
	prefix->used = n->used;
	prefix->id = ++t->last_id;

	/* n's place in the map and among its siblings: the first page is as old as it was. */
	at = map_place(t, n);
	prefix->chain = n->chain;
	*at = prefix;
	prefix->parent = parent;
	prefix->prev = n->prev;
	prefix->next = n->next;
	*(n->prev ? &n->prev->next : &parent->first_child) = prefix;
	*(n->next ? &n->next->prev : &parent->last_child) = prefix;

	n->n_pages -= k;
	memmove(n->hashes, n->hashes + k, n->n_pages * sizeof(*n->hashes));
	memmove(n->tokens, n->tokens + (size_t)k * t->page_tokens, n->n_pages * page_bytes(t));
	memmove(n->pages, n->pages + k, n->n_pages * sizeof(*n->pages));
	link_child(prefix, n);
	map_insert(t, n);
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
	struct prefix_node *parent = n->parent;

	assert(!n->n_children && parent);
	*map_place(t, n) = n->chain;
	*(n->prev ? &n->prev->next : &parent->first_child) = n->next;
	*(n->next ? &n->next->prev : &parent->last_child) = n->prev;
	parent->n_children--;
	*(n->n_pages ? &t->n_nodes : &t->n_spaces) -= 1;
	radix_free_node(n);
}

struct prefix_node *radix_walk(const struct prefix_node *n)
{
	if (n->first_child)
		return n->first_child;
	while (n && !n->next)
		n = n->parent;
	return n ? n->next : NULL;
}

/* ---- the tree ---- */

int radix_init(struct radix *t, uint32_t page_tokens, uint32_t n_pages)
{
	uint64_t n_buckets = 64;

	*t = (struct radix){.page_tokens = page_tokens};
	t->root.slot = POOL_NONE;
	t->root.seat.group = EVICT_NOT;
	while (n_buckets < n_pages)
		n_buckets *= 2;
	t->buckets = calloc(n_buckets, sizeof(*t->buckets));
	if (!t->buckets)
		return -ENOMEM;
	t->bucket_mask = n_buckets - 1;
	/* Without a random source the map still works, it only can be aimed at. */
	if (getrandom(t->key, sizeof(t->key), GRND_NONBLOCK) != (ssize_t)sizeof(t->key)) {
		t->key[0] = UINT64_C(0xa0761d6478bd642f);
		t->key[1] = UINT64_C(0xe7037ed1a0b428db);
	}
	return 0;
}

void radix_release(struct radix *t)
{
	struct prefix_node *n = &t->root;

	/* Leaves first, without recursion: a path may be as long as a prompt. */
	while (t->buckets) {
		while (n->last_child)
			n = n->last_child;
		if (n == &t->root)
			break;
		n = n->parent;
		radix_remove(t, n->last_child);
	}
	free(t->buckets);
	t->buckets = NULL;
}
