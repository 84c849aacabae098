/* POST /abort?id=ID: ends a request. It needs no body and no place in the queue, so it works even when the queue and
 * the memory for bodies are full. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/problem.h"
#include "daemon/request/call.h"
#include "protocol/openai/writer.h"

static int ask(struct server *s, const char *name, const char *const *values, void **ret_own,
	       struct err *e)
{
	if (!values[0])
		return err_param(e, EINVAL, "id", "the query has to name a request: ?id=ID");
	*ret_own = strdup(values[0]);
	return *ret_own ? 0 : err_no_memory(e);
}

static void visit(struct call *c, struct loop *l) ON(role_engine)
{
	const char *id = c->http.own;
	struct call *found = call_find(c->server, id);
	struct err e = {0};
	struct buf body;

	if (!found) {
		err_param(&e, PROBLEM_UNKNOWN_REQUEST, "id",
			  "no request that is being answered has the id \"%.60s\"", id);
		call_fail(c, &e);
		return;
	}
	err_set(&e, PROBLEM_ABORTED, "the server's operator has ended this request");
	call_cancel(found, &e);
	call_unref(found);
	log_info("%s: %s is aborted", c->id, id);
	buf_init(&body, 1024);
	buf_puts(&body, "{\"aborted\":");
	writer_string(&body, id, strlen(id));
	buf_putc(&body, '}');
	call_reply(c, &body);
}

const struct endpoint endpoint_abort = {
	.path = "/abort",
	.post = true,
	.admin = true,
	.guarded = true,
	.id = "abort-",
	.arguments = {"id"},
	.ask = ask,
	.visit = visit,
	.release = free,
};
