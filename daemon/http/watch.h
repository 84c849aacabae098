/* Watches connections for clients that leave, that are too slow or that are too many, and for streams that are
 * silent.
 *
 * libmicrohttpd has no suspended connection in its epoll set. So a client that leaves while its answer is computed
 * would go unnoticed, and its pages would stay in use. libmicrohttpd also misses some of the clients that leave within
 * a request. The watch thread has every connection in an epoll set of its own, for EPOLLRDHUP. If the client of a call
 * hangs up, the call is aborted at once. If another client hangs up, the receiving side of its connection is shut down.
 * Once a second there is a *tick*. At the first tick a second or more later that connection is cut, unless
 * libmicrohttpd has closed it or it has a call by then. At each tick the thread also
 *  - wakes streams that were silent for 15 s, so that an SSE comment is sent,
 *  - cuts connections whose client takes too long: 30 s from accept to the end of the first headers (a handshake of TLS
 *    included), 20 s for 64 KiB of a body, 2 minutes to read an answer that has no call, 2 minutes from one request to
 *    the end of the next headers,
 *  - cuts connections that take more than 2 s for 64 KiB of a large body, if other large bodies were refused for lack
 *    of memory,
 *  - ends answers that clients do not read, while all answers together take more memory than they may
 *    (--answer-memory),
 *  - gives freed memory back to the system, if more than 1 MiB of a body or an answer was freed (every 4 s at most).
 * libmicrohttpd itself closes a connection, also that of a call, if nothing of a ready answer could be sent for 2
 * minutes (INACTIVE_SECONDS in http.c).
 *
 * A connection *waits* for its client while it has no call (because its next request is not whole, or is answered
 * without one), and while its call's answer has bytes ready that the client has not taken. Connections that wait give
 * way to new ones at the same port. When few more connections fit (SPARE in watch.c), each new one cuts the one that
 * has waited longest. As long as more fit, a new connection may cut one of its own address (of IPv6 the first 64 bits):
 * if those of this address that wait are an eighth of the limit of connections or more, the one of them that has waited
 * longest is cut. Trusted addresses (--trusted-proxy) and --admin-port are exempt from this rule. For a body that
 * arrives, the wait begins anew with each 64 KiB.
 *
 * A handshake of TLS has turns on the http thread (handshakes.h). While it waits for one, its connection is suspended,
 * and the watch thread resumes it when it is its turn.
 *
 * A table has all connections by descriptor. The system uses descriptors again as soon as they are closed. So an
 * event carries the number of its connection, which is never used twice, and the thread ignores the event unless the
 * table has a connection with that number at that descriptor. A connection leaves the table (watch_close) before
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

/* To be called before the first connection at that port: sets the most connections at the main port, or at --admin-port
 * (admin), and the networks whose addresses may have any number of them. *trusted is copied. */
void watch_limit(struct watch *w, bool admin, size_t most, const struct networks *trusted);

/* http: puts a new connection from this address into the table, and perhaps cuts another one of this port that waits.
 * From now on the headers of the first request must arrive in time. NULL: the connection is not in the table and must
 * be refused (no memory, or the descriptor is too large). */
struct connection *watch_open(struct watch *w, bool admin, int fd, const struct sockaddr *from);

/* http: takes the connection out of the table and frees c, because libmicrohttpd is about to close it. c may be
 * NULL. */
void watch_close(struct watch *w, struct connection *c);

/* http: sets the time by which the next 64 KiB of the body must arrive. To be called with `received` 0 when the headers
 * have arrived, and whenever some of the body has arrived: then `received` is the number of its bytes that have arrived
 * so far. */
void watch_receiving(struct watch *w, struct connection *c, uint64_t received);

/* http: to be called when the body has arrived and a call begins its work: `call` is borrowed until watch_idle, and is
 * aborted if the client leaves before that; until then the connection has no time limit. Also to be called with NULL,
 * when an answer without a call begins, perhaps before the body has arrived: the client has to read that answer in
 * time. */
void watch_answering(struct watch *w, struct connection *c, struct call *call);

/* http: gives the call back, if there is one, because the request is completed, and sets the time by which the headers
 * of the next request must arrive. */
void watch_idle(struct watch *w, struct connection *c);

/* http: to be called when a handshake of TLS on this connection needs bytes of the client that have not come. Calls
 * suspend(mc) at once, and on the watch thread resume(mc) when bytes have come, or the client has left, or the
 * connection was cut. Calls neither after watch_close_calls, nor if the connection cannot be watched: then it is
 * cut. */
void watch_await(struct watch *w, struct connection *c, void (*suspend)(void *mc),
		 void (*resume)(void *mc), void *mc);

enum watch_turn { WATCH_GO, WATCH_HELD, WATCH_GONE };

/* http: to be called when bytes of a handshake are there. WATCH_GO: it is its turn, which ends with watch_spent or with
 * the connection. WATCH_HELD: it is not; suspend(mc) was called, and the watch thread calls resume(mc), after which
 * watch_admit is to be called again. WATCH_GONE: the connection was cut, or the server ends. */
enum watch_turn watch_admit(struct watch *w, struct connection *c, void (*suspend)(void *mc),
			    void (*resume)(void *mc), void *mc);

/* http: ends a turn, which has taken `ns` of the thread's time. */
void watch_spent(struct watch *w, struct connection *c, uint64_t ns);

/* main: calls call_close for every call that a connection has, and ends the waits of watch_await and watch_admit. */
void watch_close_calls(struct watch *w);
