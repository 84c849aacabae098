#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

enum { FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20 };

struct arena_block {
	struct arena_block *next;
	size_t size, used;
	alignas(max_align_t) char data[];
};

void arena_init(struct arena *a, size_t max)
{
	*a = (struct arena){.max = max};
}

void arena_release(struct arena *a)
{
	struct arena_block *b, *next;

	for (b = a->head; b; b = next) {
		next = b->next;
		free(b);
	}
	*a = (struct arena){.max = a->max};
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct arena_block *b = a->head;
	void *p;

	if (size > PTRDIFF_MAX)
		return NULL;
	size = ROUND_UP(MAX(size, (size_t)1), alignof(max_align_t));
	if (size > a->max || a->used > a->max - size)
		return NULL;
	if (!b || b->size - b->used < size) {
		size_t step = b ? MIN(b->size * 2, (size_t)LARGEST_STEP) : (size_t)FIRST_BLOCK;
		size_t n = MAX(size, step);

		b = malloc(sizeof(*b) + n);
		if (!b)
			return NULL;
		*b = (struct arena_block){.next = a->head, .size = n};
		a->head = b;
	}
	p = b->data + b->used;
	b->used += size;
	a->used += size;
	return memset(p, 0, size);
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
	if (size && n > a->max / size)
		return NULL;
	return arena_alloc(a, n * size);
}

char *arena_strndup(struct arena *a, const char *text, size_t len)
{
	char *p = arena_alloc(a, len + 1);

	if (p)
		memcpy(p, text, len);
	return p;
}

char *arena_strdup(struct arena *a, const char *text)
{
	return arena_strndup(a, text, strlen(text));
}
