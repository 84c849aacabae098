/*
 * All connections of one process to others: a socket that listens (ROUTER), whose connections are *incoming*, and a
 * socket for each *outgoing* connection (DEALER).
 *
 * A *link* is the number of a connection: outgoing ones are below PORT_OUTGOING, incoming ones from there on. An
 * incoming connection gets its link with its first message and keeps it until port_forget.
 *
 * A message is a head and perhaps a body, one frame each. Messages of one link arrive in the order in which they were
 * sent, or not at all: a connection that breaks loses the messages that were under way.
 *
 * With keys every connection is encrypted (CURVE), and only peers that the key file allows can connect (keys.h). No
 * two threads call functions of a port at the same time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "base/err.h"
#include "daemon/transfer/endpoint.h"
#include "daemon/transfer/keys.h"

/* The most connections. The outgoing ones are to 64 prefill workers and a registry (directory.h). */
enum { PORT_OUTGOING = 65, PORT_INCOMING = 1024, PORT_NONE = UINT32_MAX };

struct port;

struct port_config {
	const struct transfer_keys *keys; /* borrowed; NULL: nothing is encrypted */
	uint64_t largest;		  /* bytes of the largest frame that is received */

	/* An outgoing connection is closed if its peer takes no data for this time, or does not answer ZeroMQ's
	 * heartbeats for this time. An incoming one is closed if its peer takes no data for this time, but after 30 s
	 * at the earliest. If patience_ns is 0, the system decides. An incoming connection is also closed if nothing
	 * comes for the time that the peer's ZeroMQ has asked for (time to live). Messages that wait to be sent on an
	 * incoming connection are dropped with it. */
	uint64_t patience_ns;

	/* The most messages that wait to be received from a peer, and the most that wait to be sent to it; 0: 1000 and
	 * 2^14. Sending one more gives -EHOSTUNREACH on an outgoing connection and -EAGAIN on an incoming one. */
	int queue;
};

/* Makes a port without connections. */
int port_open(const struct port_config *c, struct port **ret, struct err *e) MUST_CHECK;
void port_close(struct port *p);

/* Begins to listen; may be called once. Fills bound with the address, whose port the system may have chosen. */
int port_listen(struct port *p, const char *endpoint, char bound[TRANSFER_ENDPOINT_MAX],
		struct err *e) MUST_CHECK;

/* ---- outgoing connections ---- */

/* Begins to connect; ZeroMQ tries until it succeeds. key: the public key that the listening process must have; NULL:
 * the key file decides. -ENOSPC: all PORT_OUTGOING links are in use; or an error of outgoing_open. */
int port_connect(struct port *p, const char *endpoint, const char *key, uint32_t *ret_link,
		 struct err *e) MUST_CHECK;
void port_disconnect(struct port *p, uint32_t link);

/* Returns the endpoint of an outgoing connection. Borrowed until port_disconnect. */
const char *port_endpoint(const struct port *p, uint32_t link);

/* Replaces an outgoing connection by a new one and resolves its host name again. Does nothing if the name was resolved
 * a moment ago (outgoing.h). Needed because ZeroMQ does not connect again after it received malformed data. */
void port_reconnect(struct port *p, uint32_t link);

/* Sets the key that the peer of an outgoing connection must have, and calls port_reconnect, as the key counts from the
 * next connection on. Returns false and does nothing if the peer must have this key already, or if the key is too
 * long. */
bool port_set_key(struct port *p, uint32_t link, const char *key);

/* Sets lost[i] to whether port_wait has seen the connection of link i break since the last call of port_lost. Returns
 * whether any lost[i] is true. port_receive still returns messages that came before the break. */
bool port_lost(struct port *p, bool lost[PORT_OUTGOING]);

/* ---- incoming connections ---- */

/* Returns the peer's IP address, "?" when ZeroMQ does not tell it. Borrowed until port_forget. */
const char *port_address(const struct port *p, uint32_t link);

/* Frees the link for another connection. A further message of the old connection gets a new link. */
void port_forget(struct port *p, uint32_t link);

/* ---- messages ---- */

/* Waits until a message comes, an outgoing connection is made or breaks, a peer wants to connect (if there are keys),
 * wake_fd is readable or timeout_ms are over (< 0: no timeout). */
void port_wait(struct port *p, int wake_fd, int timeout_ms);

/* Receives the next message. 1: head and body are the caller's, for zmq_msg_close; body is empty if the message has
 * none. 0: no message was found. A malformed message (more than two frames, or none) is dropped, and so is the message
 * of a new connection when no incoming link is free. */
int port_receive(struct port *p, uint32_t *ret_link, zmq_msg_t *head, zmq_msg_t *body);

/* Sends a copy of head, and body (NULL: none). 0: body is taken, and ZeroMQ frees it when the system has it.
 * -EHOSTUNREACH: there is no connection, or the queue of an outgoing connection is full (port_config.queue). -EAGAIN:
 * the queue of an incoming one is full. */
int port_send(struct port *p, uint32_t link, const void *head, size_t len,
	      zmq_msg_t *body) MUST_CHECK;
