/*
 * The bytes of one item in host memory. References are counted, because the store's index, its queue to the disk and
 * the caller share a block; the block is freed with its last reference. The bytes are written once, before the block is
 * put into the store or handed out by it.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "base/macros.h"

struct store_block {
	void *data; /* [bytes], aligned to 4096 */
	size_t bytes;
	atomic_uint refs;
};

/* Makes a block with one reference; NULL when out of memory. */
struct store_block *store_block_new(size_t bytes) MUST_CHECK;

/* Adds a reference, and returns the block. */
struct store_block *store_block_ref(struct store_block *b);

/* Gives a reference back. Does nothing when b is NULL. */
void store_block_put(struct store_block *b);
