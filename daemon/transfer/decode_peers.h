/*
 * The decode workers that are connected to a prefill worker: HELLO, PING and PONG, their ends. sending.h has the prompts
 * that are computed for them. Only the transfer thread.
 */
#pragma once

#include "daemon/transfer/sending.h"

struct decode_peer {
	bool known;		 /* its HELLO came and fits */
	uint8_t worker[WIRE_ID]; /* of its HELLO */
	uint64_t heard_ns; /* known: of the last message; else of the first one; 0: no connection */
	uint64_t patience_ns; /* it is forgotten after so long without a message */
	uint64_t told;	      /* its place in the gossip */
};

struct decode_peers {
	struct sending sending;
	struct decode_peer *peers; /* [PORT_INCOMING] by link; owned */
	struct log_limit said_refused, said_version;
	bool said_draining; /* to the peers */
};

/* Listens. bound: the address with the port that was chosen. */
int decode_peers_open(struct decode_peers *d, struct worker *w, char bound[TRANSFER_ENDPOINT_MAX],
		      struct err *e) MUST_CHECK;

/* After worker_close. */
void decode_peers_close(struct decode_peers *d);

/* Anything came on a link, even if it cannot be read. */
void decode_peers_seen(struct decode_peers *d, uint32_t link) ON(role_transfer);
void decode_peers_hear(struct decode_peers *d, uint32_t link, const struct wire_message *m,
		       zmq_msg_t *head) ON(role_transfer);

/* A message of another version came; a message cannot be read, and names a delivery that does not exist. */
void decode_peers_other_version(struct decode_peers *d, uint32_t link, const struct err *why)
	ON(role_transfer);
void decode_peers_unreadable(struct decode_peers *d, uint32_t link, uint64_t delivery,
			     const struct err *why) ON(role_transfer);

/* The cache was flushed. */
void decode_peers_flushed(struct decode_peers *d) ON(role_transfer);

/* Tells the peers, once, that no new prompts are taken. */
void decode_peers_drain(struct decode_peers *d) ON(role_transfer);

/* Tells the peers that this worker shuts down; whether any has not answered yet. */
void decode_peers_leave(struct decode_peers *d) ON(role_transfer);
bool decode_peers_any(const struct decode_peers *d) ON(role_transfer);

/* Forgets silent peers and overdue deliveries. Returns when it has to be called again. */
uint64_t decode_peers_tick(struct decode_peers *d) ON(role_transfer);
