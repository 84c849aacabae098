/* Settings of engine and scheduler that follow from tigond's options. For the engine thread. */
#pragma once

#include "daemon/server.h"

/* Opens the engine, the caller's to close; fills s->info, s->fingerprint and s->limits. *ret_ns: when the weights were
 * about to be read, nanoseconds since 1970. -errno with a sentence. */
int setup_engine(struct server *s, struct engine **ret, uint64_t *ret_ns, struct err *e) MUST_CHECK;

/* After setup_engine. */
struct scheduler_config setup_scheduler(const struct server *s);
