/* An arena: many small allocations with one lifetime, which are freed together. Each request has one. Memory comes in
 * blocks that double; alignment is that of max_align_t. Not thread safe. */
#pragma once

#include <stddef.h>

struct arena_block;

struct arena {
	struct arena_block *head; /* newest block, owned */
	size_t used, max;	  /* bytes handed out, and their limit */
};

void arena_init(struct arena *a, size_t max);
void arena_release(struct arena *a);

/* Zeroed memory that lives as long as the arena; NULL: out of memory or past max. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t n, size_t size);

/* A copy of len bytes with a 0 behind them. */
char *arena_strndup(struct arena *a, const char *text, size_t len);
char *arena_strdup(struct arena *a, const char *text);
