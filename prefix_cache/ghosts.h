/*
 * What was evicted lately: the hashes of evicted pages (of everything up to their ends), so that a miss can be
 * told from something that was never there. All pages of a node and not just its first: somebody else may have
 * brought the beginning back meanwhile. Bounded: the oldest is forgotten.
 */
#ifndef PREFIX_CACHE_GHOSTS_H
#define PREFIX_CACHE_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct ghosts {
	struct ghost {
		uint64_t hash;
		uint32_t next; /* of its bucket, as index + 1; 0: the last */
	} * ring;	       /* [cap] owned */
	uint32_t *buckets;     /* [cap] index + 1 */
	uint32_t cap, n;       /* cap: a power of two */
	uint32_t oldest;       /* the next to be overwritten, once n == cap */
};

/* -ENOMEM. */
int ghosts_init(struct ghosts *g, uint32_t n_pages) MUST_CHECK;
void ghosts_release(struct ghosts *g);

void ghosts_add(struct ghosts *g, uint64_t hash);
bool ghosts_have(const struct ghosts *g, uint64_t hash);
void ghosts_clear(struct ghosts *g);

#endif
