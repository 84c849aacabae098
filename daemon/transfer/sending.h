/* Prompts that a prefill worker computes for decode workers: accepts PREPARE, sends data and first tokens. Each attempt
 * that a NOTE_ASKED (types.h) announced to the engine thread ends with a NOTE_SENT or NOTE_DROPPED. While the transfer
 * thread runs, no other thread calls these functions. */
#pragma once

#include "daemon/transfer/worker.h"
#include "protocol/transfer/gossip.h"

struct sending {
	struct worker *worker; /* borrowed */
	uint64_t last_number;  /* the number of the last attempt */
	int32_t *page;	       /* [page_tokens] the tokens of one page, to hash; owned */
	struct gossip gossip;  /* keys of pages that the prompts left in the cache */
	/* struct transfer_parcel that ZeroMQ has sent or dropped; pushed by ZeroMQ's threads, or by the transfer thread
	 * if a parcel cannot be sent */
	struct queue returned;
	struct log_limit said_failed;
};

int sending_open(struct sending *s, struct worker *w, struct err *e) MUST_CHECK;

/* Calls `done` of the parcels that are still in `returned`, and frees the members. Call it after worker_close. */
void sending_close(struct sending *s);

/* Handles a PREPARE: passes the prompt on to the engine thread in a note, into which head moves; or tells the decode
 * worker that the delivery has failed. */
void sending_prepare(struct sending *s, uint32_t link, const struct wire_message *m,
		     zmq_msg_t *head) ON(role_transfer);

/* Answers a message that cannot be read and names an unknown delivery. It may have been a PREPARE, so the decode worker
 * is told that the delivery has failed. */
void sending_unreadable(struct sending *s, uint32_t link, uint64_t delivery, const struct err *why)
	ON(role_transfer);

/* Do what the engine thread asks for an attempt, which may have ended meanwhile. sending_parcel: sends p as a WINDOW if
 * it can; in any case p->done will be called, perhaps at once. sending_draws: keeps a copy of the first tokens
 * [n_draws], and sends them after all data. sending_fail: fails the attempt, as the prompt will not be computed.
 * sending_draws and sending_fail do nothing if the attempt has ended. */
void sending_parcel(struct sending *s, struct transfer_parcel *p) ON(role_transfer);
void sending_draws(struct sending *s, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached) ON(role_transfer);
void sending_fail(struct sending *s, uint64_t attempt, const struct err *why) ON(role_transfer);

/* Takes the parcels that ZeroMQ has sent, or dropped, and calls their `done`. */
void sending_take_returned(struct sending *s) ON(role_transfer);

/* Ends the attempts whose deliveries have failed, and tells the decode workers. */
void sending_end_failed(struct sending *s) ON(role_transfer);
