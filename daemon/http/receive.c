#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/problem.h"
#include "daemon/http/exchange.h"
#include "daemon/http/framing.h"
#include "daemon/http/guard.h"
#include "daemon/http/path.h"
#include "daemon/lifecycle.h"
#include "daemon/request/text.h"

enum {
	/* All large bodies (of more than SMALL_BODY bytes) in memory together have at most so many times --max-body
	 * bytes, and those of a client (server_share) half of that. A request whose body would exceed this is refused,
	 * but for BODY_SHARE. */
	BODIES_MAX = 8,
	/* A large body is taken in spite of BODIES_MAX if all of its client's large bodies together
	 * have at most so many bytes, and if those beyond BODIES_MAX are at most SHARES_MAX. */
	BODY_SHARE = 1 << 20,
	SHARES_MAX = 128 << 20,
	/* A body that is too long is read to its end and dropped, so that the client gets the error. If the body is
	 * longer than so many times what is allowed, the client gets the error before that end. */
	DISCARD_FACTOR = 4,
	/* After this error the body is read on, until so many times what is allowed have come since its begin, and then
	 * the connection is closed. With unread bytes it would be closed by a reset, and the client could lose the
	 * error. */
	LINGER_FACTOR = 8,
};

/* ---- checks ---- */

static bool has_body(const struct endpoint *e)
{
	return e->parse || (e->reply && e->post);
}

/* Returns the most bytes that the body of a request may have. A request that needs no body may have a small one,
 * which is dropped. */
static uint64_t most_body(const struct exchange *x)
{
	const struct endpoint *p = x->endpoint;
	uint64_t most = x->http->server->options.max_body;

	if (!p || !has_body(p))
		return MIN(most, (uint64_t)SMALL_BODY);
	return p->most_body ? MIN(most, p->most_body) : most;
}

static bool has_method(const struct endpoint *e, const char *method)
{
	if (e->removes)
		return !strcmp(method, "DELETE");
	return e->post ? !strcmp(method, "POST")
		       : !strcmp(method, "GET") || !strcmp(method, "HEAD");
}

/* Returns whether a Content-Type is JSON. type NULL: none was sent, and the body is taken for JSON. */
static bool is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t n = sizeof(json) - 1;

	return !type || (!strncasecmp(type, json, n) &&
			 (!type[n] || type[n] == ';' || type[n] == ' ' || type[n] == '\t'));
}

/* Returns Content-Length, or 0 if there is none. libmicrohttpd has checked that it is a number. */
static uint64_t content_length(struct MHD_Connection *mc)
{
	const char *text = exchange_header(mc, "Content-Length");

	return text ? strtoull(text, NULL, 10) : 0;
}

static int check_state(const struct server *s, struct err *e)
{
	switch (lifecycle_state(s->lifecycle)) {
	case LIFECYCLE_READY: return 0;
	case LIFECYCLE_LOADING:
		return err_set(e, PROBLEM_MODEL_LOADING, "the model is being loaded");
	case LIFECYCLE_DRAINING: return err_set(e, ESHUTDOWN, "the server is shutting down");
	case LIFECYCLE_FAILED: break;
	}
	return err_set(e, EIO, "the server has failed and is ending");
}

/* Checks whether there is memory for a body of this owner to grow from `from` to `to` bytes. There always is if `to` is
 * at most SMALL_BODY. */
static int check_memory(struct server *s, uint64_t owner, uint64_t from, uint64_t to, struct err *e)
{
	uint64_t more = from > SMALL_BODY ? to - from : to;
	uint64_t all = atomic_load(&s->metrics.body_bytes) + more;
	uint64_t own = atomic_load(&s->body_bytes_of[server_share(s, owner)]) + more;
	uint64_t most = BODIES_MAX * s->options.max_body, half = most / 2;

	if (to <= SMALL_BODY || (all <= most && own <= half))
		return 0;
	/* So clients that send slowly are cut also while shares are left. */
	atomic_store(&s->bodies_refused, true);
	if (all <= most + SHARES_MAX && own <= BODY_SHARE)
		return 0;
	return err_set(e, PROBLEM_BODY_MEMORY,
		       own > half ? "too many large bodies of this client are in memory; try again "
				    "later"
				  : "too many large bodies are in memory; try again later");
}

static enum MHD_Result add_header(void *cls, enum MHD_ValueKind kind, const char *name,
				  size_t name_len, const char *value, size_t value_len)
{
	framing_add(cls, name, name_len, value, value_len);
	return MHD_YES;
}

/* method and version: the pointers that libmicrohttpd gave. The request line begins at the method, and the headers
 * follow the version in the same memory. */
static int check_framing(struct MHD_Connection *mc, struct framing *f, const char *method,
			 const char *version, struct err *e)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	framing_line(f, method, version);
	MHD_get_connection_values_n(mc, MHD_HEADER_KIND, add_header, f);
	if (info)
		framing_end(f, method + info->header_size);
	return framing_check(f, version, e);
}

static int check_trailers(struct MHD_Connection *mc, struct err *e)
{
	struct framing f = {0};

	MHD_get_connection_values_n(mc, MHD_FOOTER_KIND, add_header, &f);
	return framing_check_trailers(&f, e);
}

/* Checks that there is an endpoint at the path, and that it takes this method at this port, on a worker of this role,
 * in this state. */
static int check_endpoint(struct MHD_Connection *mc, const struct exchange *x, const char *path,
			  const char *method, struct err *e)
{
	const struct endpoint *p = x->endpoint;

	if (!p)
		return err_set(e, PROBLEM_UNKNOWN_PATH, "there is nothing at %.200s", path);
	if (p->admin && !x->http->admin)
		return err_set(e, PROBLEM_UNKNOWN_PATH,
			       "%s is for this server's operator, at the address of --admin-port",
			       p->path);
	if (x->http->server->options.role == ROLE_PREFILL && !p->worker)
		return err_set(e, PROBLEM_UNKNOWN_PATH,
			       "this worker computes prompts for decode workers; they have %s",
			       p->path);
	if (!has_method(p, method))
		return err_set(e, PROBLEM_METHOD, "%s does not take %.20s; its methods are %s",
			       p->path, method, exchange_methods(p));
	return p->while_loading ? 0 : check_state(x->http->server, e);
}

static int check_body(struct MHD_Connection *mc, const struct exchange *x, struct err *e)
{
	const char *type = exchange_header(mc, "Content-Type");
	uint64_t max = most_body(x);

	if (!is_json(type) && !exchange_dialect(x)->any_type)
		return err_set(e, PROBLEM_MEDIA_TYPE,
			       "the content type is \"%.100s\", but must be application/json",
			       type);
	if (x->length > max)
		return err_set(e, PROBLEM_BODY_TOO_LARGE,
			       "the body has %llu bytes; at most %llu are allowed",
			       (unsigned long long)x->length, (unsigned long long)max);
	if (check_memory(x->http->server, x->owner, 0, x->length, e) < 0)
		return -e->code;
	return call_check_queue(x->http->server, x->owner, e);
}

/* Makes x->name of the rest of the path, behind the endpoint's own path. */
static int take_name(struct exchange *x, const char *rest, struct err *e)
{
	const struct endpoint *p = x->endpoint;
	const size_t len = p->named ? strlen(rest) - (p->behind ? strlen(p->behind) : 0) : 0;

	x->name = strndup(rest, len);
	if (!x->name)
		return err_no_memory(e);
	path_decode(x->name);
	return 0;
}

static int ask(struct MHD_Connection *mc, struct exchange *x, struct err *e)
{
	char *values[ENDPOINT_ARGUMENTS] = {NULL};
	int r = 0;

	for (size_t i = 0; !r && i < ENDPOINT_ARGUMENTS && x->endpoint->arguments[i]; i++) {
		const char *value = MHD_lookup_connection_value(mc, MHD_GET_ARGUMENT_KIND,
								x->endpoint->arguments[i]);

		values[i] = value ? strdup(value) : NULL;
		if (values[i])
			path_decode(values[i]);
		else if (value)
			r = err_no_memory(e);
	}
	if (!r)
		r = x->endpoint->ask(x->http->server, x->name, (const char *const *)values, &x->own,
				     e);
	for (size_t i = 0; i < ENDPOINT_ARGUMENTS; i++)
		free(values[i]);
	return r;
}

/* ---- requests ---- */

/* Writes address and port of the connection's other end, a client or a proxy: "127.0.0.1:40000", "[::1]:40000"; or
 * "unknown". */
static void describe_peer(struct MHD_Connection *mc, char *out, size_t size)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *from = info ? info->client_addr : NULL;
	const bool v6 = from && from->sa_family == AF_INET6;
	char host[48], port[8];

	if (!from ||
	    getnameinfo(from, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), host,
			sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(out, size, "unknown");
	else
		snprintf(out, size, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

enum MHD_Result exchange_begin(struct http *h, struct MHD_Connection *mc, struct exchange *x,
			       const char *target, const char *method, const char *version)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	const struct channel *channel;
	const char *host, *rest, *path = target;
	size_t host_len;
	int r, framed;

	if (!info || !info->socket_context)
		return send_no_memory(mc, h, NULL);
	if (x->has_host) {
		path = path_behind_host(target, &host, &host_len);
		x->host = strndup(host, host_len);
		if (!x->host)
			return send_no_memory(mc, h, NULL);
	}
	x->http = h;
	channel = info->socket_context;
	x->connection = channel->connection;
	x->tls = channel->tls;
	framed = check_framing(mc, &x->framing, method, version, &x->error);
	/* libmicrohttpd gives only the parts of the method and the path that are in front of a zero byte. */
	if (x->framing.cut_line)
		method = path = "-";
	x->endpoint = endpoints_find(path, &rest);
	x->dialect = endpoints_dialect(path);
	if (x->endpoint && x->endpoint->anthropic && exchange_header(mc, "anthropic-version"))
		x->endpoint = x->endpoint->anthropic;
	if (x->endpoint && x->endpoint->remove && !strcmp(method, "DELETE"))
		x->endpoint = x->endpoint->remove;
	x->access.begun_ns = clock_now_ns();
	describe_peer(mc, x->access.peer, sizeof(x->access.peer));
	access_request(&x->access, method, path);
	access_take_id(&x->access, exchange_header(mc, "X-Request-Id"));
	x->options = !strcmp(method, "OPTIONS");
	x->in_chunks = strcmp(version, MHD_HTTP_VERSION_1_0) != 0;
	buf_init(&x->body, most_body(x));
	buf_init(&x->tokens, SIZE_MAX / 2);
	buf_init(&x->out, SIZE_MAX / 2);
	watch_receiving(h->watch, x->connection, 0);
	if (framed < 0) {
		x->close = true;
		return send_error(mc, x, &x->error);
	}
	x->length = content_length(mc);
	/* libmicrohttpd takes a trailer that begins with a colon or a zero byte for the end of the message. What
	 * follows it could be a request that no program in front has seen, so nothing more is read of this
	 * connection. */
	if (x->framing.n_codings)
		x->close = true;
	else if (!x->length && exchange_header(mc, "Expect")) {
		/* If further bytes are there already, libmicrohttpd would take no answer after "100 Continue". */
		err_set(&x->error, PROBLEM_FRAMING, "an Expect header needs a body");
		x->close = true;
		return send_error(mc, x, &x->error);
	}
	r = guard_check(mc, x, method, &x->error);
	if (!r && x->options)
		return MHD_YES;
	if (!r)
		r = check_endpoint(mc, x, path, method, &x->error);
	if (!r)
		r = take_name(x, rest, &x->error);
	if (!r && x->endpoint->ask)
		r = ask(mc, x, &x->error);
	if (!r && has_body(x->endpoint))
		r = check_body(mc, x, &x->error);
	/* Usually the error is sent when the body has been read. It is sent now if the client waits for "100
	 * Continue" before it sends the body, or if the body is far too long to be read. */
	if (r && (exchange_header(mc, "Expect") || x->length / DISCARD_FACTOR > most_body(x))) {
		x->close = true;
		return send_error(mc, x, &x->error);
	}
	return MHD_YES;
}

/* Frees the part of the body that has arrived. */
static void drop_body(struct exchange *x)
{
	server_count_body(x->http->server, x->owner, x->body.len, 0);
	buf_release(&x->body);
	buf_init(&x->body, most_body(x));
}

/* Reserves room for all of a body that has become large; if its length is not known, for the longest. A body that grows
 * step by step is copied, and may take twice its length for that and afterwards, but only its length is counted. The
 * system gives no memory for the room before something is written there. If the room cannot be had, the body grows step
 * by step. */
static void reserve_body(struct exchange *x)
{
	uint64_t length = x->length ? x->length : x->body.max;

	if (x->body.len > SMALL_BODY && x->body.cap < length)
		(void)!buf_reserve(&x->body, length - x->body.len);
}

/* Sends the error for a body that is far too long, unless it was sent before. MHD_NO: close the connection. */
static enum MHD_Result refuse_body(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	uint64_t max = most_body(x);

	if (x->told)
		return x->received / LINGER_FACTOR > max ? MHD_NO : MHD_YES;
	drop_body(x);
	if (!x->error.code)
		err_set(&x->error, PROBLEM_BODY_TOO_LARGE, "the body has more than %llu bytes",
			(unsigned long long)max);
	return send_within_body(mc, x, &x->error) ? MHD_YES : MHD_NO;
}

enum MHD_Result exchange_receive(struct MHD_Connection *mc, struct exchange *x, const char *data,
				 size_t len)
{
	struct server *s = x->http->server;
	uint64_t max = most_body(x);
	size_t before = x->body.len;

	x->received += len;
	watch_receiving(x->http->watch, x->connection, x->received);
	if (x->received / DISCARD_FACTOR > max)
		return refuse_body(mc, x);
	if (x->error.code || x->options || (x->endpoint && !has_body(x->endpoint)))
		return MHD_YES;
	if (check_memory(s, x->owner, before, before + len, &x->error) < 0) {
		drop_body(x);
		return MHD_YES;
	}
	reserve_body(x);
	buf_append(&x->body, data, len);
	if (!x->body.failed) {
		server_count_body(s, x->owner, before, x->body.len);
		return MHD_YES;
	}
	drop_body(x);
	if (x->received > max)
		err_set(&x->error, PROBLEM_BODY_TOO_LARGE, "the body has more than %llu bytes",
			(unsigned long long)max);
	else
		err_no_memory(&x->error);
	return MHD_YES;
}

static enum MHD_Result start_call(struct MHD_Connection *mc, struct exchange *x) ON(role_http)
{
	struct http *h = x->http;
	struct call *c = call_new(h->server, x->endpoint);

	if (!c)
		return send_no_memory(mc, h, x);
	c->owner = x->owner;
	memcpy(c->client_id, x->access.id, sizeof(c->client_id));
	c->http.connection = mc;
	c->http.resume = connection_resume;
	if (call_arrive(c, &x->error) < 0) {
		call_unref(c);
		return send_error(mc, x, &x->error);
	}
	x->call = c;
	c->http.own = x->own;
	x->own = NULL;
	c->text.body = x->body; /* its bytes stay counted in metrics.body_bytes */
	x->body = (struct buf){0};
	watch_answering(h->watch, x->connection, c);
	/* Either http_stop finds the call in the watch's table, or this thread sees here that the server closes. */
	if (atomic_load(&h->closing))
		call_close(c);
	if (x->endpoint->visit)
		call_submit(call_ref(c));
	else
		text_submit(h->server->text, c);
	return send_call(mc, x);
}

enum MHD_Result exchange_respond(struct MHD_Connection *mc, struct exchange *x)
{
	const struct endpoint *p = x->endpoint;
	struct server *s = x->http->server;
	struct buf body;

	if (x->told)
		return MHD_NO;
	if (x->call)
		return send_call(mc, x);
	/* Only a chunked body has trailers. Its connection is closed in any case. */
	if (x->framing.n_codings)
		(void)!check_trailers(mc, &x->error);
	if (!x->options && !x->error.code) {
		/* The daemon's state, which was checked with the headers, may have changed while the body arrived. */
		int r = p->while_loading ? 0 : check_state(s, &x->error);

		if (!r && !p->get)
			return start_call(mc, x);
	}
	buf_init(&body, SIZE_MAX / 2);
	if (x->options && !x->error.code)
		return send_whole(mc, x, MHD_HTTP_OK, NULL, &body);
	if (!x->error.code && !p->get(s, x->name, &body, &x->error))
		return send_whole(mc, x, MHD_HTTP_OK, p->type ? p->type : "application/json",
				  &body);
	buf_release(&body);
	return send_error(mc, x, &x->error);
}

void exchange_end(struct exchange *x)
{
	char middle[ACCESS_ID_SIZE + 64];

	x->access.ended_ns = clock_now_ns();
	if (x->call) {
		x->call->http.access = x->access;
		return;
	}
	snprintf(middle, sizeof(middle), "%s%s, total %.1f ms", x->id[0] ? ", " : "", x->id,
		 (double)(x->access.ended_ns - x->access.begun_ns) / 1e6);
	access_log(&x->access, middle);
}

void exchange_free(struct exchange *x)
{
	free(x->host);
	free(x->name);
	if (x->own)
		x->endpoint->release(x->own);
	answer_free(x->answer);
	buf_release(&x->tokens);
	buf_release(&x->out);
	if (x->call)
		call_keep(x->call, 0);
	call_unref(x->call);
	server_count_body(x->http->server, x->owner, x->body.len, 0);
	buf_release(&x->body);
	free(x);
}
