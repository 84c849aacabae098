/* Leaves out messages of a chat until its prompt fits (request.h). */
#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request.h"

/* A chat's messages. A *start* is the number of the first one that is kept behind the system's message; of those before
 * it the user's last one is kept, too, because templates need one. */
struct chat {
	json_t *context;
	json_t *all; /* [n] owned */
	size_t n;
	size_t system; /* 1: the first message is the system's; else 0. It is the start with which all are kept. */
	size_t asked; /* the number behind the user's last message; `system`: there is none */
};

static bool has_role(const struct chat *c, size_t i, const char *role)
{
	return field_is(json_object_get(json_array_get(c->all, i), "role"), role);
}

/* Returns the number of the first message from `from` on that has this role; n or more: there is none. */
static size_t next_of_role(const struct chat *c, size_t from, const char *role)
{
	while (from < c->n && !has_role(c, from, role))
		from++;
	return from;
}

/* Returns the start behind this one; n or more: there is none. An eighth of the messages or more lies between the two,
 * so that a chat which grows keeps its start, and with it the prefix that is in the cache, for some turns. */
static size_t next_start(const struct chat *c, size_t start)
{
	if (start + 1 < c->asked)
		return next_of_role(c,
				    MIN(start + MAX((c->n - start) / 8, (size_t)1), c->asked - 1),
				    "user");
	start = MAX(start, c->asked);
	return next_of_role(c, start + MAX((c->n - start) / 8, (size_t)1), "assistant");
}

static size_t count_starts(const struct chat *c)
{
	size_t n = 0;

	for (size_t start = c->system; (start = next_start(c, start)) < c->n;)
		n++;
	return n;
}

/* Lets the context have the messages that are kept with start number i; number 0 keeps all. */
static int keep_from(const struct chat *c, size_t i, struct err *e)
{
	json_t *kept = json_array();
	size_t start = c->system;
	int r = kept ? 0 : err_no_memory(e);

	while (i--)
		start = next_start(c, start);
	for (size_t k = 0; r == 0 && k < c->n; k++)
		if ((k < c->system || k + 1 == c->asked || k >= start) &&
		    json_array_append(kept, json_array_get(c->all, k)) < 0)
			r = err_no_memory(e);
	if (r == 0)
		return field_set_new(c->context, "messages", kept, e);
	json_decref(kept);
	return r;
}

static int try(const struct chat *c, size_t i, openai_fits *fits, void *arg, struct err *e)
{
	int r = keep_from(c, i, e);

	return r < 0 ? r : fits(arg, e);
}

/* Finds a start that fits behind one that does not. Number 0 does not fit. The last is tried first: if it does not fit
 * either, none does. */
static int bisect(const struct chat *c, openai_fits *fits, void *arg, struct err *e)
{
	size_t wrong = 0, right = count_starts(c), i;
	int r = right ? try(c, right, fits, arg, e) : -PROBLEM_CONTEXT_LENGTH;

	if (r < 0)
		return r;
	while ((r == 0 || r == -PROBLEM_CONTEXT_LENGTH) && right - wrong > 1) {
		i = wrong + (right - wrong) / 2;
		r = try(c, i, fits, arg, e);
		if (r == 0)
			right = i;
		else
			wrong = i;
	}
	return r == -PROBLEM_CONTEXT_LENGTH ? try(c, right, fits, arg, e) : r;
}

int openai_truncate(json_t *context, openai_fits *fits, void *arg, struct err *e)
{
	struct chat c = {.context = context, .all = json_object_get(context, "messages")};
	int r = fits(arg, e);

	if (r != -PROBLEM_CONTEXT_LENGTH)
		return r;
	json_incref(c.all);
	c.n = json_array_size(c.all);
	c.system = has_role(&c, 0, "system");
	c.asked = c.n;
	while (c.asked > c.system && !has_role(&c, c.asked - 1, "user"))
		c.asked--;
	r = bisect(&c, fits, arg, e);
	json_decref(c.all);
	return r;
}
