/*
 * scheduler/ against a naive model, by random calls (scheduler_model.h says what is checked).
 *
 *     test_scheduler_random [SEED [RUNS]]    makes the run SEED alone, or RUNS runs from SEED on
 */
#include <stdlib.h>

#include "tests/scheduler_model.h"
#include "tests/tap.h"

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : 6000;
	struct model_counts n = {0};

	for (uint64_t seed = first; seed < first + runs; seed++) {
		struct source src = {.state = seed * UINT64_C(0x9e3779b97f4a7c15)};
		const char *failed = model_run(&src, 20 + (uint32_t)(seed % 7) * 80, &n);

		if (failed)
			printf("# seed %llu: %s\n", (unsigned long long)seed, failed);
		check(!failed);
	}
	ok_all("%llu runs agree with the model", (unsigned long long)runs);
	if (argc > 1)
		return done();
#define SEEN(field, at_least) ok(n.field >= (at_least), "%llu " #field, (unsigned long long)n.field)
	SEEN(events, 1500000);
	SEEN(submitted, 100000);
	SEEN(refused, 15000);
	SEEN(queue_full, 5000);
	SEEN(finished, 70000);
	SEEN(aborted, 15000);
	SEEN(choices_ended, 15000);
	SEEN(failed_steps, 1500);
	SEEN(flushes, 4000);
	SEEN(plans, 300000);
	SEEN(rows, 500000);
	SEEN(draws, 500000);
	SEEN(page_copies, 10000);
	SEEN(state_copies, 15000);
	SEEN(resets, 25000);
	SEEN(snapshots, 35000);
	SEEN(paced_windows, 1000);
	SEEN(handovers, 100000);
	SEEN(unseen_tokens, 90000);
	SEEN(admissions_refused, 200000);
	SEEN(cut_prompts, 50000);
	SEEN(late_results, 10000);
	SEEN(shared_waits, 4000);
	SEEN(retractions, 1500);
	SEEN(replayed_tokens, 8000);
	SEEN(paused, 15000);
	SEEN(awaited, 5000);
	SEEN(gathered, 5000);
	SEEN(joined, 1);
	SEEN(held_back, 2000);
	SEEN(gave_way, 100);
	SEEN(hits, 12000);
	SEEN(decoded_hits, 2500);
	SEEN(alone, 150);
	SEEN(doubts, 1000);
	SEEN(evicted_pages, 300000);
	SEEN(evicted_slots, 100000);
	SEEN(scored_tokens, 80000);
	SEEN(poolings, 10000);
	SEEN(undrawn, 10000);
	SEEN(receives, 6000);
	SEEN(received, 4000);
	SEEN(received_checkpoints, 600);
	SEEN(receives_again, 600);
	SEEN(receives_local, 600);
	SEEN(pages_not_sent, 5000);
	SEEN(ship_rows, 18000);
	SEEN(shipped, 10000);
	SEEN(ships_aborted, 1300);
	SEEN(exchanged_pages, 3000);
	for (int i = 0; i < PREFIX_MISS_N; i++)
		if (i != PREFIX_MISS_LOADING)
			ok(n.misses[i] >= 3000, "%llu misses: %s", (unsigned long long)n.misses[i],
			   prefix_miss_name((enum prefix_miss)i));
	return done();
}
