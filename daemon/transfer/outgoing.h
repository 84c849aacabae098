/* One outgoing connection: to a prefill worker, or to the registry (directory.h). ZeroMQ connects in the background,
 * tries again until it succeeds, and connects again when the connection breaks, but not after it received malformed
 * data.
 *
 * ZeroMQ resolves host names on the one thread that a context has for all its connections. So an endpoint with a name
 * gets a context of its own, and a slow lookup delays no other connection. For an endpoint with a name outgoing_redial
 * resolves the name again, alternately for IPv4 and for IPv6 until a connection was made; but it does nothing before a
 * pause has passed since the last lookup. The pause grows from 3 s to a minute while no connection is made. */
#pragma once

#include "daemon/transfer/socket.h"

/* All zeros: unused. */
struct outgoing {
	char endpoint[TRANSFER_ENDPOINT_MAX]; /* "": unused */
	char key[TRANSFER_KEY_TEXT];	      /* public key of the peer; "": none */
	/* a ZeroMQ context for this connection alone, if the endpoint has a host name; owned, kept until
	 * outgoing_free */
	void *context;
	void *socket;	    /* NULL: unused, or it could not be opened the last time */
	void *monitor;	    /* reports when a connection is made or breaks */
	uint32_t n_dialled; /* makes the monitor's address unique */
	bool is_name, v6;
	bool met; /* since the last redial the monitor has reported that a connection was made or broke */
	bool connected; /* a connection exists now */
	bool lost;	/* a connection broke since this was last set to false */
	/* of an endpoint with a name: the time of the last lookup, the pause before the next one */
	uint64_t dialled_ns, wait_ns;
};

/* Begins to connect, in an unused structure. context: the ZeroMQ context that all endpoints without names share. key:
 * the peer's public key; "": none. -errno: the structure is unused again. */
int outgoing_open(struct outgoing *o, void *context, const struct socket_options *so,
		  const char *endpoint, const char *key, struct err *e) MUST_CHECK;

/* Replaces the connection by a new one. Does nothing if the endpoint has a name whose pause since the last lookup has
 * not passed (see the top). If ZeroMQ fails, which is logged, there is no connection until the next call. */
void outgoing_redial(struct outgoing *o, void *context, const struct socket_options *so);

/* Closes the connection; the structure is unused then. */
void outgoing_close(struct outgoing *o);

/* After outgoing_close: frees the rest, and waits for a lookup that is under way. */
void outgoing_free(struct outgoing *o);

/* Reads the monitor's reports and sets connected, met and lost. After any report the pause before the next lookup is
 * 3 s again. */
void outgoing_look(struct outgoing *o);
