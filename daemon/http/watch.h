/*
 * The watch thread: clients that leave, and silence.
 *
 * A suspended connection is in no epoll set of libmicrohttpd's, so a client that leaves while its
 * answer is computed would go unnoticed and its pages would stay in use. So every connection that has a
 * call is in an epoll set of the watch thread, for EPOLLRDHUP; a hang-up aborts the call at once. Once a
 * second the thread also
 *  - wakes streams that were silent for 15 s, so that they send a comment,
 *  - cuts connections that take too long to send a request (headers, or a body).
 *
 * File descriptors are used again as soon as they are closed. So an event carries the number of its
 * connection, never used twice, and means nothing unless the connection at that descriptor still
 * has that number. A connection leaves the table (watch_close) before libmicrohttpd closes its
 * descriptor, and the thread touches descriptors only of connections in the table, under the lock.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "daemon/request/call.h"

struct watch;
struct connection;

int watch_start(struct watch **ret, struct err *e) MUST_CHECK;

/* main: ends the thread. All connections are closed. */
void watch_free(struct watch *w);

/* http: a connection was accepted; it must send its request's headers in time. NULL: no memory. */
struct connection *watch_open(struct watch *w, int fd);

/* http: libmicrohttpd is about to close it. */
void watch_close(struct watch *w, struct connection *c);

/* http: the headers are there, the body must follow in time. */
void watch_receiving(struct watch *w, struct connection *c);

/* http: the body is there: the call is watched from here on (call) or there is none (NULL). */
void watch_answering(struct watch *w, struct connection *c, struct call *call);

/* http: the answer is out; the client may wait before its next request. The call is no longer borrowed. */
void watch_idle(struct watch *w, struct connection *c);

/* main: call_close for every call there is. */
void watch_close_calls(struct watch *w);
