/* An arena: many small allocations with one lifetime, which are freed together. It takes memory from the system in
 * blocks of doubling size, up to 1 MiB, or as large as an allocation needs. Alignment is that of max_align_t. Not
 * thread safe. */
#pragma once

#include <stddef.h>

struct arena_block;

struct arena {
	struct arena_block *head; /* newest block, owned */
	size_t used, max;	  /* bytes handed out, rounded up; the most that `used` may be */
};

void arena_init(struct arena *a, size_t max);
void arena_release(struct arena *a);

/* Return zeroed memory, of size bytes or of n * size, which lives as long as the arena. NULL: out of memory, or `used`
 * would exceed max. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t n, size_t size);

/* Return a copy of the text, or of its first len bytes, with a 0 behind it. NULL: as for arena_alloc. */
char *arena_strndup(struct arena *a, const char *text, size_t len);
char *arena_strdup(struct arena *a, const char *text);
