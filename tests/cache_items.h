/* Items to put into a store: a path of pages and states whose tokens, keys and bytes follow from a number. */
#ifndef TESTS_CACHE_ITEMS_H
#define TESTS_CACHE_ITEMS_H

#include <stdlib.h>
#include <string.h>

#include "engine/store/key.h"
#include "engine/store/store.h"

enum { ITEM_TOKENS = 4, ITEM_PAGE_BYTES = 3000, ITEM_STATE_BYTES = 20000 };

/* Page or state number `i` (0, 1, ...) of path `path`. */
struct item {
	struct tier_item item;
	struct content_key parent;
	uint32_t depth;
	int32_t tokens[ITEM_TOKENS];
};

static inline void item_make(struct item *ret, uint32_t path, uint32_t i, enum tier_kind kind)
{
	const uint64_t space[2] = {0};
	struct content_key key = {0}, parent = {0};

	if (content_key_root(space, &key) < 0)
		abort();
	for (uint32_t k = 0; k <= i; k++) {
		parent = key;
		for (uint32_t t = 0; t < ITEM_TOKENS; t++)
			ret->tokens[t] = (int32_t)(path * 1000 + k * ITEM_TOKENS + t);
		if (content_key_next(&parent, ret->tokens, ITEM_TOKENS, &key) < 0)
			abort();
	}
	ret->item = (struct tier_item){.key = key, .kind = kind};
	ret->parent = parent;
	ret->depth = (i + 1) * ITEM_TOKENS;
}

static inline size_t item_bytes(const struct item *it)
{
	return it->item.kind == TIER_PAGE ? ITEM_PAGE_BYTES : ITEM_STATE_BYTES;
}

static inline uint8_t item_byte(const struct item *it, size_t at)
{
	uint64_t h = (it->item.key.v[0] + (uint64_t)it->item.kind + at / 8) * 0x9e3779b97f4a7c15u;

	h ^= h >> 29;
	return (uint8_t)(h >> at % 8 * 8);
}

static inline struct store_block *item_block(const struct item *it)
{
	struct store_block *b = store_block_new(item_bytes(it));

	if (!b)
		abort();
	for (size_t i = 0; i < b->bytes; i++)
		((uint8_t *)b->data)[i] = item_byte(it, i);
	return b;
}

static inline bool item_right(const struct item *it, const struct store_block *b)
{
	if (!b || b->bytes != item_bytes(it))
		return false;
	for (size_t i = 0; i < b->bytes; i++)
		if (((const uint8_t *)b->data)[i] != item_byte(it, i))
			return false;
	return true;
}

static inline int item_put(struct store *s, const struct item *it)
{
	const struct store_put put = {.item = it->item,
				      .parent = it->parent,
				      .depth = it->depth,
				      .tokens = it->item.kind == TIER_PAGE ? it->tokens : NULL,
				      .block = item_block(it)};

	return store_put(s, &put);
}

#endif
