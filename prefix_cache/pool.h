/*
 * A pool of numbered things (KV pages, state slots, seats): ids only, never bytes.
 *
 * Every id is free or has a reference count; the smallest free id is handed out first, so that
 * what is used stays dense and a plan can be reproduced.
 *
 *     free + used == size, always; a count never goes below 0 (assert: a bug in the caller).
 *
 * The free ids are a tree of bits, 64 children a node, so that get and put touch one word a level
 * (4 levels for 16 million ids) and never allocate. For size 4096 there are two:
 *
 *     levels[1]   1 word     bit w: word w of levels[0] is not 0
 *     levels[0]  64 words    bit i of word w: number 64 w + i is free
 *
 * One thread.
 */
#ifndef PREFIX_CACHE_POOL_H
#define PREFIX_CACHE_POOL_H

#include <stdint.h>

#include "base/macros.h"

struct pool;

#define POOL_NONE UINT32_MAX

/* New, everything free; NULL when out of memory. A pool of size 0 is valid and always empty. */
struct pool *pool_new(uint32_t size) MUST_CHECK;
void pool_free(struct pool *p);

/* The smallest free id with one reference, or POOL_NONE. */
uint32_t pool_get(struct pool *p) MUST_CHECK;

/* One more / one less reference; the last one frees the id. */
void pool_ref(struct pool *p, uint32_t id);
void pool_put(struct pool *p, uint32_t id);

uint32_t pool_refs(const struct pool *p, uint32_t id);
uint32_t pool_available(const struct pool *p);
uint32_t pool_size(const struct pool *p);

/* Renames the ids by a permutation drawn from seed (tests: results must not depend on which id a
 * sequence gets). From here on "smallest" means the order of that permutation. Only while nothing
 * is in use. */
void pool_shuffle(struct pool *p, uint64_t seed);

#endif
