/* POST /v1/responses and POST /v1/responses/input_tokens, the number of tokens of its prompt. A complete answer is kept
 * (daemon/request/responses.h), unless the request says store false. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "daemon/request/call.h"
#include "daemon/request/responses.h"
#include "daemon/request/text.h"
#include "protocol/openai/tokenize.h"
#include "protocol/responses/answer.h"
#include "protocol/responses/request.h"

/* The object of a call. http makes it, a text thread sets `goes_on` and `previous`. */
struct own {
	struct server *server;
	bool goes_on; /* from previous_response_id, whose conversation is in `previous` */
	struct response_hold previous;
};

static int ask(struct server *s, const char *name, const char *const *values, void **ret_own,
	       struct err *e)
{
	struct own *own = calloc(1, sizeof(*own));

	if (!own)
		return err_no_memory(e);
	own->server = s;
	*ret_own = own;
	return 0;
}

static void release(void *arg)
{
	struct own *own = arg;

	responses_release(own->server, &own->previous);
	free(own);
}

static int recall(void *arg, const char *id, struct buf *out, struct err *e)
{
	struct call *c = arg;
	struct own *own = c->http.own;
	struct response_entry *found = responses_find(c->server, id, c->owner);
	int r;

	if (!found)
		return err_param(e, PROBLEM_UNKNOWN_PREVIOUS, "previous_response_id",
				 "no response with the id \"%.60s\" is kept", id);
	r = text_weigh(c, response_entry_conversation(found), e);
	if (r == 0) {
		response_entry_items(found, out);
		responses_hold(c->server, found, &own->previous);
		own->goes_on = true;
	}
	responses_drop(c->server, found);
	return r;
}

/* ---- the answer ---- */

struct writer {
	struct call *call;
	struct responses_answer *answer;
};

static void *begin(struct call *c, const struct openai_head *h)
{
	const struct responses_request *own = c->text.ask.responses;
	const struct responses_head head = {.fields = own->fields,
					    .fields_len = own->fields_len,
					    .stream = c->text.ask.stream,
					    .encrypted = own->encrypted};
	struct writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->call = c;
	w->answer = responses_answer_new(h, &head);
	if (w->answer)
		return w;
	free(w);
	return NULL;
}

static int take(void *arg, const struct openai_delta *d)
{
	struct writer *w = arg;

	return responses_answer_take(w->answer, d);
}

static struct response_text text_of(const struct buf *b)
{
	return (struct response_text){buf_str(b), b->len};
}

/* Keeps the response. If memory is short, the client gets it all the same. */
static void keep(struct writer *w)
{
	const struct call *c = w->call;
	const struct responses_request *own = c->text.ask.responses;
	const struct own *object = c->http.own;
	struct buf head, items, tail;

	if (!own->store ||
	    !responses_take(c->server, responses_answer_bytes(w->answer) + own->input_len))
		return;
	buf_init(&head, SIZE_MAX / 2);
	buf_init(&items, SIZE_MAX / 2);
	buf_init(&tail, SIZE_MAX / 2);
	responses_answer_parts(w->answer, &head, &items, &tail);
	if (!head.failed && !items.failed && !tail.failed)
		responses_put(c->server,
			      &(struct response_record){.id = c->id,
							.owner = c->owner,
							.input = {own->input, own->input_len},
							.output = text_of(&items),
							.head = text_of(&head),
							.tail = text_of(&tail)},
			      object->goes_on ? &object->previous : NULL);
	buf_release(&head);
	buf_release(&items);
	buf_release(&tail);
}

static int end(void *arg, const struct openai_usage *u)
{
	struct writer *w = arg;
	int r = responses_answer_end(w->answer, u);

	if (r == 0)
		keep(w);
	return r;
}

static int fail(void *arg, const struct err *e)
{
	return responses_answer_fail(((struct writer *)arg)->answer, e);
}

static bool write(void *arg, size_t enough, struct buf *out)
{
	return responses_answer_write(((struct writer *)arg)->answer, enough, out);
}

static size_t bytes(const void *arg)
{
	return responses_answer_bytes(((const struct writer *)arg)->answer);
}

static void release_writer(void *arg)
{
	struct writer *w = arg;

	responses_answer_free(w->answer);
	free(w);
}

static const struct answer_writer writer = {
	.begin = begin,
	.take = take,
	.end = end,
	.fail = fail,
	.write = write,
	.bytes = bytes,
	.release = release_writer,
};

static int count(struct call *c, struct buf *out, struct err *e)
{
	size_t n = 0;
	int r = prepare_count(c, responses_parse, &n, e);

	if (!r)
		openai_body_count(n, out);
	return r;
}

const struct endpoint endpoint_responses_count = {
	.path = "/v1/responses/input_tokens",
	.post = true,
	.id = "count-",
	.ask = ask,
	.release = release,
	.recall = recall,
	.reply = count,
};

const struct endpoint endpoint_responses = {
	.path = "/v1/responses",
	.post = true,
	.id = "resp_",
	.ask = ask,
	.release = release,
	.parse = responses_parse,
	.recall = recall,
	.reasoning = true,
	.writer = &writer,
};
