/*
 * A pool of numbered things (KV pages, state slots): ids only, never bytes.
 *
 * Every id is free or has a reference count; the smallest free id is handed out first, so that
 * what is used stays dense and a plan can be reproduced. Get and put are O(log n).
 *
 *     free + used == size, always; a count never goes below 0 (assert: a bug in the caller).
 */
#ifndef PREFIX_CACHE_POOL_H
#define PREFIX_CACHE_POOL_H

#include <stdint.h>

#include "base/macros.h"

struct pool;

#define POOL_NONE UINT32_MAX

/* New; NULL when out of memory. */
struct pool *pool_new(uint32_t size);
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
 * sequence gets). Only while nothing is in use. */
void pool_shuffle(struct pool *p, uint64_t seed);

#endif
