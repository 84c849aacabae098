/*
 * ZeroMQ sockets as every connection between workers needs them: limits, CURVE keys, heartbeats; and whole messages.
 * Source: zmq_setsockopt(3), RFC 26/CurveZMQ.
 */
#pragma once

#include <zmq.h>

#include "daemon/transfer/keys.h"

/* A listening socket closes a connection whose peer takes no data for patience_ms, but not before so many
 * milliseconds. */
enum { SOCKET_PATIENCE_MS = 30000 };

struct socket_options {
	const struct transfer_keys *keys; /* borrowed; NULL: nothing is encrypted */
	uint64_t largest;		  /* bytes of the largest frame that is received */
	/* The most messages that wait to be received from a peer, and to be sent to it; 0: 1000, and 2^14. */
	int queue;
	int patience_ms; /* a connection on which nothing moves for so long is closed; 0: the system decides */
};

/* New; type: ZMQ_DEALER or ZMQ_ROUTER; v6: whether it uses IPv6. NULL: zmq_errno says why, or the context is NULL. */
void *socket_new(void *context, int type, bool v6, const struct socket_options *o);

/* Encrypts the connections of a socket; call it before the socket connects or listens. The first: to a peer with this
 * public key. The second: from peers that the authenticator accepts. Both do nothing without keys. -1: zmq_errno says
 * why. */
int socket_encrypt_to(void *socket, const struct socket_options *o,
		      const char *server_key) MUST_CHECK;
int socket_encrypt_from(void *socket, const struct socket_options *o) MUST_CHECK;

/* Closes an idle connection after patience_ms, and asks the peer to do the same (ZMTP heartbeats). */
void socket_keep_alive(void *socket, const struct socket_options *o);

void socket_set_int(void *socket, int option, int value);

/* Whether a socket for this endpoint has to use IPv6: for an IPv6 address, a name or *. */
bool socket_needs_v6(const char *endpoint);

/* Fills *e from zmq_errno and returns -errno. */
int socket_error(struct err *e, const char *what);

/* Receives one whole message into frames[max] without waiting. Returns the number of its frames, which may exceed max
 * (frames beyond are dropped); 0: there is no message. Frames are the caller's, for frames_close. */
size_t frames_take(void *socket, zmq_msg_t *frames, size_t max);
void frames_close(zmq_msg_t *frames, size_t n);
