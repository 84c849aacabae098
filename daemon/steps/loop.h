/*
 * The engine thread: the only one that touches scheduler and device.
 *
 *     server.inbox ──> submit, abort, stop ──> scheduler_plan ──> engine_submit
 *     (text, http, watch)                           ^                  ┆ the device runs two steps, one behind the other
 *                                                   │                  v
 *     connections resume <── calls <── tokens <── scheduler_commit <── engine_wait
 *
 * While the device runs a step, the next one is planned and queued behind it, and the tokens of the step before are handed
 * out.
 *
 * The thread opens the engine, runs steps while there are any, and sleeps on the inbox otherwise. When the device is lost or
 * the daemon ends, every live call fails with a sentence, and so does every call that comes later, until loop_free.
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

/* main: every live call, and every later one, fails with the sentence of *e. */
void loop_fail_all(struct loop *l, const struct err *e);

/* Any thread: prompts of other workers are refused from now on. */
void loop_drain(struct loop *l);

/* main: the thread ends after the step that runs, and closes the engine. All threads that call the functions above have
 * ended. Lifecycle notifies when the thread has ended; then call loop_free. */
void loop_quit(struct loop *l);
bool loop_ended(const struct loop *l);
void loop_free(struct loop *l);

#endif
