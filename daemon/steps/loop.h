/*
 * The engine thread: the only one that touches scheduler and device.
 *
 *     inbox ──> submit, abort, stop ──> scheduler_plan ──> engine_submit ┄┄> engine_wait ──>
 * scheduler_commit ^ │ └── text, http, watch                                   tokens ──> calls ──>
 * connections resume
 *
 * Two steps are out: while the device runs one, the next is planned and queued behind it, and what
 * the one before gave is handed out.
 *
 * It opens the engine, runs while there is anything to run, sleeps on the inbox otherwise. When the
 * device is lost or the daemon ends, every live call fails with a sentence, and so does everything
 * that still comes in, until loop_free.
 */
#ifndef DAEMON_STEPS_LOOP_H
#define DAEMON_STEPS_LOOP_H

#include "base/err.h"
#include "daemon/request/call.h"

/* New: starts the thread, which opens the engine, fills server.info and server.limits and tells
 * lifecycle (lifecycle_loaded or lifecycle_fail). Sets server->loop before the thread starts. */
int loop_start(struct server *s, struct err *e) MUST_CHECK;

/*
 * For the `visit` of an endpoint.
 */
const struct scheduler *loop_scheduler(const struct loop *l) ON(role_engine);

/* The state now; valid until the next step. */
const struct metrics_steps *loop_stats(struct loop *l) ON(role_engine);

/* Forgets everything that is cached, of which *ret_held tells; -PROBLEM_REQUESTS_RUNNING while a request lives. */
int loop_flush(struct loop *l, struct prefix_stats *ret_held, struct err *e) MUST_CHECK
	ON(role_engine);

/* main: from now on every live and every coming call fails with the sentence of *e. */
void loop_fail_all(struct loop *l, const struct err *e);

/* Any thread: other workers' prompts are not taken any more. */
void loop_drain(struct loop *l);

/* main: the thread shall end after the step that runs and close the engine. Everybody who might
 * call the above has ended. Lifecycle notifies when it has; then loop_free. */
void loop_quit(struct loop *l);
bool loop_ended(const struct loop *l);
void loop_free(struct loop *l);

#endif
