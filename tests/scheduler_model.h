/* The model: random calls of the real scheduler and of a naive one beside it, the rules (scheduler_rules.h). Every
 * plan, event and statistic of the real scheduler must agree with the rules. The real scheduler's plans run on a fake
 * device, which knows the place of every token and how the token was computed. The published part of the cache is
 * compared with that device after every commit. A second real scheduler, the twin, gets the same calls with its pools
 * shuffled, and must make the same plans except for the ids of pages, slots and seats. A `source` decides each call: a
 * random generator, or a fuzzer's bytes.
 *
 *     scheduler_model.c         calls the schedulers, the rules and the device, and compares
 *     scheduler_model_draw.c    draws configurations, prompts, requests
 *     scheduler_model_check.c   checks of the state after a call
 *
 * Ten properties, and the functions that check them:
 *
 *      1 pages and slots are free, held or cached;
 *        at the end all are free                      model_check_stats, model_check_baseline
 *      2 a refused admission changes nothing          do_plan
 *      3 a hit implies pages and state                the device: every row reads its own tokens
 *      4 pinned pages are never evicted or reused     the device; model_check_pinned, model_check_published
 *      5 a request has one writable slot              the device: a slot has one writer; model_check_cache
 *      6 plans do not depend on free lists            plan_compare
 *      7 calls that come twice or late do nothing     do_abort, do_finish_choice, do_commit
 *      8 published pages are full, and published
 *        states are of exactly their nodes' ends      model_check_cache
 *      9 the windows of a prompt follow each other    plan_check: each begins where the one before ended
 *     10 an accepted request completes                drain
 *
 * Prompts also come from other workers and go to them (do_transfer). Data that arrive in the pages and the slot that
 * scheduler_next_prepare names stay there until the request reads them. The pages and the slot of a ship keep their
 * data until scheduler_shipped says that these were read. */
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

/* How often things happened, summed over runs, so that a test can demand each of them often enough. */
struct model_counts {
	uint64_t events; /* calls of the scheduler */
	uint64_t submitted, refused, queue_full, finished, aborted, choices_ended, failed_steps,
		flushes;
	uint64_t paced_windows; /* those that go on with their span */
	uint64_t plans, rows, draws, page_copies, state_copies, resets, snapshots, handovers;
	uint64_t unseen_tokens; /* decode rows whose token the plan before draws */
	uint64_t admissions_refused, cut_prompts, late_results, shared_waits, retractions,
		replayed_tokens, paused;
	uint64_t awaited, gathered; /* rows, and plans, that waited for the token before */
	uint64_t
		joined; /* rows that computed a token again in a plan whose other sequences waited */
	/* times that a request let another one pass, because its owner had its share of seats */
	uint64_t held_back;
	/* requests that were retracted so that one of another owner gets seats */
	uint64_t gave_way;
	uint64_t hits, decoded_hits, alone, returned_by_cache;
	/* plans for which the first of several possible answers of the rules was not right */
	uint64_t doubts;
	uint64_t evicted_pages, evicted_slots, scored_tokens, poolings, undrawn;
	uint64_t receives, received, received_checkpoints, receives_again, receives_local;
	uint64_t pages_not_sent, ship_rows, shipped, ships_aborted, exchanged_pages;
	uint64_t misses[PREFIX_MISS_N];
};

/* Runs one life of a scheduler: draws a configuration, makes up to n_events calls in random order, and then, in most
 * lives, lets all requests that are left run to their end. Returns NULL, or the condition that failed. */
const char *model_run(struct source *src, uint32_t n_events, struct model_counts *counts);
