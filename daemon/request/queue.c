/* The calls whose body has arrived, so that one of them can be found. */
#include <string.h>

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

/* Takes a reference of a call in the list, unless it has none any more: then it is about to leave. */
static bool hold(struct call *c)
{
	uint32_t refs = atomic_load(&c->refs);

	while (refs && !atomic_compare_exchange_weak(&c->refs, &refs, refs + 1))
		;
	return refs;
}

struct call *call_find(struct server *s, const char *id)
{
	struct call *c;

	pthread_mutex_lock(&s->arrived.lock);
	for (c = s->arrived.newest; c && strcmp(c->id, id) != 0; c = c->older)
		;
	if (c && !hold(c))
		c = NULL;
	pthread_mutex_unlock(&s->arrived.lock);
	return c;
}
