#include "engine/store/block.h"

#include <stdlib.h>

enum { ALIGNMENT = 4096 };

struct store_block *store_block_new(size_t bytes)
{
	struct store_block *b = malloc(sizeof(*b));

	if (!b)
		return NULL;
	if (posix_memalign(&b->data, ALIGNMENT, MAX(bytes, (size_t)1))) {
		free(b);
		return NULL;
	}
	b->bytes = bytes;
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
	free(b->data);
	free(b);
}
