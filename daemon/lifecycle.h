/* The state of the daemon from start to end; signals; messages to systemd.
 *
 *     LOADING ──> READY ──> DRAINING      SIGTERM, SIGINT, SIGHUP: new requests are refused, running
 *        │          │           │         ones may finish
 *        └──────────┴───────────┴──> FAILED   the model or its tokenizer does not load, the device is lost, ...
 *
 * Any thread reads the state. One of the text threads, the engine thread, and a prefill worker's transfer thread report
 * when they have loaded their part; main waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum lifecycle_state { LIFECYCLE_LOADING, LIFECYCLE_READY, LIFECYCLE_DRAINING, LIFECYCLE_FAILED };

struct lifecycle;

/* Makes a lifecycle, LOADING. Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and in every thread that it
 * starts later, so call it before threads are started, except ZeroMQ's, which block all signals. lifecycle_wait reads
 * these signals. A SIGHUP that is ignored already stays so; SIGPIPE is ignored. */
int lifecycle_new(struct lifecycle **ret, struct err *e) MUST_CHECK;
void lifecycle_free(struct lifecycle *l);

enum lifecycle_state lifecycle_state(const struct lifecycle *l);

/* Each thread that loads a part (the text thread that loads tokenizer and template, the engine thread, and a thread
 * that lifecycle_expect announced): reports that its part is loaded. The last of these calls makes the state READY, if
 * it is still LOADING. */
void lifecycle_loaded(struct lifecycle *l);

/* The engine thread, before its own lifecycle_loaded: announces that one more thread will call lifecycle_loaded. */
void lifecycle_expect(struct lifecycle *l);

/* Any thread: makes the state FAILED, and it stays so. The error of the first such call is kept. */
void lifecycle_fail(struct lifecycle *l, const struct err *e);

/* Returns the error of lifecycle_fail, borrowed. To be called only when the state is FAILED. */
const struct err *lifecycle_error(const struct lifecycle *l);

/* main: makes the state DRAINING, unless it is FAILED. From now on new requests are refused, but for those that are
 * answered in every state (endpoint.h). */
void lifecycle_drain(struct lifecycle *l);

/* Any thread: ends the lifecycle_wait of main, or of the guard, because something that it may wait for has changed. */
void lifecycle_notify(struct lifecycle *l);

/* main, and at the end the guard (main.c): waits for a signal or a lifecycle_notify, at most timeout_ns, and at most an
 * hour. True: a signal came. SIGHUP counts only while the state is LOADING or READY, so that it never ends what
 * drains. */
bool lifecycle_wait(struct lifecycle *l, uint64_t timeout_ns);

/* Sends systemd a message ("READY=1", "STOPPING=1", "STATUS=…"). Does nothing if the program runs without systemd. */
void lifecycle_tell(const char *fmt, ...) PRINTF(1, 2);
