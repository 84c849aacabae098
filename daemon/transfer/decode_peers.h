/* The decode workers that are connected to a prefill worker: HELLO, PING and PONG, disconnecting. sending.h has the
 * prompts that are computed for them. While the transfer thread runs, no other thread calls these functions. */
#pragma once

#include "daemon/transfer/sending.h"

struct decode_peer {
	bool known;		 /* its HELLO came and was accepted */
	uint8_t worker[WIRE_ID]; /* from its HELLO */
	/* known: time of its last message that could be read; not known: of its first message; 0: the link is unused */
	uint64_t heard_ns;
	uint64_t patience_ns; /* it is forgotten after so long without a message */
	uint64_t told;	      /* the place of the key that it is told next (gossip.h) */
};

struct decode_peers {
	struct sending sending;
	struct decode_peer *peers; /* [PORT_INCOMING] element i: link PORT_OUTGOING + i; owned */
	struct log_limit said_refused, said_version;
	struct log_limit said_moves;  /* of lines about decode workers that come and go */
	struct log_limit said_losses; /* of lines about decode workers that are lost */
	bool said_draining;	      /* a PONG has told the peers that this worker drains */
};

int decode_peers_open(struct decode_peers *d, struct worker *w, struct err *e) MUST_CHECK;

/* Frees the members. Call it after worker_close. */
void decode_peers_close(struct decode_peers *d);

/* Notes that a message came on a link (port.h), also one that cannot be read. */
void decode_peers_seen(struct decode_peers *d, uint32_t link) ON(role_transfer);

/* Handles a message. head, its frame, moves into a note to the engine thread if the message is a PREPARE that is
 * accepted. */
void decode_peers_hear(struct decode_peers *d, uint32_t link, const struct wire_message *m,
		       zmq_msg_t *head) ON(role_transfer);

/* decode_peers_other_version: logs that a message of another version came; sends REFUSE if the peer's HELLO was not
 * accepted before. decode_peers_unreadable: answers a message that cannot be read and names an unknown delivery; does
 * nothing if the peer's HELLO was not accepted. */
void decode_peers_other_version(struct decode_peers *d, uint32_t link, const struct err *why)
	ON(role_transfer);
void decode_peers_unreadable(struct decode_peers *d, uint32_t link, uint64_t delivery,
			     const struct err *why) ON(role_transfer);

/* Notes that the cache was flushed; the next PONGs say so. */
void decode_peers_flushed(struct decode_peers *d) ON(role_transfer);

/* Tells the peers, once, that no new prompts are taken. */
void decode_peers_drain(struct decode_peers *d) ON(role_transfer);

/* decode_peers_leave: tells the peers that this worker shuts down. decode_peers_any: returns whether a peer is left
 * that has not answered. */
void decode_peers_leave(struct decode_peers *d) ON(role_transfer);
bool decode_peers_any(const struct decode_peers *d) ON(role_transfer);

/* Forgets silent peers and fails overdue deliveries. Returns the time at which decode_peers_tick has to be called
 * again. */
uint64_t decode_peers_tick(struct decode_peers *d) ON(role_transfer);
