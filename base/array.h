/* Growable arrays: a pointer to elements, the number of elements that fit, and the number in use; the caller owns all
 * three. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

/* Makes room for n elements in the array v [cap]. Growing at least doubles the room, as far as cap's type can count it,
 * so that appending costs O(1) an element. False: out of memory, or more than cap can count; nothing changed. v and cap
 * are lvalues; cap has any unsigned type. */
#define array_grow(v, cap, n)                                                                      \
	({                                                                                         \
		size_t cap_ = (cap);                                                               \
		void *grown_ =                                                                     \
			array_grown((v), &cap_, (n), sizeof(*(v)), (size_t)((__typeof__(cap))-1)); \
		if (grown_) {                                                                      \
			(v) = grown_;                                                              \
			(cap) = (__typeof__(cap))cap_;                                             \
		}                                                                                  \
		grown_ != NULL;                                                                    \
	})

/* Does the work of array_grow. Returns v, or a larger array in the place of v; then *cap is its room. NULL: out of
 * memory, or n > cap_max. */
void *array_grown(void *v, size_t *cap, size_t n, size_t size, size_t cap_max) MUST_CHECK;
