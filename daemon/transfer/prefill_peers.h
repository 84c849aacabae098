/* The prefill workers that a decode worker is connected to: HELLO, PING and PONG, disconnecting. receiving.h has the
 * prompts that they compute. While the transfer thread runs, no other thread calls these functions. */
#pragma once

#include "daemon/transfer/receiving.h"

struct prefill_peers {
	struct receiving receiving;
	struct prefill_link {
		/* time of our first HELLO (also one that could not be sent) since the peer's last message; 0: none */
		uint64_t silent_ns;
		bool said_silent; /* the log says that nothing comes from the peer */
		bool leaves;	  /* the peer has said that it shuts down */
		/* of lines about what the peer says; the next peer of the link gets it as it is, so that peers that are
		 * added again and again do not flood the log */
		struct log_limit said;
	} links[PORT_OUTGOING];
	struct log_limit said_removed;
};

/* Begins to connect to the prefill workers that --prefill names. */
int prefill_peers_open(struct prefill_peers *p, struct worker *w, struct err *e) MUST_CHECK;
void prefill_peers_close(struct prefill_peers *p);

/* Begins to connect to one more peer; key as in port_connect. -ENOSPC: there are PEERS_MAX peers; or another error of
 * peers_add or port_connect. */
int prefill_peers_add(struct prefill_peers *p, const char *endpoint, const char *key,
		      uint32_t *ret_peer, struct err *e) MUST_CHECK;

/* Disconnects from a peer and forgets it; the attempts at the peer fail. */
void prefill_peers_remove(struct prefill_peers *p, uint32_t peer, const char *why)
	ON(role_transfer);

/* Notes that a message came on a link (port.h), also one that cannot be read. */
void prefill_peers_seen(struct prefill_peers *p, uint32_t link) ON(role_transfer);

/* Handles a message. head and body, its frames, move into a note to the engine thread if the message is a WINDOW that
 * is accepted. */
void prefill_peers_hear(struct prefill_peers *p, uint32_t link, const struct wire_message *m,
			zmq_msg_t *head, zmq_msg_t *body) ON(role_transfer);

/* Makes each Registered or Refused peer Dead (peers.h) whose connection broke, and fails the attempts at the peer.
 * lost[i]: the connection of link i broke. */
void prefill_peers_lost(struct prefill_peers *p, const bool lost[PORT_OUTGOING]) ON(role_transfer);

/* Sends HELLOs and PINGs that are due. Fails the attempts at peers that become Dead or silent (peers.h), and overdue
 * deliveries. Returns the time at which prefill_peers_tick has to be called again. */
uint64_t prefill_peers_tick(struct prefill_peers *p) ON(role_transfer);

/* Tells the Registered peers (peers.h) that this worker shuts down. */
void prefill_peers_leave(struct prefill_peers *p) ON(role_transfer);
