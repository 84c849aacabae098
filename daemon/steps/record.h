/*
 * tigond --record FILE: writes down every call of the scheduler that decides its plans, so that `tigon simulate
 * --replay FILE` can make the same calls again and compare the plans. The option cannot be combined with a cache below
 * the device (mover.h). The file has JSON lines, which daemon/cli/simulate/replay.c reads:
 *
 *     {"tigond_record":1,"config":{"page_tokens":64,...}}
 *     {"submit":1,"at":0.250000,"prompt":[...],...}
 *     {"plan":"9f86d081884c7d65"}    the plan's hash; null: there was nothing to run
 *     {"commit":[17,4]}              the tokens that were drawn
 *     {"pace":512}                   prompt tokens of a step in which sequences decode, when it changes
 *     {"abort":1}   {"finish":1,"choice":0}   {"fail":true}   {"flush":true}
 *     {"received":1,"tokens":[17]}   {"receive_failed":1,"again":0}   {"shipped":1}
 *
 * The file has the prompts' tokens, so a regular file can be read by its owner alone. When the file cannot be written
 * any more, recording stops with a warning and the server goes on. One thread calls all functions.
 */
#pragma once

#include "scheduler/scheduler.h"

/* The members of struct scheduler_config that the first line has, each with the largest value that replay accepts.
 * Replay allocates memory by some of these members, so their limits are those of the daemon's options and of the
 * largest devices. */
#define RECORD_CONFIG(FIELD)               \
	FIELD(page_tokens, 4096)           \
	FIELD(state_tokens, 1 << 16)       \
	FIELD(n_pages, 1 << 25)            \
	FIELD(n_slots, 1 << 23)            \
	FIELD(page_bytes, INT64_MAX)       \
	FIELD(slot_bytes, INT64_MAX)       \
	FIELD(cache_bytes, INT64_MAX)      \
	FIELD(cache_disabled, 1)           \
	FIELD(refuse_decoded, 1)           \
	FIELD(max_waiting, 1 << 20)        \
	FIELD(max_plans_out, UINT32_MAX)   \
	FIELD(max_seqs, 4096)              \
	FIELD(max_prefill_tokens, 1 << 20) \
	FIELD(max_model_len, 1 << 24)      \
	FIELD(vocab_size, INT32_MAX)       \
	FIELD(handoff_min_tokens, UINT32_MAX)

struct record;

/* Makes a struct record, new; replaces the file, and writes its first line. -errno with a sentence. */
int record_open(const char *path, const struct scheduler_config *c, struct record **ret,
		struct err *e) MUST_CHECK;
void record_close(struct record *r);

/* Each of these functions writes one line, or does nothing if r is NULL or recording has stopped. */
void record_submit(struct record *r, uint64_t id, const struct scheduler_request *q);
void record_plan(struct record *r, const struct plan *p);
void record_pace(struct record *r, uint32_t n_tokens);
void record_commit(struct record *r, const struct draw_result *results, uint32_t n);
void record_abort(struct record *r, uint64_t id);
void record_finish(struct record *r, uint64_t id, uint32_t choice);
void record_fail(struct record *r);
void record_received(struct record *r, uint64_t id, const struct draw_result *draws, uint32_t n);
void record_receive_failed(struct record *r, uint64_t id, bool again);
void record_shipped(struct record *r, uint64_t id);
void record_flush(struct record *r);
