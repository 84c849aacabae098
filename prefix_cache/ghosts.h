/* Ghosts: hashes of pages that were evicted lately. Each covers all tokens of a path up to the end of the page. They
 * tell whether the first page that a prompt misses was evicted. Every page of an evicted node is added, not only the
 * first, because another request may compute the beginning again.
 *
 * They stand in a hash table. Its buckets are lines of eight hashes, the newest first; a full line forgets its oldest
 * hash. A line is as large as a CPU's cache line, so adding a hash touches only one cache line: the eviction of a long
 * prompt adds many hundreds of hashes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum { GHOSTS_LINE = 8 };

struct ghosts {
	uint64_t (*lines)[GHOSTS_LINE]; /* [n_lines] owned; 0: no hash */
	uint64_t n_lines;		/* a power of two */
};

/* Allocates a table that suits a cache of n_pages pages. -ENOMEM. */
int ghosts_init(struct ghosts *g, uint32_t n_pages) MUST_CHECK;
void ghosts_release(struct ghosts *g);

void ghosts_add(struct ghosts *g, uint64_t hash);
bool ghosts_have(const struct ghosts *g, uint64_t hash);
void ghosts_clear(struct ghosts *g);
