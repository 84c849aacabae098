/*
 * The ZeroMQ sockets of a worker: one that listens (ROUTER), one for each worker that is called (DEALER), and who may come.
 *
 * A peer is a number: that of a call (from port_call), or of somebody who came (from PORT_CALLS on), who keeps it until
 * port_forget. A message is a head and a body, each one frame; the body may be empty. Messages of one peer arrive in the
 * order in which they were sent, or not at all: a connection that breaks loses what was under way, and ZeroMQ connects again.
 *
 * With keys every connection is encrypted (CURVE), and only peers on the list come in (ZAP, RFC 27). One thread.
 */
#ifndef DAEMON_TRANSFER_PORT_H
#define DAEMON_TRANSFER_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "base/err.h"
#include "daemon/transfer/endpoint.h"
#include "daemon/transfer/keys.h"

/* Calls: 64 workers and a registry. */
enum { PORT_CALLS = 65, PORT_GUESTS = 1024, PORT_NONE = UINT32_MAX };

/* For who says nothing of it, and stopped in the middle of what is to go there. */
enum { PORT_GUEST_PATIENCE_MS = 30000 };

struct port;

/* New. keys: borrowed, NULL: nothing is encrypted. largest: bytes of the largest frame that is taken. */
int port_open(const struct transfer_keys *keys, uint64_t largest, struct port **ret,
	      struct err *e) MUST_CHECK;
void port_close(struct port *p);

/* Before anybody is called: a connection on which nothing moves for so long is given up, with what is still to go out on it.
 * Those who come may be more patient, and say so to ZeroMQ themselves (its time to live): they have PORT_GUEST_PATIENCE_MS
 * at least. */
void port_patience(struct port *p, uint64_t ns);

/* Before any connection: so many messages at most wait on the way from each peer, and to each; one more to a peer is
 * -EHOSTUNREACH, to a guest -EAGAIN. 0: so many that only who takes nothing comes to it. */
void port_limit(struct port *p, int messages);

/* Once. bound: the address with its port. */
int port_listen(struct port *p, const char *endpoint, char bound[TRANSFER_ENDPOINT_MAX],
		struct err *e) MUST_CHECK;

/* Begins to connect, and goes on trying. -ENOSPC: PORT_CALLS are out. key: of who listens there, NULL: as the keys say. */
int port_call(struct port *p, const char *endpoint, const char *key, uint32_t *ret_peer,
	      struct err *e) MUST_CHECK;
/* Where a call goes to. Borrowed. */
const char *port_endpoint(const struct port *p, uint32_t peer);
void port_hang_up(struct port *p, uint32_t peer);

/* The same call once more, to who has this key. False: that is how it is called. */
bool port_take_key(struct port *p, uint32_t peer, const char *key);

/* The same call once more, on a connection of its own: ZeroMQ gives one up for good on which something came that it cannot
 * understand. A name is called in IPv4 and in IPv6 by turns, ever more seldom. Without memory there is no call any more, until the next time. */
void port_call_again(struct port *p, uint32_t peer);

/* Whether a wait has seen a connection to somebody who is called break; lost[i]: that of call i. What came before that is still
 * to be received. */
bool port_lost(struct port *p, bool lost[PORT_CALLS]);

/* A guest's IP address, "?" when ZeroMQ does not say. Borrowed until it is forgotten. */
const char *port_address(const struct port *p, uint32_t peer);

/* A guest that says nothing any more. */
void port_forget(struct port *p, uint32_t peer);

/* Waits until a message is there, a connection is or breaks, wake_fd is readable or timeout_ms are over (< 0: for ever). */
void port_wait(struct port *p, int wake_fd, int timeout_ms);

/* The next message, or 0: there is none now. 1: *ret_peer says from whom; head and body are the caller's, to be closed
 * with zmq_msg_close. What is no message (more than two frames, too many guests) is dropped. */
int port_receive(struct port *p, uint32_t *ret_peer, zmq_msg_t *head, zmq_msg_t *body);

/* Copies the head. The body, NULL: none, is taken over when 0 is returned; its memory is given back when the system has it.
 * -EHOSTUNREACH: there is no connection. -EAGAIN: a guest does not take what it was sent before. */
int port_send(struct port *p, uint32_t peer, const void *head, size_t len,
	      zmq_msg_t *body) MUST_CHECK;

#endif
