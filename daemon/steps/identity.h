/*
 * What decides the bits of this server's pages and states (engine/cache_identity.h), computed once, on the thread that needs it
 * first: the store of what is cached below the device, or the thread that talks to other workers.
 */
#ifndef DAEMON_STEPS_IDENTITY_H
#define DAEMON_STEPS_IDENTITY_H

#include <pthread.h>

#include "daemon/server.h"
#include "engine/cache_identity.h"

struct identity {
	const struct server *server; /* borrowed */
	uint64_t
		opened_ns; /* engine thread, before anybody asks; as in struct cache_identity_source */
	pthread_mutex_t lock;
	bool known;		  /* guarded by lock, like its value */
	struct cache_identity id; /* while known */
};

void identity_init(struct identity *i, const struct server *s);
void identity_release(struct identity *i);

/* As cache_identity_compute; who comes while another one computes waits for that. memo NULL: a file beside the
 * compiled kernels. Once server->info is known. */
int identity_get(struct identity *i, const char *memo, const atomic_bool *cancel,
		 struct cache_identity *ret, struct err *e) MUST_CHECK;

#endif
