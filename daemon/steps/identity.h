/* The identity of this server's pages and states: a hash of everything that decides their bits. It is computed by the
 * first thread that needs it, a thread of the store or the transfer thread, and kept. */
#pragma once

#include <pthread.h>

#include "daemon/server.h"
#include "engine/cache_identity.h"

struct identity {
	const struct server *server; /* borrowed */
	/* when the weights were about to be read, as in struct cache_identity_source; set before identity_get */
	uint64_t opened_ns;
	pthread_mutex_t lock;
	bool known; /* id is known; guarded by lock, like id */
	struct cache_identity id;
};

void identity_init(struct identity *i, const struct server *s);
void identity_release(struct identity *i);

/* Writes the identity to *ret. The first successful call computes it with cache_identity_compute; the errors are those
 * of that function. While another thread computes it, waits for that thread. memo: the path of the memo
 * (engine/cache_identity.h), a file with the hashes of the weights; NULL: the file "weights" in the directory of
 * compiled kernels, if there is such a directory. To be called after setup_engine, which fills server->info. */
int identity_get(struct identity *i, const char *memo, const atomic_bool *cancel,
		 struct cache_identity *ret, struct err *e) MUST_CHECK;
