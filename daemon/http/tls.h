/* The TLS of one connection. libmicrohttpd makes its session of GnuTLS, drives the handshake, and reads and writes by
 * the session, so the rest of this directory sees the same requests as without TLS. This file does the parts that
 * libmicrohttpd does not do, or does badly:
 *  - The session gets the newest certificate (certificate.h).
 *  - While libmicrohttpd 0.9.75 waits for the client's next bytes of the handshake it is in a busy loop. So the
 *    connection is suspended meanwhile, and the watch thread resumes it (watch_await). The time for the handshake is
 *    part of that for the first headers, and the connection counts as one that waits for its client (watch.h).
 *  - A client that speaks plain HTTP gets an answer that says so, and one that asks for a server name that GnuTLS
 *    refuses gets an alert.
 *  - Behind a record without data libmicrohttpd would overlook bytes that have come already, so the connection is made
 *    ready again.
 *  - Some bytes are written past libmicrohttpd, as is the end of an answer that ends with its connection (tls_write,
 *    tls_close). */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/http/certificate.h"
#include "daemon/http/watch.h"

struct tls;

/* The options of libmicrohttpd for TLS, as those of MHD_OPTION_ARRAY. */
extern struct MHD_OptionItem tls_options[];

/* http: for a new connection, of which no byte was read yet. fd: its descriptor. All arguments are borrowed until
 * tls_end. NULL: out of memory; the connection must be cut. */
struct tls *tls_begin(struct certificates *s, struct watch *w, struct connection *c,
		      struct MHD_Connection *mc, int fd);

/* http: when libmicrohttpd has freed the session. Returns whether the handshake was complete. t NULL: true. */
bool tls_end(struct tls *t);

/* http: writes bytes to the client, while libmicrohttpd has none to write. False: not all of them could be written, and
 * nothing more may be. */
bool tls_write(struct tls *t, const char *data, size_t len);

/* http: tells the client that nothing more is written (close_notify), if there is room for that in the socket. */
void tls_close(struct tls *t);
