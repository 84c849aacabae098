#include "daemon/http/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/http/exchange.h"
#include "daemon/http/path.h"
#include "daemon/request/text.h"

enum {
	/* The most connections at the main port, if there are descriptors for so many. Further clients wait until a
	 * connection is closed. */
	CONNECTIONS_MAX = 4096,
	CONNECTIONS_MIN = 64,
	DESCRIPTORS_RESERVED = 64, /* descriptors for everything but connections and peers */
	ADMIN_CONNECTIONS = 32, /* the most connections at --admin-port, besides CONNECTIONS_MAX */
	/* bytes that libmicrohttpd has for a connection: for the headers and some of the body */
	CONNECTION_MEMORY = 64 << 10,
	/* libmicrohttpd closes a connection on which it has received and sent nothing for so long, unless the
	 * connection is suspended. So a stream ends whose client does not read. One that waits for tokens is
	 * suspended. */
	INACTIVE_SECONDS = 120,
};

/* ---- called by libmicrohttpd ---- */

/* libmicrohttpd calls this function with the path, and with each name and each value of the query. The function
 * decodes only escapes of characters that need none (path.h). receive.c decodes the other escapes later, in values of
 * the query and in the rest of the path behind that of the endpoint. */
static size_t unescape(void *cls, struct MHD_Connection *mc, char *text)
{
	return path_normalise(text);
}

/* libmicrohttpd calls this function when the first line of a request has arrived, and then reads the query from the
 * target. Returns the request's exchange, which `handle` gets as *state; NULL: out of memory. */
static void *begin_request(void *cls, const char *target, struct MHD_Connection *mc)
{
	struct exchange *x = calloc(1, sizeof(*x));

	role_begin(&role_http);
	if (!x)
		return NULL;
	/* The target stands in the connection's buffer, in which libmicrohttpd writes as well. */
	framing_target(&x->framing, (char *)target);
	x->has_host = path_has_host(target);
	return x;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *mc, const char *path,
			      const char *method, const char *version, const char *data,
			      size_t *data_size, void **state)
{
	struct exchange *x = *state;

	role_begin(&role_http);
	if (!x)
		return send_no_memory(mc, cls, NULL);
	if (!x->http)
		return exchange_begin(cls, mc, x, path, method, version);
	if (*data_size) {
		size_t len = *data_size;

		*data_size = 0;
		return exchange_receive(mc, x, data, len);
	}
	return exchange_respond(mc, x);
}

/* For a call whose answer was sent to its end. False: no choice runs any more, because the call is ANSWERED, or because
 * the answer has the end of each choice. True: the answer ended with an error, and choices may still run. */
static bool ends_early(const struct exchange *x)
{
	return x->news.stage != CALL_ANSWERED && !(x->answer && answer_complete(x->answer));
}

/* Returns whether libmicrohttpd was given all bytes of the answer. */
static bool all_handed_out(const struct exchange *x)
{
	return x->over && !x->out.len;
}

static void completed(void *cls, struct MHD_Connection *mc, void **state,
		      enum MHD_RequestTerminationCode code)
{
	struct exchange *x = *state;

	role_begin(&role_http);
	if (!x)
		return;
	*state = NULL;
	if (!x->http) {
		free(x);
		return;
	}
	watch_idle(x->http->watch, x->connection);
	if (x->call)
		call_wake_others(x->call);
	/* Nobody gets the rest of the answer, so the engine thread need not compute it. But libmicrohttpd also reports
	 * an error when read_answer (send.c) has ended the connection behind the last byte. */
	if (x->call &&
	    ((code != MHD_REQUEST_TERMINATED_COMPLETED_OK && !all_handed_out(x)) || ends_early(x)))
		call_abort(x->call);
	/* The call may also have been cancelled (call_cancel). Aborted for either reason, it need not wait for a text
	 * thread. */
	if (x->call && atomic_load(&x->call->aborted))
		text_forget(x->http->server->text, x->call);
	exchange_end(x);
	exchange_free(x);
}

static void close_channel(struct http *h, struct channel *c)
{
	if (!c)
		return;
	watch_close(h->watch, c->connection);
	if (!tls_end(c->tls))
		atomic_fetch_add(&h->server->metrics.tls_failed, 1);
	free(c);
}

/* NULL: out of memory. With TLS the connection is cut then. Without, its requests get an error (exchange_begin). */
static struct channel *open_channel(struct http *h, struct MHD_Connection *mc, int fd,
				    const struct sockaddr *from)
{
	struct certificates *s = h->server->certificates;
	struct channel *c = calloc(1, sizeof(*c));

	if (c)
		c->connection = watch_open(h->watch, h->admin_port, fd, from);
	if (c && c->connection && s)
		c->tls = tls_begin(s, h->watch, c->connection, mc, fd);
	if (c && c->connection && (!s || c->tls))
		return c;
	if (s)
		shutdown(fd, SHUT_RDWR);
	if (c)
		watch_close(h->watch, c->connection);
	free(c);
	return NULL;
}

static void connected(void *cls, struct MHD_Connection *mc, void **context,
		      enum MHD_ConnectionNotificationCode code)
{
	struct http *h = cls;
	const union MHD_ConnectionInfo *info;
	int fd;

	role_begin(&role_http);
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		close_channel(h, *context);
		*context = NULL;
		return;
	}
	*context = NULL;
	info = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
	fd = info ? info->connect_fd : -1;
	/* libmicrohttpd may write this result into the memory of the one before. */
	info = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	if (fd >= 0 && info)
		*context = open_channel(h, mc, fd, info->client_addr);
}

/* Logs a message of libmicrohttpd at level debug. Also counts the requests that libmicrohttpd refuses by itself:
 * nothing but such a message tells of them. */
__attribute__((format(printf, 2, 0))) static void library_log(void *cls, const char *fmt,
							      va_list ap)
{
	static const char refused[] = "Error processing request";
	struct http *h = cls;
	char text[512];

	if (!strncmp(fmt, refused, sizeof(refused) - 1))
		atomic_fetch_add(&h->server->metrics.malformed, 1);
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = 0;
	log_debug("libmicrohttpd: %s", text);
}

/* ---- start and stop ---- */

int http_listen(const char *options, const char *host, uint16_t port, int *ret_fd,
		uint16_t *ret_port, struct err *e)
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
		return err_set(e, EINVAL, "%shost %s: %s", options, host, gai_strerror(r));
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
		if (r == EADDRINUSE)
			return err_set(e, r,
				       "cannot listen on %s port %u: %s; %sport N takes another",
				       host, port, strerror(r), options);
		return err_set(e, r, "cannot listen on %s port %u: %s", host, port, strerror(r));
	}
	if (bound.ss_family == AF_INET6)
		*ret_port = ntohs(((struct sockaddr_in6 *)&bound)->sin6_port);
	else
		*ret_port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
	*ret_fd = fd;
	return 0;
}

/* Raises the limit of descriptors to one for each connection at either port and the others that are needed, as far as
 * that is allowed. admin: there is --admin-port. others: http_listener.descriptors. Returns the number of connections
 * of the main port for which the descriptors suffice, but at least CONNECTIONS_MIN and at most CONNECTIONS_MAX. */
static unsigned connection_limit(bool admin, unsigned others)
{
	rlim_t reserved = DESCRIPTORS_RESERVED + (admin ? ADMIN_CONNECTIONS : 0);
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return CONNECTIONS_MAX;
	reserved += MIN((rlim_t)others, limit.rlim_max / 4);
	limit.rlim_cur =
		MAX(limit.rlim_cur, MIN(limit.rlim_max, (rlim_t)CONNECTIONS_MAX + reserved));
	setrlimit(RLIMIT_NOFILE, &limit);
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= CONNECTIONS_MIN + reserved)
		return CONNECTIONS_MIN;
	return (unsigned)MIN(limit.rlim_cur - reserved, (rlim_t)CONNECTIONS_MAX);
}

bool http_is_local(int fd)
{
	struct sockaddr_storage bound = {0};
	struct sockaddr *any = (struct sockaddr *)&bound;
	socklen_t len = sizeof(bound);
	struct address a;

	if (getsockname(fd, any, &len) < 0)
		return false;
	a = address_of(any);
	return address_is_loopback(&a);
}

int http_start(struct server *s, struct watch *w, const struct http_listener *l, struct http **ret,
	       struct err *e)
{
	const unsigned most =
		l->admin ? ADMIN_CONNECTIONS : connection_limit(s->options.admin, l->descriptors);
	struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
	const bool tls = s->certificates;
	struct http *h;

	/* The same file name may be that of a newer library than the one at hand when this was compiled (framing.h). */
	if (strncmp(MHD_get_version(), "0.9.", 4) != 0) {
		close(l->fd);
		return err_set(e, EINVAL, "libmicrohttpd here is %s; this program needs 0.9",
			       MHD_get_version());
	}
	if (tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
		close(l->fd);
		return err_set(e, EINVAL, "--tls-cert: libmicrohttpd here has no TLS");
	}
	h = calloc(1, sizeof(*h));
	if (h)
		h->no_memory = send_make_no_memory();
	if (!h || !h->no_memory) {
		close(l->fd);
		free(h);
		return err_no_memory(e);
	}
	watch_limit(w, l->admin, most, l->trusted);
	h->server = s;
	h->watch = w;
	h->local = http_is_local(l->fd);
	h->admin_port = l->admin;
	h->admin = l->admin || (!s->options.admin && h->local);
	h->keys = l->keys;
	h->trusted = l->trusted;
	if (!h->local && !h->keys->n && s->options.role != ROLE_PREFILL)
		log_warning("--host %s: everybody who reaches this address is served; "
			    "--api-key-file FILE asks clients for a key",
			    s->options.host);
	h->daemon =
		MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
					 MHD_USE_ITC | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0),
				 0, NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER, library_log,
				 h, MHD_OPTION_LISTEN_SOCKET, l->fd, MHD_OPTION_CONNECTION_LIMIT,
				 most, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)INACTIVE_SECONDS,
				 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
				 MHD_OPTION_URI_LOG_CALLBACK, begin_request, NULL,
				 MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
				 MHD_OPTION_NOTIFY_COMPLETED, completed, h,
				 MHD_OPTION_NOTIFY_CONNECTION, connected, h,
				 MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
				 tls ? tls_options : none, MHD_OPTION_END);
	if (!h->daemon) {
		close(l->fd);
		MHD_destroy_response(h->no_memory);
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
	/* libmicrohttpd must not be stopped while a connection is suspended. So all connections are woken, and none may
	 * be suspended again. */
	atomic_store(&h->closing, true);
	watch_close_calls(h->watch);
	MHD_stop_daemon(h->daemon);
	MHD_destroy_response(h->no_memory);
	free(h);
}
