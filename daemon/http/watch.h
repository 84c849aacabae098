/* The watch thread: notices clients that leave, that are too slow, or that are too many, and silence.
 *
 * libmicrohttpd has no suspended connection in its epoll set. So a client that leaves while its answer is computed
 * would go unnoticed, and its pages would stay in use. It also misses some of the clients that leave within a request.
 * The watch thread has every connection in an epoll set of its own, for EPOLLRDHUP. If the client of a call hangs up,
 * the call is aborted at once; any other connection whose request is not whole is cut. Once a second the thread also
 *  - wakes streams that were silent for 15 s, so that an SSE comment is sent,
 *  - cuts connections whose request takes too long: headers that are not whole after 30 s, a body of which 64 KiB take
 *    more than 20 s (2 s if it is large, while others are refused for lack of memory), two minutes without a request,
 *  - ends answers that clients do not read, while all together take more memory than they may (--answer-memory),
 *  - gives freed memory back to the system, if a large body or answer was freed.
 *
 * A connection waits for its client while its request is not whole, or while more of its answer is ready than the client
 * reads. Connections that wait give way to others: when there is room for few more, the one that has waited longest is
 * cut for each new one; and so it is among those of one address, when this address has an eighth of all connections
 * waiting and is not a trusted one (--trusted-proxy).
 *
 * A table has all connections by descriptor. The system uses descriptors again as soon as they are closed. So an event
 * carries the number of its connection, which is never used twice, and the thread ignores the event unless the table
 * has a connection with that number at that descriptor. A connection leaves the table (watch_close) before
 * libmicrohttpd closes its descriptor, and the thread touches only descriptors of connections in the table, under the
 * lock. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "daemon/http/address.h"
#include "daemon/request/call.h"

struct watch;
struct connection;

/* Starts the thread. s is borrowed until watch_free. */
int watch_start(struct watch **ret, struct server *s, struct err *e) MUST_CHECK;

/* main: ends the thread. All connections must be closed. NULL is allowed. */
void watch_free(struct watch *w);

/* http, before the first connection: sets the most connections, and the addresses that may have all of them. */
void watch_limit(struct watch *w, size_t most, const struct networks *trusted);

/* http: puts a new connection from this address into the table. From now on the headers of its first request must arrive
 * in time. NULL: the connection is not in the table and must be refused (no memory, or the descriptor is too large). */
struct connection *watch_open(struct watch *w, int fd, const struct sockaddr *from);

/* http: takes the connection out of the table and frees c, because libmicrohttpd is about to close it. c may be
 * NULL. */
void watch_close(struct watch *w, struct connection *c);

/* http: sets the time by which more of the body must arrive. To be called when the headers have arrived (received 0),
 * and for each piece of the body: `received` bytes of it have arrived by now. */
void watch_receiving(struct watch *w, struct connection *c, uint64_t received);

/* http: to be called when the body has arrived. `call` is borrowed until watch_idle, and is aborted if the client leaves
 * before that; there is no time limit. NULL: the request is answered at once, without a call, and the client has to read
 * the answer in time. */
void watch_answering(struct watch *w, struct connection *c, struct call *call);

/* http: gives the call back, because the request is completed, and sets the time by which the headers of the next
 * request must arrive. */
void watch_idle(struct watch *w, struct connection *c);

/* main: calls call_close for every call that a connection has. */
void watch_close_calls(struct watch *w);
