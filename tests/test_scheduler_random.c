/*
 * scheduler/ against a naive model, by random calls (scheduler_model.h says what is checked).
 *
 *     test_scheduler_random [SEED [RUNS]]    repeats a run, or makes more of them
 */
#include <stdlib.h>

#include "tests/scheduler_model.h"
#include "tests/tap.h"

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : 5000;
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
	SEEN(events, 1000000);
	SEEN(submitted, 20000);
	SEEN(refused, 5000);
	SEEN(finished, 5000);
	SEEN(aborted, 2000);
	SEEN(choices_ended, 5000);
	SEEN(failed_steps, 200);
	SEEN(plans, 50000);
	SEEN(rows, 100000);
	SEEN(page_copies, 2000);
	SEEN(state_copies, 2000);
	SEEN(resets, 2000);
	SEEN(admissions_refused, 5000);
	SEEN(cut_prompts, 5000);
	SEEN(late_results, 1000);
	return done();
}
