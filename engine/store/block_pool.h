/*
 * Memory of the caller's from which blocks (block.h) are made: memory that the device accesses directly, so that a copy
 * between it and a block needs no other copy on the way. Blocks for which the pool has no room, or of another size, are
 * made of ordinary memory, so there is no limit.
 *
 *     a region      | page | page | page |            | state | state |
 *
 * In each region pages stand from the beginning on, and states from the end on. A block takes the first free place of
 * its kind, so both stay close together, whatever share of the region each of them needs. All functions may be called
 * by any thread.
 */
#pragma once

#include <stdint.h>

#include "engine/store/block.h"

/* Makes a pool without memory; NULL when out of memory. page_bytes and state_bytes are the sizes of its blocks; 0:
 * there are none. */
struct block_pool *block_pool_new(size_t page_bytes, size_t state_bytes) MUST_CHECK;

/* No block of the pool may be left. Does nothing when p is NULL. */
void block_pool_free(struct block_pool *p);

/* Adds a region, which is borrowed until block_pool_free and aligned to 4096. -ENOMEM. */
int block_pool_add(struct block_pool *p, void *memory, size_t bytes) MUST_CHECK;

/* Makes a block with one reference, as store_block_new does, which it calls if p is NULL, or has no place for a block
 * of this size. NULL when out of memory. */
struct store_block *block_pool_take(struct block_pool *p, size_t bytes) MUST_CHECK;

/* Gives the memory of a block back to its pool. Only store_block_put calls it. */
void block_pool_give(struct block_pool *p, void *data, size_t bytes);
