#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/problem.h"
#include "daemon/http/cors.h"
#include "daemon/http/exchange.h"
#include "daemon/lifecycle.h"

enum {
	/* The body of a call's answer that is neither a stream nor an error is sent in pieces if it has more bytes than
	 * this. A shorter one, an error, and an answer without a call are sent whole. */
	SHORT = 64 << 10,
	/* libmicrohttpd asks for at most so many bytes at once of a body in pieces, or of a stream */
	BLOCK = 16 << 10,
	TOKENS_KEPT = 64 << 10, /* a larger buffer of records is freed when all of them are used */
	WANTED_HEADERS_MAX =
		2 << 10, /* the most bytes of Access-Control-Request-Headers that are repeated */
	WITHIN_BODY = 8 << 10,	  /* the most bytes of the answer of send_within_body */
	NO_MEMORY_BODY = 1 << 10, /* the most bytes of the body of send_no_memory */
};

/* Seconds in Retry-After, with status 503 and 429. */
#define RETRY_UNAVAILABLE "2"
#define RETRY_BUSY	  "1"

static const char type_json[] = "application/json";

/* ---- whole answers ---- */

/* The headers of an answer, but for those of its content and of OPTIONS. */
struct headers {
	struct header {
		const char *name, *value;
	} v[8];
	size_t n;
	char hit[80]; /* the value of X-Tigon-Cache */
};

static void add(struct headers *h, const char *name, const char *value)
{
	assert(h->n < ARRAY_SIZE(h->v));
	h->v[h->n++] = (struct header){name, value};
}

/* Returns whether pages of web sites may read such answers at all (--cors-origin). */
static bool has_cors(const struct exchange *x)
{
	return !x->endpoint || !x->endpoint->guarded;
}

/* Returns the pages that may read the answer: "*", or the origin of the one that asks. NULL: none. */
static const char *readers(struct MHD_Connection *mc, const struct exchange *x)
{
	const char *list = x->http->server->options.cors_origin;
	const char *origin = exchange_header(mc, "Origin");

	if (!has_cors(x))
		return NULL;
	if (cors_is_open(list))
		return "*";
	return cors_names(list, origin) ? origin : NULL;
}

/* Lists the headers of an answer with this status. Their values are valid as long as the request, *x and *h are. */
static void list_headers(struct MHD_Connection *mc, const struct exchange *x, unsigned status,
			 struct headers *h)
{
	const char *origin = readers(mc, x);
	const bool ends = lifecycle_state(x->http->server->lifecycle) >= LIFECYCLE_DRAINING;
	const char *id = x->access.id[0] ? x->access.id : x->call ? x->call->id : x->id;

	h->n = 0;
	if (origin) {
		add(h, "Access-Control-Allow-Origin", origin);
		add(h, "Access-Control-Expose-Headers",
		    "X-Request-Id, X-Tigon-Cache, request-id, Retry-After");
	}
	/* A cache must not give one page the answer to another. */
	if (has_cors(x) && !cors_is_open(x->http->server->options.cors_origin))
		add(h, "Vary", "Origin");
	if (id[0]) {
		add(h, "X-Request-Id", id);
		if (exchange_dialect(x)->id_header)
			add(h, exchange_dialect(x)->id_header, id);
	}
	if (x->call && call_describe_hit(x->call, h->hit, sizeof(h->hit)))
		add(h, "X-Tigon-Cache", h->hit);
	if (x->close || ends)
		add(h, "Connection", "close");
	switch (status) {
	case MHD_HTTP_METHOD_NOT_ALLOWED:
		if (x->endpoint)
			add(h, "Allow", exchange_methods(x->endpoint));
		break;
	case MHD_HTTP_UNAUTHORIZED: add(h, "WWW-Authenticate", "Bearer"); break;
	case MHD_HTTP_TOO_MANY_REQUESTS: add(h, "Retry-After", RETRY_BUSY); break;
	case MHD_HTTP_SERVICE_UNAVAILABLE: add(h, "Retry-After", RETRY_UNAVAILABLE); break;
	}
}

/* Returns whether a text has only characters of names of headers, and commas and blanks between them. */
static bool is_list_of_names(const char *text)
{
	for (; *text; text++)
		if (!framing_in_token(*text) && !strchr(", \t", *text))
			return false;
	return true;
}

/* Adds the headers of an answer to OPTIONS. */
static void add_options_headers(struct MHD_Connection *mc, struct MHD_Response *r,
				const struct exchange *x)
{
	const char *methods = x->endpoint ? exchange_methods(x->endpoint) : "GET, POST, OPTIONS";
	const char *wanted = exchange_header(mc, "Access-Control-Request-Headers");

	/* An answer has room for so many names. A name that is none is not repeated. */
	if (wanted && (strlen(wanted) > WANTED_HEADERS_MAX || !is_list_of_names(wanted)))
		wanted = NULL;

	MHD_add_response_header(r, "Allow", methods);
	if (!readers(mc, x))
		return;
	MHD_add_response_header(r, "Access-Control-Allow-Methods", methods);
	/* The value "*" would not include Authorization. */
	MHD_add_response_header(r, "Access-Control-Allow-Headers",
				wanted ? wanted
				       : "Authorization, Content-Type, X-API-Key, X-Request-Id, "
					 "Anthropic-Version, Anthropic-Beta");
	MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
}

/* Notes that an answer with this status begins, for the log and the metrics, and that its client has to read it. */
static void begin_answer(struct exchange *x, unsigned status)
{
	x->access.status = status;
	if (x->call)
		call_waits(x->call, true);
	else
		watch_answering(x->http->watch, x->connection, NULL);
	metrics_response(&x->http->server->metrics, x->endpoint ? x->endpoint->path : "other",
			 status);
}

static enum MHD_Result queue_response(struct MHD_Connection *mc, struct exchange *x,
				      unsigned status, struct MHD_Response *r) ON(role_http)
{
	struct headers h;
	enum MHD_Result ok;

	list_headers(mc, x, status, &h);
	for (size_t i = 0; i < h.n; i++)
		MHD_add_response_header(r, h.v[i].name, h.v[i].value);
	if (x->options)
		add_options_headers(mc, r, x);
	begin_answer(x, status);
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
		return send_no_memory(mc, x->http, x);
	}
	*body = (struct buf){0};
	if (type)
		MHD_add_response_header(r, "Content-Type", type);
	return queue_response(mc, x, status, r);
}

/* Gives a request an id, by which its error is found in the log, if it has neither a call nor an id of the client. */
static void name_request(struct exchange *x)
{
	if (!x->call && !x->access.id[0])
		access_make_id("req_", x->id);
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

	name_request(x);
	buf_init(&body, 64 << 10);
	status = exchange_dialect(x)->error(e, &body);
	if (!body.failed) /* else send_whole sends another error */
		note_error(x, e);
	return send_whole(mc, x, (unsigned)status, type_json, &body);
}

/* Writes bytes past libmicrohttpd. False: not all of them could be written. */
static bool write_now(struct tls *tls, int fd, const char *data, size_t len)
{
	if (tls)
		return tls_write(tls, data, len);
	return send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

bool send_within_body(struct MHD_Connection *mc, struct exchange *x, const struct err *e)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct headers h;
	struct buf body, out;
	int status;

	x->close = true;
	name_request(x);
	buf_init(&body, WITHIN_BODY);
	buf_init(&out, WITHIN_BODY);
	status = exchange_dialect(x)->error(e, &body);
	buf_printf(&out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n", status,
		   MHD_get_reason_phrase_for((unsigned)status), type_json, body.len);
	list_headers(mc, x, (unsigned)status, &h);
	for (size_t i = 0; i < h.n; i++)
		buf_printf(&out, "%s: %s\r\n", h.v[i].name, h.v[i].value);
	buf_puts(&out, "\r\n");
	if (strcmp(x->access.method, "HEAD") != 0)
		buf_append(&out, body.data, body.len);
	x->told = info && !body.failed && !out.failed &&
		  write_now(x->tls, info->connect_fd, out.data, out.len);
	note_error(x, e);
	if (x->told) {
		if (x->tls)
			tls_close(x->tls);
		shutdown(info->connect_fd, SHUT_WR);
		begin_answer(x, (unsigned)status);
	}
	buf_release(&body);
	buf_release(&out);
	return x->told;
}

/* ---- memory is short ---- */

struct MHD_Response *send_make_no_memory(void)
{
	struct MHD_Response *r = NULL;
	struct buf body;
	struct err e;

	err_no_memory(&e);
	buf_init(&body, NO_MEMORY_BODY);
	openai_error(&e, &body);
	if (!body.failed)
		r = MHD_create_response_from_buffer(body.len, body.data, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		buf_release(&body);
		return NULL;
	}
	MHD_add_response_header(r, "Content-Type", type_json);
	MHD_add_response_header(r, "Connection", "close");
	MHD_add_response_header(r, "Retry-After", RETRY_UNAVAILABLE);
	return r;
}

enum MHD_Result send_no_memory(struct MHD_Connection *mc, struct http *h, struct exchange *x)
{
	struct err e;

	err_no_memory(&e);
	if (x) {
		note_error(x, &e);
		begin_answer(x, MHD_HTTP_SERVICE_UNAVAILABLE);
	} else {
		metrics_error(&h->server->metrics, e.code);
		metrics_response(&h->server->metrics, "other", MHD_HTTP_SERVICE_UNAVAILABLE);
	}
	return MHD_queue_response(mc, MHD_HTTP_SERVICE_UNAVAILABLE, h->no_memory);
}

/* ---- tokens ---- */

/* Tells the call how many bytes http keeps of its answer. `tokens` and `out` count with all of their memory (cap),
 * which does not shrink while their bytes are used. */
static void keep(struct exchange *x)
{
	size_t answer = x->answer ? answer_bytes(x->answer) : 0;

	call_keep(x->call, answer + x->call->http.own_bytes + x->tokens.cap + x->out.cap);
}

/* Takes the call's news, unless earlier news are not used up. False: there are no news, and the connection is
 * suspended. */
static bool take_news(struct exchange *x)
{
	if (x->feeding)
		return true;
	call_take(x->call, &x->tokens, connection_suspend, &x->news);
	if (x->news.slept)
		return false;
	x->tokens_at = 0;
	x->feeding = true;
	return true;
}

/* Makes text of some tokens; out as for answer_feed. 1: there is more to do; 0: all tokens are used; -ENOMEM. */
static int feed(struct exchange *x, struct buf *out)
{
	int r = answer_feed(x->answer, &x->tokens, &x->tokens_at, out);

	if (r <= 0) {
		x->feeding = false;
		if (x->tokens.cap > TOKENS_KEPT)
			buf_release(&x->tokens);
		buf_reset(&x->tokens);
	}
	keep(x);
	return r;
}

/* ---- answers in pieces, and streams ---- */

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

/* Appends to x->out the next bytes of an answer that is no stream, until x->out has `enough` bytes or the rest of the
 * answer. Sets x->over when x->out has the rest. If memory is short, sets x->out.failed. */
static void extend_body(struct exchange *x, size_t enough)
{
	int r;

	if (!x->answer) {
		x->over = x->endpoint->write(x->call->http.own, enough, &x->out);
		return;
	}
	r = answer_write(x->answer, enough, &x->out);
	x->over = !r;
	x->out.failed |= r < 0;
}

/* Appends to x->out some of the end of a complete stream. */
static void end_stream(struct exchange *x)
{
	int r = answer_end_stream(x->answer, &x->out);

	x->ending = r > 0;
	x->over = r <= 0;
	x->out.failed |= r < 0;
}

/* Appends to x->out the stream's next bytes: a comment if one is due, and the text of some tokens. When all tokens that
 * were taken are used, also appends the end of the stream if all choices have ended, or an error if the call has failed
 * or ended too early. Appends an error at once if memory is short. Sets x->over with the end or the error. */
static void extend_stream(struct exchange *x)
{
	struct err failure = x->news.failure;
	int r;

	/* The sign of life never stands within a chunk: news are taken only when all chunks of the earlier ones are
	 * written. */
	if (x->news.comment_due)
		exchange_dialect(x)->idle(&x->out);
	x->news.comment_due = false;
	r = feed(x, &x->out);
	if (r > 0)
		return;
	if (r < 0 && !failure.code)
		err_no_memory(&failure);
	else if (x->news.stage == CALL_ENDED && !failure.code)
		err_set(&failure, PROBLEM_INTERNAL, "the answer ended too early");
	if (!r && answer_complete(x->answer)) {
		end_stream(x);
	} else if (failure.code) {
		note_error(x, &failure);
		x->out.failed |= answer_fail_stream(x->answer, &failure, &x->out) < 0;
		x->over = true;
	}
}

/* Ends the connection, as the result of read_answer: shuts the connection down and gives a byte, which cannot be sent,
 * so that libmicrohttpd closes the connection. If it closes one by itself within MHD_connection_handle_idle, because it
 * was given MHD_CONTENT_READER_END_WITH_ERROR, or the end of an answer that is not sent in chunks, libmicrohttpd 0.9.75
 * forgets to clean it up. Such a connection keeps its descriptor until another event wakes the http thread, and even
 * then until no older connection is idle.
 *
 * Over TLS the client takes the answer for whole only if close_notify is its end, which libmicrohttpd would send too
 * late. */
static ssize_t end_connection(const struct exchange *x, char *to)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(x->call->http.connection,
					MHD_CONNECTION_INFO_CONNECTION_FD);

	if (!info)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (x->tls && x->over && !x->out.failed && !call_left(x->call))
		tls_close(x->tls);
	shutdown(info->connect_fd, SHUT_RDWR);
	*to = 0;
	return 1;
}

/* libmicrohttpd calls this function when it wants more bytes of a long answer or of a stream. The function may return 0
 * only after it has suspended the connection. */
static ssize_t read_answer(void *cls, uint64_t pos, char *to, size_t max)
{
	struct exchange *x = cls;
	size_t n;

	role_begin(&role_http);
	call_wake_others(x->call);
	for (;;) {
		n = drain_out(x, to, max);
		if (n) {
			keep(x);
			call_waits(x->call, true);
			return (ssize_t)n;
		}
		if (x->over && x->in_chunks)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (x->over || call_left(x->call))
			return end_connection(x, to);
		if (x->ending) {
			end_stream(x);
			keep(x);
		} else if (x->streams) {
			call_waits(x->call, false);
			if (!take_news(x))
				return 0;
			extend_stream(x);
			if (x->news.closing && !x->over)
				return end_connection(x, to);
			/* The tokens that were used now gave no bytes (scores of a prompt, for example, are written
			 * when all of them are known), and x->tokens has more. */
			if (x->feeding && !x->out.len && !x->out.failed) {
				connection_yield(x->call->http.connection);
				return 0;
			}
		} else {
			extend_body(x, BLOCK);
		}
		if (x->out.failed)
			return end_connection(x, to);
	}
}

/* Begins an answer whose bytes read_answer hands out. size: the number of the bytes, or MHD_SIZE_UNKNOWN. If the call
 * was given up before (call_give_up), sends that error instead. */
static enum MHD_Result send_pieces(struct MHD_Connection *mc, struct exchange *x, const char *type,
				   uint64_t size) ON(role_http)
{
	struct MHD_Response *r;
	struct err e;

	keep(x);
	if (!call_begin_answer(x->call, &e))
		return send_error(mc, x, &e);
	r = MHD_create_response_from_callback(size, BLOCK, read_answer, x, NULL);
	if (!r)
		return send_no_memory(mc, x->http, x);
	MHD_add_response_header(r, "Content-Type", type);
	if (x->streams) {
		MHD_add_response_header(r, "Cache-Control", "no-cache");
		/* Without this header nginx collects chunks instead of passing them on. */
		MHD_add_response_header(r, "X-Accel-Buffering", "no");
	}
	return queue_response(mc, x, MHD_HTTP_OK, r);
}

static enum MHD_Result send_stream(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	x->streams = true;
	return send_pieces(mc, x, exchange_dialect(x)->stream_type, MHD_SIZE_UNKNOWN);
}

/* Sends a body that is JSON. x->out has all of it if x->over is set, else its beginning. A short body is handed to
 * libmicrohttpd as a whole, and stays counted (keep) until the request is completed. */
static enum MHD_Result send_body(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	if (!x->over && !x->out.failed)
		return send_pieces(mc, x, type_json, MHD_SIZE_UNKNOWN);
	if (x->out.len > SHORT && !x->out.failed)
		return send_pieces(mc, x, type_json, x->out.len);
	keep(x);
	return send_whole(mc, x, MHD_HTTP_OK, type_json, &x->out);
}

/* ---- calls ---- */

/* Sends the answer of a call that is ANSWERED: the error of call_fail, the body of call_reply, or the body that
 * endpoint->write makes. */
static enum MHD_Result send_reply(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	if (x->news.failure.code)
		return send_error(mc, x, &x->news.failure);
	if (x->endpoint->write) {
		extend_body(x, SHORT);
	} else {
		call_take_reply(x->call, &x->out);
		x->over = true;
	}
	return send_body(mc, x);
}

/* Returns whether the headers of a stream are sent now. They have the number of cached tokens, so they wait for the
 * first token, drawn or scored. They are sent before it, perhaps without that number, when a comment is due, so that no
 * proxy gives up. They are also sent when the call has ended without a failure. As long as they are not sent, a failure
 * still gets a status of its own. */
static bool stream_begins(const struct exchange *x)
{
	return x->tokens.len || x->news.comment_due ||
	       (x->news.stage == CALL_ENDED && !x->news.failure.code);
}

/* For an answer that is sent whole: makes text of some tokens. If the answer is complete then, sends it. If the call
 * has failed or ended too early, or memory is short, sends the error. In both cases returns true, with the result in
 * *ret. False: there is nothing to send yet. */
static bool send_complete(struct MHD_Connection *mc, struct exchange *x, enum MHD_Result *ret)
	ON(role_http)
{
	struct err failure = x->news.failure;
	int r = feed(x, NULL);

	if (r > 0)
		return false;
	if (!r && answer_complete(x->answer)) {
		extend_body(x, SHORT);
		if (!x->out.failed) {
			*ret = send_body(mc, x);
			return true;
		}
		r = -ENOMEM;
	}
	if (r < 0)
		err_no_memory(&failure);
	else if (x->news.stage == CALL_ENDED && !failure.code)
		err_set(&failure, PROBLEM_INTERNAL, "the answer ended too early");
	if (failure.code)
		*ret = send_error(mc, x, &failure);
	return failure.code;
}

/* For a call that is RUNNING or ENDED: begins its stream, or sends its whole answer or its error, if one of these is
 * ready. Then returns true, with the result in *ret. False: there is nothing to send yet. */
static bool send_tokens(struct MHD_Connection *mc, struct exchange *x, enum MHD_Result *ret)
	ON(role_http)
{
	struct err failure = x->news.failure;

	if (!x->answer)
		x->answer = answer_new(x->call);
	if (!x->answer)
		err_no_memory(&failure);
	else if (!x->call->text.ask.stream)
		return send_complete(mc, x, ret);
	else if (stream_begins(x)) {
		*ret = send_stream(mc, x);
		return true;
	}
	x->feeding = false;
	if (failure.code)
		*ret = send_error(mc, x, &failure);
	return failure.code;
}

enum MHD_Result send_call(struct MHD_Connection *mc, struct exchange *x)
{
	enum MHD_Result r = MHD_NO;

	call_wake_others(x->call);
	for (;;) {
		if (!take_news(x))
			return MHD_YES;
		if (call_left(x->call))
			return MHD_NO;
		if (x->news.stage == CALL_ANSWERED)
			return send_reply(mc, x);
		if (x->news.closing)
			return MHD_NO;
		/* A WORKING call has news here only if its client left, and the call failed after call_take. */
		if (x->news.stage == CALL_WORKING)
			return MHD_NO;
		if (send_tokens(mc, x, &r))
			return r;
		if (x->feeding) {
			connection_yield(mc);
			return MHD_YES;
		}
	}
}
