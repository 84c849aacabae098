#include "daemon/http/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/request/answer.h"
#include "daemon/lifecycle.h"
#include "daemon/endpoints/routes.h"
#include "daemon/request/text.h"
#include "daemon/threads.h"
#include "protocol/openai/response.h"

enum {
	CONNECTIONS_MAX = 4096,	   /* or what descriptors allow; further ones wait unaccepted */
	DESCRIPTORS_RESERVED = 64, /* for everything that is no connection */
	CONNECTION_MEMORY =
		64 << 10, /* of libmicrohttpd: headers and the piece of a body at work */
	INACTIVE_SECONDS = 120,
	BLOCK = 32 << 10, /* largest piece of a stream handed over at once */
	BODIES_MAX = 16,  /* bodies of the largest size that are in memory at the same time */
	DISCARD_FACTOR =
		4, /* a body longer than this times the limit is cut off, not read through */
	RETRY_LOADING = 2, /* seconds for Retry-After */
	RETRY_BUSY = 1,
};

struct http {
	struct server *server;
	struct watch *watch;
	struct MHD_Daemon *daemon;
	_Atomic bool closing;
};

/* One request and its answer, from its headers until libmicrohttpd calls it completed. */
struct exchange {
	struct http *http;
	struct connection *connection; /* borrowed */
	const struct route *route;     /* NULL: there is none */
	struct err error;	       /* code 0: none so far */
	bool options, close;
	struct buf body;
	uint64_t received;
	struct tree_ask tree_ask; /* of GET /cache */
	struct call *call;	  /* owned reference */
	struct answer *answer;	  /* once the call runs */
	/* a stream */
	struct buf out; /* bytes out_at .. len are yet to go */
	size_t out_at;
	bool stream_over; /* everything is in out */
};

static void suspend(void *connection)
{
	MHD_suspend_connection(connection);
}

static void resume(void *connection)
{
	MHD_resume_connection(connection);
}

static const char *header(struct MHD_Connection *mc, const char *name)
{
	return MHD_lookup_connection_value(mc, MHD_HEADER_KIND, name);
}

/* ---- answers that are whole ---- */

static void add_error_headers(struct MHD_Response *r, const struct exchange *x, unsigned status)
{
	char seconds[16];

	if (status == MHD_HTTP_METHOD_NOT_ALLOWED && x->route)
		MHD_add_response_header(r, "Allow", routes_methods(x->route));
	if (status != MHD_HTTP_TOO_MANY_REQUESTS && status != MHD_HTTP_SERVICE_UNAVAILABLE)
		return;
	snprintf(seconds, sizeof(seconds), "%d",
		 status == MHD_HTTP_TOO_MANY_REQUESTS ? RETRY_BUSY : RETRY_LOADING);
	MHD_add_response_header(r, "Retry-After", seconds);
}

static void add_headers(struct MHD_Connection *mc, struct MHD_Response *r, const struct exchange *x)
{
	const char *wanted;
	char hit[80];

	const bool cors = !x->route || !x->route->guarded;

	if (cors) {
		MHD_add_response_header(r, "Access-Control-Allow-Origin", "*");
		MHD_add_response_header(r, "Access-Control-Expose-Headers",
					"X-Request-Id, X-Tigon-Cache");
	}
	if (x->call)
		MHD_add_response_header(r, "X-Request-Id", x->call->id);
	if (x->call && call_describe_hit(x->call, hit, sizeof(hit)))
		MHD_add_response_header(r, "X-Tigon-Cache", hit);
	if (x->close || lifecycle_state(x->http->server->lifecycle) >= LIFECYCLE_DRAINING)
		MHD_add_response_header(r, "Connection", "close");
	if (!x->options)
		return;
	wanted = header(mc, "Access-Control-Request-Headers");
	MHD_add_response_header(r, "Allow",
				x->route ? routes_methods(x->route) : "GET, POST, OPTIONS");
	if (!cors)
		return;
	MHD_add_response_header(r, "Access-Control-Allow-Methods",
				x->route ? routes_methods(x->route) : "GET, POST, OPTIONS");
	/* "*" does not stand for Authorization. */
	MHD_add_response_header(r, "Access-Control-Allow-Headers",
				wanted ? wanted : "Authorization, Content-Type");
	MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
}

/* Sends a whole answer; the buffer's memory is taken. */
static enum MHD_Result send_whole(struct MHD_Connection *mc, struct exchange *x, unsigned status,
				  const char *type, struct buf *body)
{
	struct MHD_Response *r;
	enum MHD_Result ok;

	if (body->failed) {
		buf_release(body);
		return MHD_NO;
	}
	r = MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		buf_release(body);
		return MHD_NO;
	}
	*body = (struct buf){0};
	if (type)
		MHD_add_response_header(r, "Content-Type", type);
	add_headers(mc, r, x);
	add_error_headers(r, x, status);
	metrics_response(&x->http->server->metrics, status);
	ok = MHD_queue_response(mc, status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result send_error(struct MHD_Connection *mc, struct exchange *x,
				  const struct err *e)
{
	struct buf body;
	int status;

	buf_init(&body, 64 << 10);
	status = openai_error(e, &body);
	return send_whole(mc, x, (unsigned)status, "application/json", &body);
}

/* ---- streams ---- */

/* Copies what is ready; 0 when there is nothing. */
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

/* Turns the news of a call into bytes of the stream. */
static void extend_stream(struct exchange *x, const struct buf *tokens,
			  const struct call_news *news)
{
	struct err failure = news->failure;

	if (news->comment_due)
		openai_stream_comment(&x->out);
	if (answer_feed(x->answer, tokens, &x->out) < 0 && !failure.code)
		err_set(&failure, ENOMEM, "out of memory");
	else if (news->stage == CALL_ENDED && !failure.code)
		err_set(&failure, EFAULT, "the answer ended too early");
	if (answer_complete(x->answer)) {
		answer_end_stream(x->answer, &x->out);
		x->stream_over = true;
	} else if (failure.code) {
		openai_stream_error(&failure, &x->out);
		openai_stream_done(&x->out);
		x->stream_over = true;
	}
}

/* libmicrohttpd wants bytes. Returning 0 is allowed only when the connection was suspended. */
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
	enum MHD_Result ok;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
	MHD_add_response_header(r, "Cache-Control", "no-cache");
	/* nginx would hold chunks back. */
	MHD_add_response_header(r, "X-Accel-Buffering", "no");
	add_headers(mc, r, x);
	metrics_response(&x->http->server->metrics, MHD_HTTP_OK);
	ok = MHD_queue_response(mc, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return ok;
}

/* ---- calls ---- */

/* Whether the headers of a stream go out now: with the first token, since they tell what was
 * cached; with a comment when that takes long, so that nobody between gives up; at the end. Until
 * then a failure has a status. */
static bool stream_begins(const struct buf *tokens, const struct call_news *news)
{
	return tokens->len || news->comment_due ||
	       (news->stage == CALL_ENDED && !news->failure.code);
}

/* The call's answer as far as it is known: sleeps, answers or begins a stream. */
static enum MHD_Result look_at_call(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	struct call *c = x->call;
	struct call_news news;
	struct buf tokens, body;
	bool begins;
	int r = 0;

	buf_init(&tokens, SIZE_MAX / 2);
	call_take(c, &tokens, suspend, &news);
	if (news.slept)
		return MHD_YES;
	/* It does not sleep then, and what follows is for calls that have been prepared. */
	if (atomic_load(&c->aborted)) {
		buf_release(&tokens);
		return MHD_NO;
	}
	if (news.stage == CALL_ANSWERED) {
		body = c->shared.reply;
		c->shared.reply = (struct buf){0};
		if (news.failure.code)
			return send_error(mc, x, &news.failure);
		if (c->shared.tree) {
			buf_init(&body, SIZE_MAX / 2);
			tree_write(c->shared.tree, &body);
		}
		return send_whole(mc, x, MHD_HTTP_OK, "application/json", &body);
	}
	if (news.closing) {
		buf_release(&tokens);
		return MHD_NO;
	}
	if (!x->answer) {
		x->answer = answer_new(c);
		buf_init(&x->out, SIZE_MAX / 2);
	}
	if (!x->answer)
		r = -ENOMEM;
	else
		r = answer_feed(x->answer, &tokens, c->text.ask.stream ? &x->out : NULL);
	begins = c->text.ask.stream && stream_begins(&tokens, &news);
	buf_release(&tokens);
	if (r < 0) {
		struct err e;

		err_set(&e, ENOMEM, "out of memory");
		return send_error(mc, x, &e);
	}
	if (begins && news.comment_due)
		openai_stream_comment(&x->out);
	if (begins)
		return send_stream(mc, x);
	if (answer_complete(x->answer)) {
		buf_init(&body, SIZE_MAX / 2);
		answer_body(x->answer, &body);
		return send_whole(mc, x, MHD_HTTP_OK, "application/json", &body);
	}
	if (news.stage == CALL_ENDED && !news.failure.code)
		err_set(&news.failure, EFAULT, "the answer ended too early");
	if (news.failure.code)
		return send_error(mc, x, &news.failure);
	/* Nothing to send yet; the next look sleeps or finds more. */
	return look_at_call(mc, x);
}

/* ?limit=N&tokens=1 of GET /cache. */
static int parse_tree_ask(struct MHD_Connection *mc, struct tree_ask *ret, struct err *e)
{
	const char *limit = MHD_lookup_connection_value(mc, MHD_GET_ARGUMENT_KIND, "limit");
	const char *tokens = MHD_lookup_connection_value(mc, MHD_GET_ARGUMENT_KIND, "tokens");
	uint64_t n = TREE_LIMIT;

	if (limit && (option_size(limit, &n) < 0 || n < 1 || n > TREE_LIMIT_MAX))
		return err_param(e, EINVAL, "limit", "limit is \"%.40s\", but must be 1 to %d",
				 limit, TREE_LIMIT_MAX);
	if (tokens && strcmp(tokens, "0") != 0 && strcmp(tokens, "1") != 0)
		return err_param(e, EINVAL, "tokens", "tokens is \"%.40s\", but must be 0 or 1",
				 tokens);
	*ret = (struct tree_ask){.limit = (uint32_t)n, .tokens = tokens && tokens[0] == '1'};
	return 0;
}

static enum MHD_Result start_call(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	struct http *h = x->http;
	struct call *c = call_new(h->server, x->route->call);

	if (!c)
		return MHD_NO;
	x->call = c;
	c->http.tree_ask = x->tree_ask;
	c->text.body = x->body; /* and with it its share of server.body_bytes */
	x->body = (struct buf){0};
	c->http.connection = mc;
	c->http.resume = resume;
	call_arrive(c);
	watch_answering(h->watch, x->connection, c);
	/* Either http_stop sees the call among the watched, or this sees that it is closing. */
	if (atomic_load(&h->closing))
		call_close(c);
	if (routes_has_body(x->route))
		text_submit(h->server->text, c);
	else
		call_administer(c);
	return look_at_call(mc, x);
}

/* ---- requests ---- */

/* Whether a Content-Type (NULL: none was sent) is JSON. */
static bool is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t n = sizeof(json) - 1;

	return !type || (!strncasecmp(type, json, n) &&
			 (!type[n] || type[n] == ';' || type[n] == ' ' || type[n] == '\t'));
}

/* Content-Length, or 0; libmicrohttpd has checked that it is a number. */
static uint64_t content_length(struct MHD_Connection *mc)
{
	const char *text = header(mc, "Content-Length");

	return text ? strtoull(text, NULL, 10) : 0;
}

static int check_state(const struct server *s, struct err *e)
{
	switch (lifecycle_state(s->lifecycle)) {
	case LIFECYCLE_READY: return 0;
	case LIFECYCLE_LOADING: return err_set(e, EBUSY, "the model is being loaded");
	case LIFECYCLE_DRAINING: return err_set(e, ESHUTDOWN, "the server is shutting down");
	case LIFECYCLE_FAILED: break;
	}
	return err_set(e, EIO, "the server has failed and is ending");
}

static int check_queue(const struct http *h, struct err *e)
{
	const struct options *o = &h->server->options;

	if (atomic_load(&h->server->queued) >= o->max_queued_requests)
		return err_set(e, EAGAIN, "%llu requests are waiting already; try again later",
			       (unsigned long long)o->max_queued_requests);
	if (atomic_load(&h->server->body_bytes) >= BODIES_MAX * o->max_body)
		return err_set(e, EAGAIN, "too many large bodies are in memory; try again later");
	return 0;
}

/* What can be said before the body. */
static int check_headers(struct MHD_Connection *mc, struct exchange *x, const char *path,
			 const char *method)
{
	struct server *s = x->http->server;
	struct err *e = &x->error;

	if (x->options)
		return 0;
	if (!x->route)
		return err_set(e, ENOSYS, "there is nothing at %.200s", path);
	if (s->options.role == ROLE_PREFILL && !x->route->worker)
		return err_set(e, ENOSYS,
			       "this worker computes prompts for decode workers; they have %s",
			       x->route->path);
	if (!routes_allow(x->route, method))
		return err_set(e, EPERM, "%s is not for %.20s; it has %s", x->route->path, method,
			       routes_methods(x->route));
	/* A page of a web site need not read the answer to have flushed the cache. */
	if (x->route->guarded && header(mc, "Origin"))
		return err_set(e, EXDEV, "%s is not for pages of web sites", x->route->path);
	if (!x->route->while_loading && check_state(s, e) < 0)
		return -e->code;
	if (x->route->call == CALL_CACHE && parse_tree_ask(mc, &x->tree_ask, e) < 0)
		return -e->code;
	if (!routes_has_body(x->route))
		return 0;
	if (!is_json(header(mc, "Content-Type")))
		return err_set(e, EPROTONOSUPPORT,
			       "the content type is \"%.100s\", but must be application/json",
			       header(mc, "Content-Type"));
	if (content_length(mc) > s->options.max_body)
		return err_set(e, EMSGSIZE, "the body has %llu bytes; at most %llu are allowed",
			       (unsigned long long)content_length(mc),
			       (unsigned long long)s->options.max_body);
	return check_queue(x->http, e);
}

static enum MHD_Result begin(struct http *h, struct MHD_Connection *mc, const char *path,
			     const char *method, void **ret) ON(role_http)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct exchange *x;
	const char *rest;

	if (!info || !info->socket_context)
		return MHD_NO;
	x = calloc(1, sizeof(*x));
	if (!x)
		return MHD_NO;
	x->http = h;
	x->connection = info->socket_context;
	x->route = routes_find(path, &rest);
	x->options = !strcmp(method, "OPTIONS");
	buf_init(&x->body, h->server->options.max_body);
	*ret = x;
	watch_receiving(h->watch, x->connection);
	if (!check_headers(mc, x, path, method))
		return MHD_YES;
	/* Somebody who waits for "100 Continue" has not begun to send. */
	if (header(mc, "Expect") ||
	    content_length(mc) / DISCARD_FACTOR > h->server->options.max_body) {
		x->close = true;
		return send_error(mc, x, &x->error);
	}
	return MHD_YES;
}

static enum MHD_Result receive(struct exchange *x, const char *data, size_t len) ON(role_http)
{
	uint64_t max = x->http->server->options.max_body;

	x->received += len;
	if (x->received / DISCARD_FACTOR > max)
		return MHD_NO;
	if (x->error.code || x->options || (x->route && !routes_has_body(x->route)))
		return MHD_YES;
	buf_append(&x->body, data, len);
	if (!x->body.failed) {
		atomic_fetch_add(&x->http->server->body_bytes, len);
		return MHD_YES;
	}
	atomic_fetch_sub(&x->http->server->body_bytes, x->body.len);
	buf_release(&x->body);
	buf_init(&x->body, max);
	if (x->received > max)
		err_set(&x->error, EMSGSIZE, "the body has more than %llu bytes",
			(unsigned long long)max);
	else
		err_set(&x->error, ENOMEM, "out of memory");
	return MHD_YES;
}

static enum MHD_Result respond(struct MHD_Connection *mc, struct exchange *x, const char *path)
	ON(role_http)
{
	struct buf body;
	const char *rest;

	if (x->call)
		return look_at_call(mc, x);
	/* The state may have changed while the body came in. */
	if (!x->error.code && x->route && !x->options && !x->route->while_loading)
		check_state(x->http->server, &x->error);
	if (!x->error.code && x->route && !x->options && !x->route->get) {
		if (!routes_has_body(x->route) || !check_queue(x->http, &x->error))
			return start_call(mc, x);
	}
	watch_answering(x->http->watch, x->connection, NULL);
	buf_init(&body, 1 << 20);
	if (x->options)
		return send_whole(mc, x, MHD_HTTP_OK, NULL, &body);
	if (!x->error.code && routes_find(path, &rest) &&
	    !x->route->get(x->http->server, rest, &body, &x->error))
		return send_whole(mc, x, MHD_HTTP_OK, x->route->content_type, &body);
	buf_release(&body);
	return send_error(mc, x, &x->error);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *mc, const char *path,
			      const char *method, const char *version, const char *data,
			      size_t *data_size, void **state)
{
	role_begin(&role_http);
	if (!*state)
		return begin(cls, mc, path, method, state);
	if (*data_size) {
		size_t len = *data_size;

		*data_size = 0;
		return receive(*state, data, len);
	}
	return respond(mc, *state, path);
}

static void completed(void *cls, struct MHD_Connection *mc, void **state,
		      enum MHD_RequestTerminationCode code)
{
	struct exchange *x = *state;

	role_begin(&role_http);
	if (!x)
		return;
	*state = NULL;
	watch_idle(x->http->watch, x->connection);
	if (x->call) {
		/* Nobody needs what is still to come. */
		if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK ||
		    (x->answer && !answer_complete(x->answer)))
			call_abort(x->call);
		answer_free(x->answer);
		call_unref(x->call);
	}
	atomic_fetch_sub(&x->http->server->body_bytes, x->body.len);
	buf_release(&x->body);
	buf_release(&x->out);
	free(x);
}

static void connected(void *cls, struct MHD_Connection *mc, void **context,
		      enum MHD_ConnectionNotificationCode code)
{
	struct http *h = cls;
	const union MHD_ConnectionInfo *info;

	role_begin(&role_http);
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		watch_close(h->watch, *context);
		*context = NULL;
		return;
	}
	info = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
	*context = info ? watch_open(h->watch, info->connect_fd) : NULL;
}

__attribute__((format(printf, 2, 0))) static void library_log(void *cls, const char *fmt,
							      va_list ap)
{
	char text[512];

	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = 0;
	log_debug("libmicrohttpd: %s", text);
}

/* ---- start and stop ---- */

int http_listen(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port, struct err *e)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	struct addrinfo *list;
	char service[8];
	int r, fd, one = 1;

	snprintf(service, sizeof(service), "%u", port);
	r = getaddrinfo(host, service, &hints, &list);
	if (r)
		return err_set(e, EINVAL, "--host %s: %s", host, gai_strerror(r));
	fd = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	r = fd < 0 ? errno : 0;
	if (!r) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, 1024) < 0 ||
		    getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
			r = errno;
	}
	freeaddrinfo(list);
	if (r) {
		if (fd >= 0)
			close(fd);
		return err_set(e, r, "cannot listen on %s port %u: %s", host, port, strerror(r));
	}
	if (bound.ss_family == AF_INET6)
		*ret_port = ntohs(((struct sockaddr_in6 *)&bound)->sin6_port);
	else
		*ret_port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
	*ret_fd = fd;
	return 0;
}

/* How many connections the descriptors are enough for, after taking all that we may have. */
static unsigned connection_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return CONNECTIONS_MAX;
	limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)CONNECTIONS_MAX + DESCRIPTORS_RESERVED);
	setrlimit(RLIMIT_NOFILE, &limit);
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= 2 * DESCRIPTORS_RESERVED)
		return DESCRIPTORS_RESERVED;
	return (unsigned)MIN(limit.rlim_cur - DESCRIPTORS_RESERVED, (rlim_t)CONNECTIONS_MAX);
}

int http_start(struct server *s, struct watch *w, int fd, struct http **ret, struct err *e)
{
	struct http *h = calloc(1, sizeof(*h));

	if (!h) {
		close(fd);
		return err_set(e, ENOMEM, "out of memory");
	}
	h->server = s;
	h->watch = w;
	h->daemon =
		MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
					 MHD_USE_ITC | MHD_USE_ERROR_LOG,
				 0, NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER, library_log,
				 NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
				 connection_limit(), MHD_OPTION_CONNECTION_TIMEOUT,
				 (unsigned)INACTIVE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				 (size_t)CONNECTION_MEMORY, MHD_OPTION_NOTIFY_COMPLETED, completed,
				 h, MHD_OPTION_NOTIFY_CONNECTION, connected, h,
				 MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
	if (!h->daemon) {
		close(fd);
		free(h);
		return err_set(e, EIO, "cannot start the HTTP server");
	}
	*ret = h;
	return 0;
}

void http_stop(struct http *h)
{
	if (!h)
		return;
	/* libmicrohttpd must not be stopped while a connection is suspended. */
	atomic_store(&h->closing, true);
	watch_close_calls(h->watch);
	MHD_stop_daemon(h->daemon);
	free(h);
}
