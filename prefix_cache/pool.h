/* A pool of numbered things (KV pages, state slots, seats). It handles their ids, never their bytes.
 *
 * Every id is free or has a reference count. pool_get returns the smallest free id (unless pool_shuffle was called), so
 * that the ids with references stay dense and a plan can be reproduced.
 *
 *     free + used == size, always; an id that is free cannot be put (assert: a bug in the caller)
 *
 * The free ids are a tree of bits, 64 children a node, so that get and put touch at most one word on each level (4
 * levels for 16 million ids) and never allocate. A pool of 4096 has two levels:
 *
 *     levels[1]   1 word     bit w: word w of levels[0] is not 0
 *     levels[0]  64 words    bit i of word w: id 64 w + i is free (after pool_shuffle: another id)
 *
 * Only one thread may use a pool. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

struct pool;

#define POOL_NONE UINT32_MAX

/* Makes a pool in which every id is free; NULL: out of memory. A pool of size 0 never has a free id. */
struct pool *pool_new(uint32_t size) MUST_CHECK;
void pool_free(struct pool *p);

/* Takes the smallest free id (pool_shuffle changes the order), which gets one reference. POOL_NONE: none is free. */
uint32_t pool_get(struct pool *p) MUST_CHECK;

/* pool_ref adds a reference to an id that has one already; pool_put takes one away. An id without references is
 * free. */
void pool_ref(struct pool *p, uint32_t id);
void pool_put(struct pool *p, uint32_t id);

uint32_t pool_refs(const struct pool *p, uint32_t id);
uint32_t pool_available(const struct pool *p);
uint32_t pool_size(const struct pool *p);

/* For tests that check that no result depends on the ids that a request gets: draws an order of all ids from the seed.
 * From then on pool_get returns the free id that comes first in this order. To be called only while every id is
 * free. */
void pool_shuffle(struct pool *p, uint64_t seed);
