/* A pool of numbered things (KV pages, state slots, seats). It handles their ids, never their bytes.
 *
 * Every id is free or has a reference count. pool_get returns the smallest free id, so that ids in use stay dense and
 * a plan can be reproduced.
 *
 *     free + used == size, always; an id that is free cannot be put (assert: a bug in the caller)
 *
 * The free ids are a tree of bits, 64 children a node, so that get and put touch at most one word on each level (4
 * levels for 16 million ids) and never allocate. A pool of 4096 has two levels:
 *
 *     levels[1]   1 word     bit w: word w of levels[0] is not 0
 *     levels[0]  64 words    bit i of word w: number 64 w + i is free
 *
 * One thread. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

struct pool;

#define POOL_NONE UINT32_MAX

/* New, with every id free; NULL: out of memory. A pool of size 0 never has a free id. */
struct pool *pool_new(uint32_t size) MUST_CHECK;
void pool_free(struct pool *p);

/* The smallest free id, which gets one reference; POOL_NONE: none is free. */
uint32_t pool_get(struct pool *p) MUST_CHECK;

/* Adds a reference to an id in use, and takes one away. Without references the id is free. */
void pool_ref(struct pool *p, uint32_t id);
void pool_put(struct pool *p, uint32_t id);

uint32_t pool_refs(const struct pool *p, uint32_t id);
uint32_t pool_available(const struct pool *p);
uint32_t pool_size(const struct pool *p);

/* For tests, in which no result may depend on the ids that a request gets: draws a permutation from the seed; from
 * then on "the smallest" id is the first one in it. Only while every id is free. */
void pool_shuffle(struct pool *p, uint64_t seed);
