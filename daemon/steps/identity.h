/* The identity of this server's pages and states: a hash of everything that decides their bits. It is computed once,
 * by the first thread that needs it: a thread of the store, or the transfer thread. */
#pragma once

#include <pthread.h>

#include "daemon/server.h"
#include "engine/cache_identity.h"

struct identity {
	const struct server *server; /* borrowed */
	/* when the weights were about to be read, as in struct cache_identity_source; set before identity_get */
	uint64_t opened_ns;
	pthread_mutex_t lock;
	bool known; /* whether id is known; guarded by lock, like id */
	struct cache_identity id;
};

void identity_init(struct identity *i, const struct server *s);
void identity_release(struct identity *i);

/* Computes it like cache_identity_compute; concurrent callers wait for the first. memo NULL: the file beside the
 * compiled kernels. server->info must be known. */
int identity_get(struct identity *i, const char *memo, const atomic_bool *cancel,
		 struct cache_identity *ret, struct err *e) MUST_CHECK;
