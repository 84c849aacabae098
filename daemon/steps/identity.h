/*
 * The identity of this server's pages and states: a hash of everything that decides their bits. It is computed once, on the
 * thread that needs it first: a thread of the store below the device, or the transfer thread.
 */
#pragma once

#include <pthread.h>

#include "daemon/server.h"
#include "engine/cache_identity.h"

struct identity {
	const struct server *server; /* borrowed */
	uint64_t opened_ns; /* as in struct cache_identity_source; set before identity_get */
	pthread_mutex_t lock;
	bool known;		  /* guarded by lock, like id */
	struct cache_identity id; /* if known */
};

void identity_init(struct identity *i, const struct server *s);
void identity_release(struct identity *i);

/* As cache_identity_compute; concurrent callers wait for the first. memo NULL: a file beside the compiled kernels.
 * server->info must be known. */
int identity_get(struct identity *i, const char *memo, const atomic_bool *cancel,
		 struct cache_identity *ret, struct err *e) MUST_CHECK;
