#include "engine/store/block.h"

#include <stdlib.h>

#include "engine/store/block_pool.h"

struct store_block *store_block_new(size_t bytes)
{
	struct store_block *b = malloc(sizeof(*b));

	if (!b)
		return NULL;
	if (posix_memalign(&b->data, STORE_BLOCK_ALIGNMENT, MAX(bytes, (size_t)1))) {
		free(b);
		return NULL;
	}
	b->bytes = bytes;
	b->pool = NULL;
	atomic_init(&b->refs, 1);
	return b;
}

struct store_block *store_block_ref(struct store_block *b)
{
	atomic_fetch_add(&b->refs, 1);
	return b;
}

void store_block_put(struct store_block *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) > 1)
		return;
	if (b->pool)
		block_pool_give(b->pool, b->data, b->bytes);
	else
		free(b->data);
	free(b);
}
