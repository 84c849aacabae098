/* A response that is kept: GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items, and POST
 * /v1/responses/{id}/cancel, which ends one that is being answered. Text threads answer, because a response may be
 * long. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/problem.h"
#include "daemon/request/call.h"
#include "daemon/request/responses.h"
#include "daemon/request/text.h"
#include "protocol/responses/answer.h"
#include "protocol/responses/list.h"

extern const struct endpoint endpoint_responses;

/* The request: the response's id, and the page of a list. */
struct own {
	char *id, *after; /* owned; after NULL: not given */
	struct responses_page page;
};

static void release(void *arg)
{
	struct own *own = arg;

	free(own->id);
	free(own->after);
	free(own);
}

static struct own *own_new(const char *id, const char *after)
{
	struct own *own = calloc(1, sizeof(*own));

	if (!own)
		return NULL;
	own->id = strdup(id);
	own->after = after ? strdup(after) : NULL;
	own->page = (struct responses_page){.limit = RESPONSES_PAGE, .after = own->after};
	if (own->id && (own->after || !after))
		return own;
	release(own);
	return NULL;
}

static int ask(struct server *s, const char *name, const char *const *values, void **ret_own,
	       struct err *e)
{
	const char *stream = values[0];

	if (stream && strcmp(stream, "false"))
		return err_param(e, PROBLEM_UNSUPPORTED, "stream",
				 "a response that is kept is not sent as a stream");
	*ret_own = own_new(name, NULL);
	return *ret_own ? 0 : err_no_memory(e);
}

static int ask_page(struct server *s, const char *name, const char *const *values, void **ret_own,
		    struct err *e)
{
	const char *limit = values[0], *order = values[1], *after = values[2];
	uint64_t n = RESPONSES_PAGE;
	struct own *own;

	if (limit && (option_size(limit, &n) < 0 || n < 1 || n > RESPONSES_PAGE_MAX))
		return err_param(e, EINVAL, "limit", "limit is \"%.40s\", but must be 1 to %d",
				 limit, RESPONSES_PAGE_MAX);
	if (order && strcmp(order, "asc") && strcmp(order, "desc"))
		return err_param(e, EINVAL, "order", "order is \"%.40s\", but must be asc or desc",
				 order);
	own = own_new(name, after);
	if (!own)
		return err_no_memory(e);
	own->page.limit = n;
	own->page.rising = order && order[0] == 'a';
	*ret_own = own;
	return 0;
}

static int unknown(const struct own *own, struct err *e)
{
	return err_set(e, PROBLEM_UNKNOWN_RESPONSE, "no response with the id \"%.60s\" is kept",
		       own->id);
}

static int show(struct call *c, struct buf *out, struct err *e)
{
	const struct own *own = c->http.own;
	struct response_entry *found = responses_find(c->server, own->id, c->owner);
	int r;

	if (!found)
		return unknown(own, e);
	r = text_weigh(c, response_entry_length(found), e);
	if (r == 0)
		response_entry_write(found, out);
	responses_drop(c->server, found);
	return r;
}

static int forget(struct call *c, struct buf *out, struct err *e)
{
	const struct own *own = c->http.own;

	if (!responses_delete(c->server, own->id, c->owner))
		return unknown(own, e);
	responses_body_deleted(own->id, out);
	return 0;
}

static int list(struct call *c, struct buf *out, struct err *e)
{
	const struct own *own = c->http.own;
	const struct pace pace = prepare_pace(c);
	struct response_entry *found = responses_find(c->server, own->id, c->owner);
	struct response_text *texts = NULL;
	size_t n;
	int r;

	if (!found)
		return unknown(own, e);
	r = text_weigh(c, response_entry_conversation(found), e);
	if (r == 0 && response_entry_texts(found, false, &texts, &n) < 0)
		r = err_no_memory(e);
	if (r == 0)
		r = responses_list(texts, n, &own->page, &pace, out, e);
	free(texts);
	responses_drop(c->server, found);
	return r;
}

/* Ends the response if it is being answered. One that is complete stays as it is, and is the answer. */
static int cancel(struct call *c, struct buf *out, struct err *e)
{
	const struct own *own = c->http.own;
	struct call *found = call_find(c->server, own->id);
	struct err why = {0};
	int r;

	if (found && !strcmp(found->id, own->id) && found->owner == c->owner &&
	    found->endpoint == &endpoint_responses) {
		err_set(&why, PROBLEM_ABORTED, "the client has cancelled this response");
		call_cancel(found, &why);
		log_info("%s: %s is cancelled", c->id, own->id);
		responses_body_cancelled(found->id, found->created, c->server->name, out);
		r = 0;
	} else {
		r = show(c, out, e);
	}
	call_unref(found);
	return r;
}

static const struct endpoint endpoint_response_delete = {
	.path = "/v1/responses/",
	.named = true,
	.removes = true,
	.id = "delete-",
	.ask = ask,
	.reply = forget,
	.release = release,
};

const struct endpoint endpoint_response = {
	.path = "/v1/responses/",
	.named = true,
	.remove = &endpoint_response_delete,
	.id = "get-",
	.arguments = {"stream"},
	.ask = ask,
	.reply = show,
	.release = release,
};

const struct endpoint endpoint_response_input_items = {
	.path = "/v1/responses/",
	.named = true,
	.behind = "/input_items",
	.id = "items-",
	.arguments = {"limit", "order", "after"},
	.ask = ask_page,
	.reply = list,
	.release = release,
};

const struct endpoint endpoint_response_cancel = {
	.path = "/v1/responses/",
	.named = true,
	.behind = "/cancel",
	.post = true,
	.id = "cancel-",
	.ask = ask,
	.reply = cancel,
	.release = release,
};
