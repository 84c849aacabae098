/*
 * What was evicted lately: the hashes of evicted pages (of everything up to their ends), so that a miss can be
 * told from something that was never there. All pages of a node and not just its first: somebody else may have
 * brought the beginning back meanwhile.
 *
 * A table of cache lines, eight hashes each, the newest first; one more and the oldest of its line is forgotten. An
 * eviction of a long prompt adds many hundreds in the middle of a plan: each touches one line, and none waits for
 * another's.
 */
#ifndef PREFIX_CACHE_GHOSTS_H
#define PREFIX_CACHE_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum { GHOSTS_LINE = 8 };

struct ghosts {
	uint64_t (*lines)[GHOSTS_LINE]; /* [n_lines] owned; 0: none */
	uint64_t n_lines;		/* a power of two */
};

/* -ENOMEM. */
int ghosts_init(struct ghosts *g, uint32_t n_pages) MUST_CHECK;
void ghosts_release(struct ghosts *g);

void ghosts_add(struct ghosts *g, uint64_t hash);
bool ghosts_have(const struct ghosts *g, uint64_t hash);
void ghosts_clear(struct ghosts *g);

#endif
