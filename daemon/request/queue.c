/* The calls whose body has arrived (server.arrived). The functions here find one of them, and keep the queue fair. The
 * queue has the calls that wait. It has two bounds (server.queued, call_queue_room): for their number,
 * --max-queued-requests, and for the memory of their prompts. A call of many prompts waits as one; how many of them are
 * ahead of other calls is bounded apart (daemon/steps/live.h). An owner (call.owner) gets no more than half of the room
 * while other owners wait. An owner that is alone may get more. If other owners then find the queue full, the newest
 * calls of that owner give way to theirs. */
#include <inttypes.h>
#include <string.h>

#include "base/majority.h"
#include "base/problem.h"
#include "daemon/request/call.h"

enum {
	/* The prompts may have so many bytes for each of --max-queued-requests, or PROMPTS_LEAST if that is more. An id
	 * takes 4 bytes, so there is room for prompts of some 60,000 tokens. */
	PROMPT_SHARE = 256 << 10,
	PROMPTS_LEAST = 64 << 20,
};

uint64_t call_queue_room(const struct server *s, enum queue_measure what)
{
	const uint64_t n = s->options.max_queued_requests;

	return what == QUEUE_REQUESTS ? n : MAX(n * PROMPT_SHARE, (uint64_t)PROMPTS_LEAST);
}

static uint64_t half_of_room(const struct server *s, enum queue_measure what)
{
	return CEIL_DIV(call_queue_room(s, what), 2u);
}

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

/* Finds the newest call with this id, or with `given` the newest whose client gave it this id. Returns a new reference,
 * or NULL. A visit counts as having none, because POST /abort is a visit, and its client may have sent the same
 * X-Request-Id as for the call that it ends. Call with arrived.lock held. */
static struct call *find(struct server *s, const char *id, bool given)
{
	struct call *c = s->arrived.newest;

	while (c &&
	       (c->endpoint->visit || strcmp(given ? c->client_id : c->id, id) != 0 || !hold(c)))
		c = c->older;
	return c;
}

struct call *call_find(struct server *s, const char *id)
{
	struct call *c;

	pthread_mutex_lock(&s->arrived.lock);
	c = find(s, id, false);
	if (!c && id[0])
		c = find(s, id, true);
	pthread_mutex_unlock(&s->arrived.lock);
	return c;
}

/* Returns what an owner's calls have in the queue. Call with arrived.lock held. */
static uint64_t queued_of(const struct server *s, enum queue_measure what, uint64_t owner)
{
	uint64_t n = 0;

	for (const struct call *c = s->arrived.newest; c; c = c->older)
		n += c->owner == owner ? atomic_load(&c->queued[what]) : 0;
	return n;
}

/* Returns the owner that has more than half of what is in the queue, if there is one; else any owner with a call there,
 * or 0 if the queue is empty. Call with arrived.lock held. */
static uint64_t greediest(const struct server *s, enum queue_measure what)
{
	struct majority m = {0};

	for (const struct call *c = s->arrived.newest; c; c = c->older)
		majority_vote(&m, c->owner, atomic_load(&c->queued[what]));
	return m.leader;
}

/* Returns how much leaves the queue if the newest calls of this owner give way, until this is `need` or the owner has
 * no more than half of the room left. Call with arrived.lock held. */
static uint64_t may_give_way(const struct server *s, enum queue_measure what, uint64_t owner,
			     uint64_t need)
{
	const uint64_t half = half_of_room(s, what);
	uint64_t left = queued_of(s, what, owner), n = 0;

	for (const struct call *c = s->arrived.newest; c && left > half && n < need; c = c->older)
		if (c->owner == owner) {
			/* It may be less than queued_of has counted, but never more. */
			uint64_t queued = atomic_load(&c->queued[what]);

			left -= queued;
			n += queued;
		}
	return n;
}

static int refuse_owner(enum queue_measure what, uint64_t mine, uint64_t half, struct err *e)
{
	return err_set(e, PROBLEM_QUEUE_FULL,
		       what == QUEUE_REQUESTS
			       ? "%" PRIu64 " requests of this client are waiting already, and "
				 "while others wait it may have %" PRIu64 "; try again later"
			       : "the prompts of this client that are waiting take %" PRIu64
				 " bytes of memory already, and while others wait they may take "
				 "%" PRIu64 "; try again later",
		       mine, half);
}

static int refuse(enum queue_measure what, uint64_t n, struct err *e)
{
	return err_set(e, PROBLEM_QUEUE_FULL,
		       what == QUEUE_REQUESTS ? "%" PRIu64
						" requests are waiting already; try again later"
					      : "the prompts that are waiting take %" PRIu64
						" bytes of memory already; try again later",
		       n);
}

/* Checks whether `more` of this owner fits, if need be because enough of another owner gives way. 0, or
 * -PROBLEM_QUEUE_FULL. Call with arrived.lock held. */
static int check_room(const struct server *s, enum queue_measure what, uint64_t owner,
		      uint64_t more, struct err *e)
{
	const uint64_t room = call_queue_room(s, what), half = half_of_room(s, what);
	uint64_t n = atomic_load(&s->queued[what]), mine, need, greedy;

	if (n + more <= half)
		return 0;
	mine = queued_of(s, what, owner);
	if (n > mine && mine + more > half)
		return refuse_owner(what, mine, half, e);
	if (n + more <= room)
		return 0;
	need = n + more - room;
	greedy = greediest(s, what);
	if (greedy != owner && may_give_way(s, what, greedy, need) >= need)
		return 0;
	return refuse(what, n, e);
}

/* If more is in the queue than it has room for, takes the newest call of the owner with more than half of it out of the
 * queue. Returns that call, a new reference; NULL: none has to give way. */
static struct call *take_victim(struct server *s, enum queue_measure what)
{
	const uint64_t room = call_queue_room(s, what);
	struct call *c = NULL;
	uint64_t owner;

	if (atomic_load(&s->queued[what]) <= room)
		return NULL;
	pthread_mutex_lock(&s->arrived.lock);
	owner = greediest(s, what);
	if (atomic_load(&s->queued[what]) > room &&
	    queued_of(s, what, owner) > half_of_room(s, what))
		c = s->arrived.newest;
	while (c && !(c->owner == owner && atomic_load(&c->queued[what]) && hold(c)))
		c = c->older;
	if (c)
		call_unqueue(c);
	pthread_mutex_unlock(&s->arrived.lock);
	return c;
}

int call_check_queue(struct server *s, uint64_t owner, struct err *e)
{
	int r;

	pthread_mutex_lock(&s->arrived.lock);
	r = check_room(s, QUEUE_REQUESTS, owner, 1, e);
	pthread_mutex_unlock(&s->arrived.lock);
	return r;
}

/* Adds `more` to what the call has in the queue. A call that was cancelled meanwhile has left the queue, and is not
 * counted there again. Call with arrived.lock held. */
static void count(struct call *c, enum queue_measure what, uint64_t more)
{
	pthread_mutex_lock(&c->shared.lock);
	if (!c->shared.failure.code) {
		atomic_fetch_add(&c->queued[what], more);
		atomic_fetch_add(&c->server->queued[what], more);
	}
	pthread_mutex_unlock(&c->shared.lock);
}

int call_queue(struct call *c, enum queue_measure what, uint64_t more, struct err *e)
{
	struct server *s = c->server;
	struct call *victim;
	struct err why;
	int r;

	/* Check and count are one step, so that all threads together never exceed the room, or an owner its half. */
	pthread_mutex_lock(&s->arrived.lock);
	r = check_room(s, what, c->owner, more, e);
	if (!r)
		count(c, what, more);
	pthread_mutex_unlock(&s->arrived.lock);
	while (!r && (victim = take_victim(s, what))) {
		err_set(&why, PROBLEM_QUEUE_FULL,
			"the queue is full, and this client had more than half of it; try again "
			"later");
		call_cancel(victim, &why);
		call_unref(victim);
	}
	return r;
}
