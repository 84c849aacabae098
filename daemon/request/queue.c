/* The calls whose body has arrived (server.arrived). The functions here find one of them, and keep the queue fair. The
 * queue has the prompts that wait for their first token, and the other calls that server.queued counts. It has room for
 * --max-queued-requests of them. An owner (call.owner) gets no more than half of the room while other owners have
 * prompts in the queue. An owner that is alone may get more. If other owners then find the queue full, the newest calls
 * of that owner give way to theirs. */
#include <inttypes.h>
#include <string.h>

#include "base/majority.h"
#include "base/problem.h"
#include "daemon/request/call.h"

void call_enter(struct call *c)
{
	struct server *s = c->server;

	pthread_mutex_lock(&s->arrived.lock);
	c->older = s->arrived.newest;
	*(c->older ? &c->older->newer : &s->arrived.oldest) = c;
	s->arrived.newest = c;
	pthread_mutex_unlock(&s->arrived.lock);
}

void call_leave(struct call *c)
{
	struct server *s = c->server;

	pthread_mutex_lock(&s->arrived.lock);
	*(c->older ? &c->older->newer : &s->arrived.oldest) = c->newer;
	*(c->newer ? &c->newer->older : &s->arrived.newest) = c->older;
	pthread_mutex_unlock(&s->arrived.lock);
}

/* Takes a reference to a call in the list. False: the call has no reference left, and is about to leave the list. */
static bool hold(struct call *c)
{
	uint32_t refs = atomic_load(&c->refs);

	while (refs && !atomic_compare_exchange_weak(&c->refs, &refs, refs + 1))
		;
	return refs;
}

/* Returns whether the id is that of the call. A visit counts as having none, because POST /abort is a visit, and its
 * client may have sent the same X-Request-Id as for the call that it ends. */
static bool has_id(const struct call *c, const char *id)
{
	return !c->endpoint->visit && (!strcmp(c->id, id) || (id[0] && !strcmp(c->client_id, id)));
}

struct call *call_find(struct server *s, const char *id)
{
	struct call *c;

	pthread_mutex_lock(&s->arrived.lock);
	for (c = s->arrived.newest; c && !(has_id(c, id) && hold(c)); c = c->older)
		;
	pthread_mutex_unlock(&s->arrived.lock);
	return c;
}

/* Returns the number of an owner's prompts and other calls in the queue. Call with arrived.lock held. */
static uint64_t queued_of(const struct server *s, uint64_t owner)
{
	uint64_t n = 0;

	for (const struct call *c = s->arrived.newest; c; c = c->older)
		n += c->owner == owner ? atomic_load(&c->queued) : 0;
	return n;
}

/* Returns the owner that has more than half of the prompts in the queue, if there is one; else any owner with prompts
 * there, or 0 if the queue is empty. Call with arrived.lock held. */
static uint64_t greediest(const struct server *s)
{
	struct majority m = {0};

	for (const struct call *c = s->arrived.newest; c; c = c->older)
		majority_vote(&m, c->owner, atomic_load(&c->queued));
	return m.leader;
}

/* Finds the owner that has more than `half` prompts in the queue, and returns the newest of its calls there, a new
 * reference. NULL: no owner has so many, or only the owner `but` has. Call with arrived.lock held. */
static struct call *newest_of_greediest(const struct server *s, uint64_t but, uint64_t half)
{
	uint64_t owner = greediest(s);

	if (owner == but || queued_of(s, owner) <= half)
		return NULL;
	for (struct call *c = s->arrived.newest; c; c = c->older)
		if (c->owner == owner && atomic_load(&c->queued) && hold(c))
			return c;
	return NULL;
}

/* Checks whether `more` prompts of this owner fit: 0, or -PROBLEM_QUEUE_FULL. *ret_victim: a call that has to give
 * way first, a new reference; NULL: none has to. */
static int look(struct server *s, uint64_t owner, uint32_t more, struct call **ret_victim,
		struct err *e)
{
	const uint64_t max = s->options.max_queued_requests, half = CEIL_DIV(max, 2u);
	uint64_t n = atomic_load(&s->queued), mine;
	int r = 0;

	*ret_victim = NULL;
	if (n + more <= half)
		return 0;
	pthread_mutex_lock(&s->arrived.lock);
	mine = queued_of(s, owner);
	if (n > mine && mine + more > half)
		r = err_set(e, PROBLEM_QUEUE_FULL,
			    "%" PRIu64 " requests of this client are waiting already, and while "
			    "others wait it may have %" PRIu64 "; try again later",
			    mine, half);
	else if (n + more > max && !(*ret_victim = newest_of_greediest(s, owner, half)))
		r = err_set(e, PROBLEM_QUEUE_FULL,
			    "%" PRIu64 " requests are waiting already; try again later", n);
	pthread_mutex_unlock(&s->arrived.lock);
	return r;
}

int call_check_queue(struct server *s, uint64_t owner, uint32_t more, bool make_room, struct err *e)
{
	struct call *victim;
	struct err why;
	int r;

	while (!(r = look(s, owner, more, &victim, e)) && victim) {
		err_set(&why, PROBLEM_QUEUE_FULL,
			"the queue is full, and this client had more than half of it; try again "
			"later");
		if (make_room)
			call_cancel(victim, &why);
		call_unref(victim);
		if (!make_room)
			break;
	}
	return r;
}

int call_queue_prompts(struct call *c, uint32_t n, struct err *e)
{
	int r = n > 1 ? call_check_queue(c->server, c->owner, n - 1, true, e) : 0;

	if (r < 0 || n <= 1)
		return r;
	/* A call that was cancelled meanwhile has left the queue, and must not be counted there again. */
	pthread_mutex_lock(&c->shared.lock);
	if (!c->shared.failure.code) {
		atomic_fetch_add(&c->queued, n - 1);
		atomic_fetch_add(&c->server->queued, n - 1);
	}
	pthread_mutex_unlock(&c->shared.lock);
	return 0;
}
