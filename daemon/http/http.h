/* HTTP: libmicrohttpd with a thread of its own for each port, epoll and suspended connections. A request is an
 * `exchange`:
 *
 *     headers ──> endpoint and checks ──> body ──> answered at once (endpoint->get, or the method is OPTIONS)
 *                         │                └─────> a call, for the text or the engine thread; the connection sleeps,
 *                         v                        and looks at its call each time it is resumed
 *                     an error; the body is read and dropped first, unless the framing is wrong,
 *                     the client waits for "100 Continue" or the body is far too large */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/api_keys.h"
#include "daemon/server.h"
#include "daemon/http/watch.h"

struct http;

/* Makes a socket that listens at host and port (port 0: any free one). *ret_fd is the socket, which the caller owns,
 * and *ret_port the port that it got. options: how the names of the options begin that give host and port, "--", for the
 * sentence of an error. */
int http_listen(const char *options, const char *host, uint16_t port, int *ret_fd,
		uint16_t *ret_port, struct err *e) MUST_CHECK;

/* Returns whether only this machine reaches the address at which the socket listens. */
bool http_is_local(int fd);

/* A socket on which requests arrive. libmicrohttpd has a thread for each. */
struct http_listener {
	int fd;	    /* taken by http_start, also on failure */
	bool admin; /* the socket is that of --admin-port */
	/* of the main port: so many descriptors stay free for links to other workers, but at most a quarter of all */
	unsigned descriptors;
	/* Borrowed until http_stop: the networks of --trusted-proxy, and the keys. A request needs one of the keys,
	 * unless there are none; check_key in guard.c has the exceptions. */
	const struct networks *trusted;
	const struct api_keys *keys;
};

/* Starts libmicrohttpd on a listening socket. s and w are borrowed until http_stop. */
int http_start(struct server *s, struct watch *w, const struct http_listener *l, struct http **ret,
	       struct err *e) MUST_CHECK;

/* main: cuts the open connections and ends the thread. NULL is allowed. */
void http_stop(struct http *h);
