/*
 * One outgoing connection: to a prefill worker, or to the registry. It connects in the background and goes on trying;
 * ZeroMQ connects again when the connection breaks.
 *
 * ZeroMQ looks host names up on the one thread that a context has for all its connections. An endpoint with a name gets
 * a context of its own, so that a slow lookup delays no other connection. A lookup is made anew by each outgoing_redial,
 * for IPv4 and for IPv6 by turns until a connection was made, after 3 s at first and ever longer pauses up to a minute.
 */
#pragma once

#include "daemon/transfer/socket.h"

/* All zeros: unused. */
struct outgoing {
	char endpoint[TRANSFER_ENDPOINT_MAX]; /* "": unused */
	char key[TRANSFER_KEY_TEXT];	      /* public key of the peer; "": none */
	void *context;			      /* of a name; owned, kept until outgoing_free */
	void *socket;			      /* NULL: there was no memory for one */
	void *monitor;			      /* reports when a connection is made or breaks */
	uint32_t n_dialled;		      /* makes the monitor's address unique */
	bool is_name, v6;
	bool met;		      /* there was a connection since the last redial */
	bool connected;		      /* there is one now */
	bool lost;		      /* one broke since this was last set to false */
	uint64_t dialled_ns, wait_ns; /* of a name: last lookup, pause before the next one */
};

/* Begins to connect to an unused outgoing connection. context: shared by endpoints without names. -errno: it is unused
 * again. */
int outgoing_open(struct outgoing *o, void *context, const struct socket_options *so,
		  const char *endpoint, const char *key, struct err *e) MUST_CHECK;

/* Replaces the connection by a new one. Without memory there is no connection until the next call. */
void outgoing_redial(struct outgoing *o, void *context, const struct socket_options *so);

/* Closes the connection; the structure is unused then. */
void outgoing_close(struct outgoing *o);

/* After outgoing_close: waits for a lookup that is under way. */
void outgoing_free(struct outgoing *o);

/* Reads what the monitor reports into connected, met and lost. */
void outgoing_look(struct outgoing *o);
