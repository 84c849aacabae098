/*
 * A naive scheduler beside the real one (scheduler_rules.h), called at random. Every plan, event and
 * statistic of the real one must be what the rules say; its plans run on a fake device that knows of every token where
 * it is and how it was computed; and what the cache publishes is compared with that device after every
 * step. A second real scheduler gets the same calls with its pools shuffled, and must make the same plans but for
 * the names of pages, slots and seats. What happens is decided by a `source`: a random generator or a fuzzer's bytes.
 *
 * The ten properties of the reference, and where they are looked at:
 *      1 pools partition, baseline returns           check_pools, check_baseline
 *      2 a refused admission mutates nothing         do_plan (nothing came of it)
 *      3 a hit implies pages and state are there     the device: every row reads its own origin
 *      4 pinned pages are never evicted or reused    the device; check_pinned, check_published: still there, locked
 *      5 one writable slot a request                 the device: a slot has one writer; fake_device_check_cache
 *      6 plans do not depend on free lists           plan_compare
 *      7 duplicate and late calls do nothing         do_abort, do_finish_choice, late results
 *      8 published: written at exactly that count    fake_device_check_cache
 *      9 windows concatenate to the prompt           plan_check: each begins where the one before ended
 *     10 what was accepted completes                 drain
 * Where prompts come from other workers or go there: what arrives in the pages and slot that were named stays there until
 * the request begins to read it, and what a ship names stays until the request is told that it is through: do_transfer.
 */
#ifndef TESTS_SCHEDULER_MODEL_H
#define TESTS_SCHEDULER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prefix_cache/prefix_cache.h"

struct source {
	const uint8_t *bytes; /* NULL: random numbers from `state` */
	size_t n_bytes;
	uint64_t state;
};

/* What a run has seen, added up over runs, so that a test can ask for enough of each. */
struct model_counts {
	uint64_t events; /* calls of the scheduler */
	uint64_t submitted, refused, queue_full, finished, aborted, choices_ended, failed_steps,
		flushes;
	uint64_t plans, rows, draws, page_copies, state_copies, resets, snapshots, handovers;
	uint64_t unseen_tokens; /* decode rows whose token the plan before draws */
	uint64_t admissions_refused, cut_prompts, late_results, shared_waits, retractions,
		replayed_tokens, paused;
	uint64_t hits, decoded_hits, alone, returned_by_cache;
	uint64_t doubts; /* plans with more than one right answer */
	uint64_t evicted_pages, evicted_slots, scored_tokens;
	uint64_t receives, received, received_checkpoints, receives_again, receives_local;
	uint64_t pages_not_sent, ship_rows, shipped, ships_aborted, exchanged_pages;
	uint64_t misses[PREFIX_MISS_N];
};

/* One life of a scheduler: a configuration, up to n_events calls in random order, then everything
 * that is left runs to its end. NULL, or the condition that failed. */
const char *model_run(struct source *src, uint32_t n_events, struct model_counts *counts);

#endif
