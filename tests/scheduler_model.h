/* A naive scheduler beside the real one (scheduler_rules.h), called at random. Every plan, event and statistic of the
 * real one must agree with the rules. Its plans run on a fake device, which knows the place of every token and how it
 * was computed; the published part of the cache is compared with that device after every step. A second real
 * scheduler gets the same calls with its pools shuffled, and must make the same plans except for the ids of pages,
 * slots and seats. A `source` decides each call: a random generator, or a fuzzer's bytes.
 *
 *     scheduler_model.c         calls the schedulers, the rules and the device, and compares
 *     scheduler_model_draw.c    draws configurations, prompts, requests
 *     scheduler_model_check.c   checks of the state afterwards
 *
 * Ten properties, and the functions that check them:
 *
 *      1 pools partition; all comes back at the end   model_check_stats, model_check_baseline
 *      2 a refused admission changes nothing          do_plan
 *      3 a hit implies pages and state                the device: every row reads its own tokens
 *      4 pinned pages are never evicted or reused     the device; model_check_pinned, model_check_published
 *      5 a request has one writable slot              the device: a slot has one writer; model_check_cache
 *      6 plans do not depend on free lists            plan_compare
 *      7 calls that come twice or late do nothing     do_abort, do_finish_choice, do_commit
 *      8 what is published was written at its count   model_check_cache
 *      9 the windows of a prompt follow each other    plan_check: each begins where the one before ended
 *     10 an accepted request completes                drain
 *
 * When prompts go to other workers or come from there (do_transfer): data that arrive in the named pages and slot
 * stay until the request reads them; pages and slots of a ship stay until the request is told that they were read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prefix_cache/prefix_cache.h"

struct source {
	const uint8_t *bytes; /* NULL: random numbers from `state` */
	size_t n_bytes;
	uint64_t state;
};

/* How often things happened, summed over runs, so that a test can ask for enough of each. */
struct model_counts {
	uint64_t events; /* calls of the scheduler */
	uint64_t submitted, refused, queue_full, finished, aborted, choices_ended, failed_steps,
		flushes;
	uint64_t plans, rows, draws, page_copies, state_copies, resets, snapshots, handovers;
	uint64_t unseen_tokens; /* decode rows whose token the plan before draws */
	uint64_t admissions_refused, cut_prompts, late_results, shared_waits, retractions,
		replayed_tokens, paused;
	uint64_t held_back; /* requests passed over, since their owner had its share of seats */
	uint64_t gave_way;  /* requests that were retracted for one of another owner */
	uint64_t hits, decoded_hits, alone, returned_by_cache;
	uint64_t doubts; /* plans that are not the first of several right ones */
	uint64_t evicted_pages, evicted_slots, scored_tokens;
	uint64_t receives, received, received_checkpoints, receives_again, receives_local;
	uint64_t pages_not_sent, ship_rows, shipped, ships_aborted, exchanged_pages;
	uint64_t misses[PREFIX_MISS_N];
};

/* One life of a scheduler: a configuration, up to n_events calls in random order, then mostly
 * everything that is left runs to its end. NULL, or the condition that failed. */
const char *model_run(struct source *src, uint32_t n_events, struct model_counts *counts);
