/*
 * The bytes of one item in host memory. References are counted, because the store's index, its queue to the disk and
 * the caller share a block; the block is freed with its last reference. The bytes are written once, before the block is
 * put into the store or handed out by it.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "base/macros.h"

enum { STORE_BLOCK_ALIGNMENT = 4096 };

struct store_block {
	void *data; /* [bytes], aligned to STORE_BLOCK_ALIGNMENT */
	size_t bytes;
	struct block_pool *pool; /* owns data (block_pool.h); NULL: the block does */
	atomic_uint refs;
};

/* Makes a block with one reference; NULL when out of memory. */
struct store_block *store_block_new(size_t bytes) MUST_CHECK;

/* Adds a reference, and returns the block. */
struct store_block *store_block_ref(struct store_block *b);

/* Gives a reference back. Does nothing when b is NULL. */
void store_block_put(struct store_block *b);
