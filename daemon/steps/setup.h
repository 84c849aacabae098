/* The settings of engine and scheduler, made from tigond's options. For the engine thread. */
#pragma once

#include "daemon/server.h"

/* Opens the engine, new. Fills s->info, s->fingerprint and s->limits. *ret_ns: the time just before the weights were
 * read, in nanoseconds since 1970. -errno with a sentence. */
int setup_engine(struct server *s, struct engine **ret, uint64_t *ret_ns, struct err *e) MUST_CHECK;

/* Returns the scheduler's configuration. To be called after setup_engine. */
struct scheduler_config setup_scheduler(const struct server *s);
