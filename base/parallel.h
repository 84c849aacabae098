/* Runs the same work on many items, on as many threads as this process has processors. For the start, not for
 * requests. */
#pragma once

#include <stddef.h>

/* Calls each(arg, i) for every i < n, in any order and several at once, and returns when all calls have returned. If
 * no thread can be started, the calling thread makes all calls. */
void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg);
