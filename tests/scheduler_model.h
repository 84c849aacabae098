/*
 * A naive scheduler beside the real one. It keeps every request in one array, in the order they
 * came, and works out each plan, event and statistic anew from what the rules say; the plans run on
 * a fake device. A second real scheduler gets the same calls with its pools shuffled, and must make
 * the same plans but for the names of pages, slots and seats. What happens is decided by a
 * `source`: a random generator or a fuzzer's bytes.
 */
#ifndef TESTS_SCHEDULER_MODEL_H
#define TESTS_SCHEDULER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
	const uint8_t *bytes; /* NULL: random numbers from `state` */
	size_t n_bytes;
	uint64_t state;
};

/* What a run has seen, added up over runs, so that a test can ask for enough of each. */
struct model_counts {
	uint64_t events; /* calls of the scheduler */
	uint64_t submitted, refused, finished, aborted, choices_ended, failed_steps;
	uint64_t plans, rows, draws, page_copies, state_copies, resets;
	uint64_t admissions_refused, cut_prompts, late_results;
};

/* One life of a scheduler: a configuration, up to n_events calls in random order, then everything
 * that is left runs to its end. NULL, or the condition that failed. */
const char *model_run(struct source *src, uint32_t n_events, struct model_counts *counts);

#endif
