/* Binary heaps over arrays of any element; the array, its length and its growth are the caller's. No element comes
 * before v[0].
 *
 *     for every i > 0: v[i] does not come before v[(i - 1) / 2]
 *
 * With n elements heap_settle, heap_add and heap_take cost O(log n). They are inline so that the compiler can inline
 * `before`, too. */
#pragma once

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { HEAP_ELEMENT_MAX = 64 };

struct heap_kind {
	size_t size; /* bytes of an element, at most HEAP_ELEMENT_MAX */
	bool (*before)(const void *a, const void *b); /* whether a comes before b */
	/* called after an element was written to v[place], even if it was there before; NULL: no call */
	void (*moved)(void *element, size_t place);
};

static inline void *heap_at(const struct heap_kind *k, void *v, size_t i)
{
	return (char *)v + i * k->size;
}

static inline void heap_put(const struct heap_kind *k, void *v, size_t i, const void *element)
{
	memcpy(heap_at(k, v, i), element, k->size);
	if (k->moved)
		k->moved(heap_at(k, v, i), i);
}

/* Moves v[i], the only one of n elements that may be out of order, to its place. */
static inline void heap_settle(const struct heap_kind *k, void *v, size_t n, size_t i)
{
	alignas(max_align_t) char held[HEAP_ELEMENT_MAX];

	assert(i < n && k->size <= sizeof(held));
	memcpy(held, heap_at(k, v, i), k->size);
	for (; i && k->before(held, heap_at(k, v, (i - 1) / 2)); i = (i - 1) / 2)
		heap_put(k, v, i, heap_at(k, v, (i - 1) / 2));
	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && k->before(heap_at(k, v, child + 1), heap_at(k, v, child)))
			child++;
		if (!k->before(heap_at(k, v, child), held))
			break;
		heap_put(k, v, i, heap_at(k, v, child));
	}
	heap_put(k, v, i, held);
}

/* Adds an element to the n elements of v, which has room for one more. Then v has n + 1 elements. */
static inline void heap_add(const struct heap_kind *k, void *v, size_t n, const void *element)
{
	memcpy(heap_at(k, v, n), element, k->size);
	heap_settle(k, v, n + 1, n);
}

/* Removes v[i] from the n elements. The n - 1 elements that are left are v[0] to v[n - 2]. */
static inline void heap_take(const struct heap_kind *k, void *v, size_t n, size_t i)
{
	assert(i < n);
	if (i + 1 == n)
		return;
	memcpy(heap_at(k, v, i), heap_at(k, v, n - 1), k->size);
	heap_settle(k, v, n - 1, i);
}
