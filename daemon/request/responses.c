#include "daemon/request/responses.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

struct responses {
	pthread_mutex_t lock;
	struct response_store *store; /* guarded by lock */
};

int responses_open(struct server *s, struct err *e)
{
	const struct options *o = &s->options;
	struct responses *r = calloc(1, sizeof(*r));

	if (r)
		r->store = response_store_new(o->response_store_memory,
					      o->response_store_seconds * 1000000000);
	if (!r || !r->store) {
		free(r);
		return err_no_memory(e);
	}
	pthread_mutex_init(&r->lock, NULL);
	s->responses = r;
	return 0;
}

void responses_close(struct server *s)
{
	if (!s->responses)
		return;
	response_store_free(s->responses->store);
	pthread_mutex_destroy(&s->responses->lock);
	free(s->responses);
	s->responses = NULL;
}

/* Returns the store, locked; NULL: there is none. */
static struct response_store *lock(struct server *s)
{
	if (!s->responses)
		return NULL;
	pthread_mutex_lock(&s->responses->lock);
	return s->responses->store;
}

static void unlock(struct server *s)
{
	if (!s->responses)
		return;
	atomic_store(&s->metrics.stored_responses, response_store_count(s->responses->store));
	atomic_store(&s->metrics.stored_response_bytes, response_store_bytes(s->responses->store));
	pthread_mutex_unlock(&s->responses->lock);
}

bool responses_take(struct server *s, size_t bytes)
{
	struct response_store *store = lock(s);
	bool takes = store && response_store_takes(store, bytes);

	unlock(s);
	return takes;
}

void responses_put(struct server *s, const struct response_record *r,
		   const struct response_hold *previous)
{
	struct response_entry *entry = s->responses ? response_entry_new(r) : NULL;
	bool kept = false;

	if (entry) {
		kept = response_store_put(lock(s), entry, previous, clock_now_ns());
		unlock(s);
	}
	if (!kept)
		log_info("%s is not kept: --response-store-memory has no room for it", r->id);
}

struct response_entry *responses_find(struct server *s, const char *id, uint64_t owner)
{
	struct response_store *store = lock(s);
	struct response_entry *r =
		store ? response_store_find(store, id, owner, clock_now_ns()) : NULL;

	unlock(s);
	return r;
}

void responses_drop(struct server *s, struct response_entry *r)
{
	if (!r)
		return;
	response_store_drop(lock(s), r);
	unlock(s);
}

bool responses_delete(struct server *s, const char *id, uint64_t owner)
{
	struct response_store *store = lock(s);
	bool found = store && response_store_delete(store, id, owner, clock_now_ns());

	unlock(s);
	return found;
}

void responses_hold(struct server *s, struct response_entry *r, struct response_hold *h)
{
	response_store_hold(lock(s), r, h);
	unlock(s);
}

void responses_release(struct server *s, struct response_hold *h)
{
	struct response_store *store = lock(s);

	if (store)
		response_store_release(store, h);
	unlock(s);
}
