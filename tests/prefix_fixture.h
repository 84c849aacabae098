/* Helpers for the tests of prefix_cache/ that write each call down: short ways to say "a request publishes these
 * pages". Tokens are given as text, one character a token. */
#pragma once

#include <assert.h>
#include <string.h>

#include "prefix_cache/prefix_cache.h"
#include "tests/tap.h"

enum { TEXT_MAX = 256 };

struct text {
	int32_t tokens[TEXT_MAX];
	uint32_t n;
};

static inline struct text text(const char *s)
{
	struct text t = {.n = (uint32_t)strlen(s)};

	assert(t.n <= TEXT_MAX);
	for (uint32_t i = 0; i < t.n; i++)
		t.tokens[i] = s[i];
	return t;
}

/* Checks the cache's invariants, then frees the cache. */
static inline void free_cache(void *cache)
{
	prefix_cache_check(cache);
	prefix_cache_free(cache);
}

/* Returns a cache that is freed when its TEST has ended. */
static inline struct prefix_cache *new_cache(uint32_t page_tokens, uint32_t state_tokens,
					     uint32_t n_pages, uint32_t n_slots)
{
	struct prefix_cache_config config = {
		.page_tokens = page_tokens,
		.state_tokens = state_tokens,
		.n_pages = n_pages,
		.n_slots = n_slots,
		.page_bytes = 10,
		.slot_bytes = 100,
	};
	struct prefix_cache *c = prefix_cache_new(&config);

	assert(c);
	after_test(free_cache, c);
	return c;
}

static inline struct prefix_match match_in(const struct prefix_cache *c, uint64_t space,
					   const char *s)
{
	struct text t = text(s);
	struct prefix_key key = {.space = {{0, space}},
				 .tokens = t.tokens,
				 .n_tokens = t.n,
				 .origin_any = true};
	struct prefix_match m;

	prefix_cache_match(c, &key, &m);
	return m;
}

static inline struct prefix_match match(const struct prefix_cache *c, const char *s)
{
	return match_in(c, 0, s);
}

/* Matches `s` in a space and locks the node at the end of the match (prefix_cache_use). Returns this node. Its state,
 * if any, is not pinned. The ids of the matched pages go to `pages` unless that is NULL. */
static inline struct prefix_node *use_in(struct prefix_cache *c, uint64_t space, const char *s,
					 uint32_t *pages)
{
	struct text t = text(s);
	struct prefix_key key = {.space = {{0, space}},
				 .tokens = t.tokens,
				 .n_tokens = t.n,
				 .origin_any = true};
	uint32_t ids[TEXT_MAX];
	struct prefix_match m;
	struct prefix_node *n;

	prefix_cache_match(c, &key, &m);
	n = prefix_cache_use(c, &key, &m, pages ? pages : ids);
	assert(n);
	if (m.slot != POOL_NONE)
		prefix_cache_unpin(c, m.slot);
	return n;
}

static inline struct prefix_node *use(struct prefix_cache *c, const char *s)
{
	return use_in(c, 0, s, NULL);
}

/* A request uses the cached part of `s` and ends. */
static inline void hit(struct prefix_cache *c, const char *s)
{
	prefix_cache_unlock(c, use(c, s));
}

/* Returns the node of the space itself, locked. There a path begins. */
static inline struct prefix_node *begin(struct prefix_cache *c)
{
	return use(c, "");
}

/* Takes pages for `s` (whole pages) and hands them to the cache, below n. Returns the node at their end; the lock moves
 * from n to that node. The ids of the pages in the cache go to `pages` unless that is NULL. */
static inline struct prefix_node *grow_as(struct prefix_cache *c, struct prefix_node *n,
					  const char *s, uint64_t origin, uint32_t page_tokens,
					  uint32_t *pages)
{
	struct text t = text(s);
	uint32_t ids[TEXT_MAX], n_pages = t.n / page_tokens;

	for (uint32_t i = 0; i < n_pages; i++) {
		ids[i] = prefix_cache_take_page(c);
		assert(ids[i] != POOL_NONE);
	}
	n = prefix_cache_extend(c, n, t.tokens, ids, n_pages, origin);
	assert(n);
	if (pages)
		memcpy(pages, ids, n_pages * sizeof(*ids));
	return n;
}

/* Does the work of grow_as for pages of two tokens that were prefilled. */
static inline struct prefix_node *grow(struct prefix_cache *c, struct prefix_node *n, const char *s)
{
	return grow_as(c, n, s, PREFIX_PREFILLED, 2, NULL);
}

/* Gives the cache a state at the node's end. */
static inline struct prefix_node *keep(struct prefix_cache *c, struct prefix_node *n,
				       enum prefix_checkpoint kind)
{
	uint32_t slot = prefix_cache_take_slot(c);

	assert(slot != POOL_NONE);
	prefix_cache_checkpoint(c, n, slot, kind);
	return n;
}

/* A request computes `s` and ends, and leaves a state at the end of `s`. Two tokens a page. */
static inline void leave(struct prefix_cache *c, const char *s, enum prefix_checkpoint kind)
{
	prefix_cache_unlock(c, keep(c, grow(c, begin(c), s), kind));
}

static inline struct prefix_stats stats(const struct prefix_cache *c)
{
	struct prefix_stats s;

	prefix_cache_stats(c, &s);
	return s;
}
