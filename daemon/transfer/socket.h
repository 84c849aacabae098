/*
 * Makes ZeroMQ sockets as every connection between workers needs them, with limits, CURVE keys and heartbeats; and
 * receives whole messages. Source: zmq_setsockopt(3), RFC 26/CurveZMQ.
 */
#pragma once

#include <zmq.h>

#include "daemon/transfer/keys.h"

/* A listening socket closes a connection whose peer takes no data for patience_ms, or for SOCKET_PATIENCE_MS if that is
 * longer. */
enum { SOCKET_PATIENCE_MS = 30000 };

struct socket_options {
	const struct transfer_keys *keys; /* borrowed; NULL: nothing is encrypted */
	uint64_t largest;		  /* bytes of the largest frame that is received */
	/* the most messages that wait to be received from a peer, and the most that wait to be sent to it; 0: 1000 and
	 * 2^14 */
	int queue;
	int patience_ms; /* a connection whose peer does not respond for so long is closed; 0: the system decides */
};

/* Makes a socket. type: ZMQ_DEALER or ZMQ_ROUTER; v6: use IPv6. NULL: zmq_errno says why, or the context is NULL. */
void *socket_new(void *context, int type, bool v6, const struct socket_options *o);

/* Two functions that encrypt the connections of a socket, to be called before the socket connects or listens.
 * socket_encrypt_to: the socket will connect to a peer with this public key. socket_encrypt_from: the socket will
 * listen for peers that the authenticator accepts. Both do nothing without keys. -1: zmq_errno says why. */
int socket_encrypt_to(void *socket, const struct socket_options *o,
		      const char *server_key) MUST_CHECK;
int socket_encrypt_from(void *socket, const struct socket_options *o) MUST_CHECK;

/* Makes ZeroMQ send heartbeats (ZMTP), close a connection when no answer comes for patience_ms, and ask the peer to do
 * so too when no heartbeat comes. Does nothing if patience_ms is 0. */
void socket_keep_alive(void *socket, const struct socket_options *o);

void socket_set_int(void *socket, int option, int value);

/* Returns whether a socket for this endpoint has to use IPv6: for an IPv6 address, a host name or "*" (any address). */
bool socket_needs_v6(const char *endpoint);

/* Fills *e from zmq_errno and returns -errno, or -EIO for an error number of ZeroMQ's own. */
int socket_error(struct err *e, const char *what);

/* Receives one whole message without waiting. Puts its first max frames into `frames`, for frames_close, and drops the
 * others. Returns the number of all its frames, which may exceed max; 0: there is no message. */
size_t frames_take(void *socket, zmq_msg_t *frames, size_t max);
void frames_close(zmq_msg_t *frames, size_t n);
