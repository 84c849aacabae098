/* Calls a function for many numbers, on as many threads as the calling thread may use processors, but 64 at most. For
 * loading a model, not for requests: each parallel_for starts its threads anew. */
#pragma once

#include <stddef.h>

/* Calls each(arg, i) for every i < n, in any order and several at once, and returns when all calls have returned. The
 * calling thread takes part. If no other thread can be started, it makes all calls. */
void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg);
