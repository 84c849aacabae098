/*
 * The identity of this server's pages and states: everything that decides their bits (engine/cache_identity.h). It is hashed
 * once, on the first thread that needs it: the store's, or the transfer thread.
 */
#ifndef DAEMON_STEPS_IDENTITY_H
#define DAEMON_STEPS_IDENTITY_H

#include <pthread.h>

#include "daemon/server.h"
#include "engine/cache_identity.h"

struct identity {
	const struct server *server; /* borrowed */
	/* as in struct cache_identity_source; the engine thread sets it before the first identity_get */
	uint64_t opened_ns;
	pthread_mutex_t lock;
	/* guarded by lock */
	bool known;
	struct cache_identity id; /* if known */
};

void identity_init(struct identity *i, const struct server *s);
void identity_release(struct identity *i);

/* As cache_identity_compute; concurrent callers wait for the first. memo NULL: a file beside the compiled kernels.
 * server->info must be known. */
int identity_get(struct identity *i, const char *memo, const atomic_bool *cancel,
		 struct cache_identity *ret, struct err *e) MUST_CHECK;

#endif
