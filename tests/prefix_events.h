/* A random life of a prefix cache: requests come, publish, keep states, share pages, return and go. After each event
 * the real cache must agree with the model. Aborts at the first difference, after printing it. */
#pragma once

#include <stdint.h>

/* The source of all choices: `below` returns a number below n (n >= 1). */
struct events_source {
	uint32_t (*below)(void *arg, uint32_t n);
	void *arg;
	const char *name; /* said when something differs */
};

struct events_count {
	uint64_t events, hits, returned, pages_only, evicted_pages, evicted_slots, refused,
		misses[16];
};

/* Runs at most n_events events on a fresh cache of a random shape; adds the numbers of events to `count`. */
void events_run(const struct events_source *source, uint32_t n_events, struct events_count *count);
