/*
 * The engine thread: the only one that touches scheduler and device.
 *
 *     any thread ── messages (call_message) ─────────> server.inbox
 *                                                          │
 *                                                     live.c: scheduler_submit, scheduler_abort, ...
 *                                                          │
 *          ┌───────────────> scheduler_plan ──> engine_submit ┄┄ the device computes ┄┄> engine_wait
 *          │                                                                                  │
 *          └──────── scheduler_commit <───────────────────────────────────────────────────────┘
 *                          └── events ──> live.c: tokens to calls; resumes connections that wait for them
 *
 * Up to two steps are out at the same time: while the device runs a step, the thread hands out the tokens of the step
 * before it, plans the next step, and queues it behind the running one. In a prefill worker handoff.h takes the place
 * of live.c.
 *
 * The thread opens the engine, runs while there is anything to run, and sleeps on the inbox otherwise. When the engine
 * cannot be opened, the device is lost or the daemon ends, every live call (live.h) fails with an error, and so does
 * every call that still comes into the inbox.
 */
#pragma once

#include "base/err.h"
#include "daemon/request/call.h"

/* Makes server->loop, new, and server->inbox, then starts the thread. The thread opens the engine, fills the members of
 * struct server that are its own, and reports to lifecycle (lifecycle_loaded or lifecycle_fail). */
int loop_start(struct server *s, struct err *e) MUST_CHECK;

/* ---- for endpoint.visit ---- */

const struct scheduler *loop_scheduler(const struct loop *l) ON(role_engine);

/* Returns the statistics of this moment, borrowed until the visit ends. Publishes them for /metrics, too. */
const struct metrics_steps *loop_stats(struct loop *l) ON(role_engine);

/* Empties the prefix cache, on the device and below it. *ret_held: the statistics of the cache before it was emptied.
 * -PROBLEM_REQUESTS_RUNNING while there is any request; another code: the loop has failed. */
int loop_flush(struct loop *l, struct prefix_stats *ret_held, struct err *e) MUST_CHECK
	ON(role_engine);

/* ---- for other threads ---- */

/* Called by main: from now on every live call and every new call fails with *e, or with an earlier error if there is
 * one (the device was lost). */
void loop_fail_all(struct loop *l, const struct err *e);

/* Any thread may call it: on a prefill worker, tells the other workers that this one takes no new prompts. On other
 * workers does nothing. */
void loop_drain(struct loop *l);

/* Called by main: ends the engine thread and frees the loop. Waits until the thread has finished the steps that are
 * out, written the cache's files and closed the engine. From this call on no other thread may push into the inbox. NULL
 * is allowed. */
void loop_free(struct loop *l);
