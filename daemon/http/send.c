#include <string.h>

#include "base/problem.h"
#include "daemon/http/exchange.h"
#include "daemon/lifecycle.h"

enum {
	BLOCK = 32 << 10, /* the most bytes of a stream that libmicrohttpd asks for at once */
	/* seconds in Retry-After, with status 503 and with status 429 */
	RETRY_LOADING = 2,
	RETRY_BUSY = 1,
};

static const char type_json[] = "application/json";

/* ---- whole answers ---- */

static void add_error_headers(struct MHD_Response *r, const struct exchange *x, unsigned status)
{
	char seconds[16];

	if (status == MHD_HTTP_METHOD_NOT_ALLOWED && x->endpoint)
		MHD_add_response_header(r, "Allow", exchange_methods(x->endpoint));
	if (status != MHD_HTTP_TOO_MANY_REQUESTS && status != MHD_HTTP_SERVICE_UNAVAILABLE)
		return;
	snprintf(seconds, sizeof(seconds), "%d",
		 status == MHD_HTTP_TOO_MANY_REQUESTS ? RETRY_BUSY : RETRY_LOADING);
	MHD_add_response_header(r, "Retry-After", seconds);
}

/* Adds the headers of an answer to OPTIONS. */
static void add_options_headers(struct MHD_Connection *mc, struct MHD_Response *r,
				const struct exchange *x, bool cors)
{
	const char *methods = x->endpoint ? exchange_methods(x->endpoint) : "GET, POST, OPTIONS";
	const char *wanted = exchange_header(mc, "Access-Control-Request-Headers");

	MHD_add_response_header(r, "Allow", methods);
	if (!cors)
		return;
	MHD_add_response_header(r, "Access-Control-Allow-Methods", methods);
	/* The value "*" would not include Authorization. */
	MHD_add_response_header(r, "Access-Control-Allow-Headers",
				wanted ? wanted : "Authorization, Content-Type");
	MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
}

static void add_headers(struct MHD_Connection *mc, struct MHD_Response *r, const struct exchange *x)
{
	const bool cors = !x->endpoint || !x->endpoint->guarded;
	char hit[80];

	if (cors) {
		MHD_add_response_header(r, "Access-Control-Allow-Origin", "*");
		MHD_add_response_header(r, "Access-Control-Expose-Headers",
					"X-Request-Id, X-Tigon-Cache");
	}
	if (x->access.id[0] || x->call)
		MHD_add_response_header(r, "X-Request-Id",
					x->access.id[0] ? x->access.id : x->call->id);
	if (x->call && call_describe_hit(x->call, hit, sizeof(hit)))
		MHD_add_response_header(r, "X-Tigon-Cache", hit);
	if (x->close || lifecycle_state(x->http->server->lifecycle) >= LIFECYCLE_DRAINING)
		MHD_add_response_header(r, "Connection", "close");
	if (x->options)
		add_options_headers(mc, r, x, cors);
}

static enum MHD_Result queue_response(struct MHD_Connection *mc, struct exchange *x,
				      unsigned status, struct MHD_Response *r)
{
	enum MHD_Result ok;

	add_headers(mc, r, x);
	add_error_headers(r, x, status);
	x->access.status = status;
	metrics_response(&x->http->server->metrics, x->endpoint ? x->endpoint->path : "other",
			 status);
	ok = MHD_queue_response(mc, status, r);
	MHD_destroy_response(r);
	return ok;
}

enum MHD_Result send_whole(struct MHD_Connection *mc, struct exchange *x, unsigned status,
			   const char *type, struct buf *body)
{
	struct MHD_Response *r = NULL;

	if (!body->failed)
		r = MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		buf_release(body);
		return MHD_NO;
	}
	*body = (struct buf){0};
	if (type)
		MHD_add_response_header(r, "Content-Type", type);
	return queue_response(mc, x, status, r);
}

/* Notes an error that the client gets, for the log and the metrics. */
static void note_error(struct exchange *x, const struct err *e)
{
	access_fail(&x->access, e);
	metrics_error(&x->http->server->metrics, e->code);
}

enum MHD_Result send_error(struct MHD_Connection *mc, struct exchange *x, const struct err *e)
{
	struct buf body;
	int status;

	note_error(x, e);
	buf_init(&body, 64 << 10);
	status = openai_error(e, &body);
	return send_whole(mc, x, (unsigned)status, type_json, &body);
}

/* ---- streams ---- */

static void suspend(void *connection)
{
	MHD_suspend_connection(connection);
}

/* Moves at most max bytes that are ready from x->out to `to`, and returns their number. */
static size_t drain_out(struct exchange *x, char *to, size_t max)
{
	size_t n = MIN(x->out.len - x->out_at, max);

	if (n)
		memcpy(to, x->out.data + x->out_at, n);
	x->out_at += n;
	if (x->out_at == x->out.len) {
		buf_reset(&x->out);
		x->out_at = 0;
	}
	return n;
}

/* Appends the stream's next bytes to x->out: a comment if one is due, the text of the new tokens, and the end of the
 * stream if all choices have ended or the call has failed. */
static void extend_stream(struct exchange *x, const struct buf *tokens,
			  const struct call_news *news)
{
	struct err failure = news->failure;

	if (news->comment_due)
		openai_stream_comment(&x->out);
	if (answer_feed(x->answer, tokens, &x->out) < 0 && !failure.code)
		err_no_memory(&failure);
	else if (news->stage == CALL_ENDED && !failure.code)
		err_set(&failure, PROBLEM_INTERNAL, "the answer ended too early");
	if (answer_complete(x->answer)) {
		answer_end_stream(x->answer, &x->out);
		x->stream_over = true;
	} else if (failure.code) {
		note_error(x, &failure);
		openai_stream_error(&failure, &x->out);
		x->stream_over = true;
	}
}

/* libmicrohttpd calls this function when it wants more bytes of the stream. The function may return 0 only after it has
 * suspended the connection. */
static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t max)
{
	struct exchange *x = cls;
	struct call_news news;
	struct buf tokens;
	size_t n;

	role_begin(&role_http);
	for (;;) {
		n = drain_out(x, to, max);
		if (n)
			return (ssize_t)n;
		if (x->stream_over)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (atomic_load(&x->call->aborted))
			return MHD_CONTENT_READER_END_WITH_ERROR;
		buf_init(&tokens, SIZE_MAX / 2);
		call_take(x->call, &tokens, suspend, &news);
		if (news.slept)
			return 0;
		extend_stream(x, &tokens, &news);
		buf_release(&tokens);
		if (x->out.failed || (news.closing && !x->stream_over))
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
}

static enum MHD_Result send_stream(struct MHD_Connection *mc, struct exchange *x)
{
	struct MHD_Response *r =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, NULL);

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
	MHD_add_response_header(r, "Cache-Control", "no-cache");
	/* Without this header nginx collects chunks instead of passing them on. */
	MHD_add_response_header(r, "X-Accel-Buffering", "no");
	return queue_response(mc, x, MHD_HTTP_OK, r);
}

/* ---- calls ---- */

/* Sends the answer of a call that is ANSWERED: the error of call_fail, the body of call_reply, or the body that
 * endpoint->write makes. */
static enum MHD_Result send_reply(struct MHD_Connection *mc, struct exchange *x,
				  const struct err *failure) ON(role_http)
{
	struct buf body;

	if (failure->code)
		return send_error(mc, x, failure);
	if (x->endpoint->write) {
		buf_init(&body, SIZE_MAX / 2);
		x->endpoint->write(x->call->http.own, &body);
	} else {
		call_take_reply(x->call, &body);
	}
	return send_whole(mc, x, MHD_HTTP_OK, type_json, &body);
}

/* Whether the headers of a stream are sent now. They have the number of cached tokens, so they wait for the first
 * token. They are sent before it, perhaps without that number, when a comment is due, so that no proxy gives up. They
 * are also sent when the call has ended without a failure. As long as they are not sent, a failure still gets a status
 * of its own. */
static bool stream_begins(const struct buf *tokens, const struct call_news *news)
{
	return tokens->len || news->comment_due ||
	       (news->stage == CALL_ENDED && !news->failure.code);
}

/* Makes text of the tokens. Then sends the answer if it is complete, begins its stream, or sends an error; if so,
 * returns true, with the result in *ret. False: there is nothing to send yet. */
static bool send_tokens(struct MHD_Connection *mc, struct exchange *x, const struct buf *tokens,
			const struct call_news *news, enum MHD_Result *ret) ON(role_http)
{
	const bool stream = x->call->text.ask.stream;
	struct err failure = news->failure;
	struct buf body;

	if (!x->answer) {
		x->answer = answer_new(x->call);
		buf_init(&x->out, SIZE_MAX / 2);
	}
	if (!x->answer || answer_feed(x->answer, tokens, stream ? &x->out : NULL) < 0) {
		err_no_memory(&failure);
	} else if (stream && stream_begins(tokens, news)) {
		if (news->comment_due)
			openai_stream_comment(&x->out);
		*ret = send_stream(mc, x);
		return true;
	} else if (answer_complete(x->answer)) {
		buf_init(&body, SIZE_MAX / 2);
		answer_body(x->answer, &body);
		*ret = send_whole(mc, x, MHD_HTTP_OK, type_json, &body);
		return true;
	} else if (news->stage == CALL_ENDED && !failure.code) {
		err_set(&failure, PROBLEM_INTERNAL, "the answer ended too early");
	}
	if (failure.code)
		*ret = send_error(mc, x, &failure);
	return failure.code;
}

enum MHD_Result send_call(struct MHD_Connection *mc, struct exchange *x)
{
	enum MHD_Result r = MHD_NO;
	struct call_news news;
	bool over = false;
	struct buf tokens;

	while (!over) {
		buf_init(&tokens, SIZE_MAX / 2);
		call_take(x->call, &tokens, suspend, &news);
		if (news.slept)
			return MHD_YES;
		over = true;
		if (atomic_load(&x->call->aborted))
			r = MHD_NO;
		else if (news.stage == CALL_ANSWERED)
			r = send_reply(mc, x, &news.failure);
		else if (!news.closing) /* the stage is RUNNING or ENDED */
			over = send_tokens(mc, x, &tokens, &news, &r);
		buf_release(&tokens);
	}
	return r;
}
