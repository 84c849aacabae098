/* Runs work on several threads: one for each processor that the calling thread may use, but 64 at most. For loading a
 * model, not for requests: each call starts its threads anew. */
#pragma once

#include <stddef.h>

/* Calls run(arg) once on each of at most `most` threads, the calling thread among them, and returns when all calls have
 * returned. If no other thread can be started, there is one call. */
void parallel_run(size_t most, void (*run)(void *arg), void *arg);

/* Calls each(arg, i) for every i < n, in any order and several at once, and returns when all calls have returned. */
void parallel_for(size_t n, void (*each)(void *arg, size_t i), void *arg);
