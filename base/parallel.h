/* Does the same work on many items, on one thread for each processor that this process may use, 64 at most. For
 * loading a model, not for requests: the threads are started anew for each call. */
#pragma once

#include <stddef.h>

/* Calls each(arg, i) for every i < n, in any order and several at once, and returns when all calls have returned. If
 * no thread can be started, the calling thread makes all calls. */
void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg);
