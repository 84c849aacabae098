#include "daemon/request/responses.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"

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

static int unknown(const char *id, struct err *e)
{
	return err_set(e, PROBLEM_UNKNOWN_RESPONSE, "no response with the id \"%.60s\" is kept",
		       id);
}

bool responses_take(struct server *s, size_t bytes)
{
	struct response_store *store = lock(s);
	bool takes = store && response_store_takes(store, bytes);

	unlock(s);
	return takes;
}

void responses_put(struct server *s, const struct response_record *r)
{
	struct response_store *store = lock(s);
	bool kept = store && response_store_put(store, r, clock_now_ns());

	unlock(s);
	if (!kept)
		log_info("%s is not kept: it does not fit into --response-store-memory", r->id);
}

int responses_get(struct server *s, const char *id, uint64_t owner, struct buf *out, struct err *e)
{
	struct response_store *store = lock(s);
	bool found = store && response_store_get(store, id, owner, clock_now_ns(), out);

	unlock(s);
	if (!found)
		return unknown(id, e);
	return out->failed ? err_no_memory(e) : 0;
}

int responses_get_input(struct server *s, const char *id, uint64_t owner, struct buf *out,
			struct err *e)
{
	struct response_store *store = lock(s);
	struct response_turn *t =
		store ? response_store_turn(store, id, owner, clock_now_ns()) : NULL;

	if (t) {
		response_turn_items(t, false, out);
		response_turn_drop(store, t);
	}
	unlock(s);
	if (!t)
		return unknown(id, e);
	return out->failed ? err_no_memory(e) : 0;
}

int responses_delete(struct server *s, const char *id, uint64_t owner, struct err *e)
{
	struct response_store *store = lock(s);
	bool found = store && response_store_delete(store, id, owner, clock_now_ns());

	unlock(s);
	return found ? 0 : unknown(id, e);
}

int responses_recall(struct server *s, const char *id, uint64_t owner, struct buf *out,
		     struct response_turn **ret_turn, struct err *e)
{
	struct response_store *store = lock(s);
	struct response_turn *t =
		store ? response_store_turn(store, id, owner, clock_now_ns()) : NULL;

	if (t)
		response_turn_items(t, true, out);
	unlock(s);
	if (!t)
		return err_param(e, PROBLEM_UNKNOWN_PREVIOUS, "previous_response_id",
				 "no response with the id \"%.60s\" is kept", id);
	*ret_turn = t;
	return out->failed ? err_no_memory(e) : 0;
}

void responses_drop(struct server *s, struct response_turn *t)
{
	if (!t || !s->responses)
		return;
	response_turn_drop(lock(s), t);
	unlock(s);
}
