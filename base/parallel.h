/* The same work on many items, by as many threads as there are processors for us. For start-up, not for requests. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stddef.h>

/* Calls each(arg, i) for every i < n, in any order and several at once; returns when all have returned. Where no thread
 * can be made, the caller's does all. */
void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg);

#endif
