/* A random life of a prefix cache: requests match, extend the tree, add checkpoints, share pages, end, and come back to
 * the pages that they left. After each event the real cache must agree with the model (prefix_model.h). Aborts at the
 * first difference, after printing it. */
#pragma once

#include <stdint.h>

/* The source of all choices: `below` returns a number below n (n >= 1). */
struct events_source {
	uint32_t (*below)(void *arg, uint32_t n);
	void *arg;
	const char *name; /* printed when something differs */
};

struct events_count {
	uint64_t events, hits, returned, pages_only, evicted_pages, evicted_slots, refused,
		misses[16];
};

/* Runs at most n_events events on a new cache of a random configuration; adds to the numbers in `count`. */
void events_run(const struct events_source *source, uint32_t n_events, struct events_count *count);
