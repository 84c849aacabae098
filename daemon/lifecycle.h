/* The state of the daemon from start to end; signals; messages to systemd.
 *
 *     LOADING ──> READY ──> DRAINING      SIGTERM, SIGINT: new requests are refused, running ones
 *        │          │           │         may finish
 *        └──────────┴───────────┴──> FAILED   the model or its tokenizer does not load, the device is lost
 *
 * Any thread reads the state. The text and engine threads, and a prefill worker's transfer thread, report when they
 * have loaded their part; main waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum lifecycle_state { LIFECYCLE_LOADING, LIFECYCLE_READY, LIFECYCLE_DRAINING, LIFECYCLE_FAILED };

struct lifecycle;

/* New. Blocks SIGTERM and SIGINT in the calling thread and in every thread that it starts later, so call it before
 * threads are started. lifecycle_wait reads these signals. SIGPIPE is ignored. */
int lifecycle_new(struct lifecycle **ret, struct err *e) MUST_CHECK;
void lifecycle_free(struct lifecycle *l);

enum lifecycle_state lifecycle_state(const struct lifecycle *l);

/* text, engine, and a thread that lifecycle_expect announced: the part that this thread loads is ready. The last of
 * these calls makes the state READY, if it is still LOADING. */
void lifecycle_loaded(struct lifecycle *l);

/* engine, before its own lifecycle_loaded: one more thread will call lifecycle_loaded. */
void lifecycle_expect(struct lifecycle *l);

/* Any thread: the state becomes FAILED, and stays so. Of several calls the first one's error is kept. */
void lifecycle_fail(struct lifecycle *l, const struct err *e);

/* The error of lifecycle_fail, borrowed. Only when the state is FAILED. */
const struct err *lifecycle_error(const struct lifecycle *l);

/* main: the state becomes DRAINING, unless it is FAILED. From now on new requests are refused. */
void lifecycle_drain(struct lifecycle *l);

/* Any thread: something that main may wait for has changed. */
void lifecycle_notify(struct lifecycle *l);

/* main: waits for a signal or a notification, at most timeout_ns. True: a signal came. */
bool lifecycle_wait(struct lifecycle *l, uint64_t timeout_ns);

/* Tells systemd, if it started the program ("READY=1", "STOPPING=1", "STATUS=…"). */
void lifecycle_tell(const char *fmt, ...) PRINTF(1, 2);
