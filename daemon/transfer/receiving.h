/* Prompts that a decode worker hands to prefill workers: sends PREPARE to the peer that peers_choose names, checks the
 * WINDOW and STATUS messages that come, and ends each attempt with a note to the engine thread, unless that thread has
 * dropped the attempt. While the transfer thread runs, no other thread calls these functions, except prompt_init and
 * prompt_release. */
#pragma once

#include "daemon/transfer/worker.h"
#include "protocol/transfer/peers.h"

struct receiving {
	struct worker *worker; /* borrowed */
	struct peers *peers;   /* owned */
	uint32_t link_of_peer[PEERS_MAX];
	uint32_t peer_of_link[PORT_OUTGOING]; /* PEERS_MAX: none */
	uint64_t last_delivery;		      /* id of the last delivery */
	uint64_t ticked_ns;		      /* time of the last receiving_tick */
};

/* A prompt for which no peer was chosen yet. */
struct prompt {
	/* as in struct transfer_ask; receiving_ask adds to `tried` each peer that it chooses */
	uint64_t attempt, tried;
	uint32_t n_tokens, n_have, n_choices;
	struct wire_key *keys; /* [n_keys] owned */
	uint32_t n_keys;
	struct buf frame;	   /* PREPARE, whose delivery is set when it is sent */
	struct transfer_note *end; /* the attempt's last note; owned until there is an attempt */
};

/* Fills *p with copies of all that *ask has. Any thread. Errors as of transfer_ask. Call prompt_release also after an
 * error. */
int prompt_init(struct prompt *p, const struct transfer_ask *ask, struct err *e) MUST_CHECK;
void prompt_release(struct prompt *p);

int receiving_open(struct receiving *r, struct worker *w, struct err *e) MUST_CHECK;

/* Returns the peer's endpoint, for log messages. Borrowed until the peer is removed. */
const char *receiving_peer_name(const struct receiving *r, uint32_t peer);

/* Returns whether an attempt at this peer is under way. */
bool receiving_is_busy(const struct receiving *r, uint32_t peer) ON(role_transfer);

/* Sends PREPARE to the peer that peers_choose names; if that fails, to the next one that peers_choose names. If no peer
 * is left, sends NOTE_LOST. */
void receiving_ask(struct receiving *r, struct prompt *p) ON(role_transfer);

/* Aborts an attempt that the engine thread no longer wants. Does nothing if the attempt has ended. */
void receiving_drop(struct receiving *r, uint64_t number) ON(role_transfer);

/* Handles a WINDOW or STATUS of an attempt. The frames of an accepted WINDOW are moved into a note to the engine
 * thread. */
void receiving_hear(struct receiving *r, struct attempt *a, const struct wire_message *m,
		    zmq_msg_t *head, zmq_msg_t *body) ON(role_transfer);

/* Fails all attempts at peers that become silent now (peers.h), then the overdue attempts at others. Returns the time
 * at which receiving_tick has to be called again. */
uint64_t receiving_tick(struct receiving *r) ON(role_transfer);

/* Ends the attempts whose deliveries have failed. */
void receiving_end_failed(struct receiving *r) ON(role_transfer);

/* Fails all attempts at a peer. */
void receiving_fail_peer(struct receiving *r, uint32_t peer, int code, const char *why)
	ON(role_transfer);
