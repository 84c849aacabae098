/* The prefix cache compared with a naive model (prefix_model.h), over a million random events: both find the same
 * matches; each page and slot is free, held by a request or held by the tree, and all are free at the end; a call that
 * is refused changes nothing; locked pages and pinned states are not evicted.
 *
 *     test_prefix_random [seed [runs [events]]] */
#include <stdlib.h>

#include "base/mix.h"
#include "prefix_cache/prefix_cache.h"
#include "tests/prefix_events.h"
#include "tests/tap.h"

static uint32_t random_below(void *arg, uint32_t n)
{
	return (uint32_t)(mix_next(arg) >> 32) % n;
}

static unsigned long argument(int argc, char **argv, int i, unsigned long otherwise)
{
	return argc > i ? strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	unsigned long seed = argument(argc, argv, 1, 1), runs = argument(argc, argv, 2, 1100);
	unsigned long events = argument(argc, argv, 3, 1000);
	struct events_count count = {0};
	char name[64];

	for (unsigned long i = 0; i < runs; i++) {
		uint64_t state = seed + i;
		struct events_source source = {random_below, &state, name};

		(void)snprintf(name, sizeof(name), "seed %lu (1 run)", seed + i);
		events_run(&source, (uint32_t)events, &count);
	}
	ok(true, "%llu events as the model says, seeds %lu to %lu",
	   (unsigned long long)count.events, seed, seed + runs - 1);
	if (argc > 1)
		return done();
	ok(count.events >= 1000000, "a million of them");
	ok(count.hits > 10000 && count.returned > 1000,
	   "%llu hits, %llu of them by requests that came back", (unsigned long long)count.hits,
	   (unsigned long long)count.returned);
	ok(count.pages_only > 1000, "%llu that took pages alone",
	   (unsigned long long)count.pages_only);
	ok(count.evicted_pages > 10000 && count.evicted_slots > 10000,
	   "%llu pages and %llu states evicted", (unsigned long long)count.evicted_pages,
	   (unsigned long long)count.evicted_slots);
	ok(count.refused > 1000, "%llu takes refused", (unsigned long long)count.refused);
	for (int i = 0; i < PREFIX_MISS_N; i++) {
		printf("# %s: %llu\n", prefix_miss_name((enum prefix_miss)i),
		       (unsigned long long)count.misses[i]);
		check(count.misses[i] > 1000 || i == PREFIX_MISS_DISABLED ||
		      i == PREFIX_MISS_LOGPROBS || i == PREFIX_MISS_MEAN_POOLING ||
		      i == PREFIX_MISS_LOADING);
	}
	ok_all("every reason of this room was predicted more than a thousand times");
	return done();
}
