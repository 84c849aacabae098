/*
 * tigond --record FILE: every call of the scheduler, so that `tigon simulate --replay FILE` can
 * make the same calls again and compare the plans. JSON lines (daemon/cli/simulate/replay.c reads
 * them):
 *
 *     {"tigond_record": 1, "config": {"page_tokens": 64, ...}}
 *     {"submit": 1, "at": 0.25, "prompt": [...], "max_tokens": 20, ...}
 *     {"plan": "9f86d081884c7d65"}    the hash of the plan; null: there was nothing to run
 *     {"commit": [17, 4]}             the tokens that were drawn
 *     {"abort": 1}   {"finish": 1, "choice": 0}   {"fail": true}   {"flush": true}
 *     {"received": 1, "tokens": [17]}   {"receive_failed": 1, "again": 0}   {"shipped": 1}
 *
 * The file holds the prompts' tokens and is made readable by its owner only. When it cannot be
 * written any more recording stops with a warning; the server goes on. One thread.
 */
#ifndef DAEMON_STEPS_RECORD_H
#define DAEMON_STEPS_RECORD_H

#include "scheduler/scheduler.h"

struct record;

/* New; replaces the file. -errno with a sentence. */
int record_open(const char *path, const struct scheduler_config *c, struct record **ret,
		struct err *e) MUST_CHECK;
void record_close(struct record *r);

/* All take NULL: not recording. */
void record_submit(struct record *r, uint64_t id, const struct scheduler_request *q);
void record_plan(struct record *r, const struct plan *p);
void record_commit(struct record *r, const struct draw_result *results, uint32_t n);
void record_abort(struct record *r, uint64_t id);
void record_finish(struct record *r, uint64_t id, uint32_t choice);
void record_fail(struct record *r);
void record_received(struct record *r, uint64_t id, const struct draw_result *draws, uint32_t n);
void record_receive_failed(struct record *r, uint64_t id, bool again);
void record_shipped(struct record *r, uint64_t id);
void record_flush(struct record *r);

#endif
