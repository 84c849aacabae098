/*
 * A random life of a prefix cache: requests come, publish, keep states, share pages, return and go, and after each event the
 * real cache must say what the model says. Aborts at the first difference, after saying where.
 */
#pragma once

#include <stdint.h>

/* A number below n (n >= 1). */
struct events_source {
	uint32_t (*below)(void *arg, uint32_t n);
	void *arg;
	const char *name; /* said when something differs */
};

struct events_count {
	uint64_t events, hits, returned, pages_only, evicted_pages, evicted_slots, refused,
		misses[16];
};

/* At most n_events events on a fresh cache of a random shape; adds what happened to `count`. */
void events_run(const struct events_source *source, uint32_t n_events, struct events_count *count);
