/* The decode worker's side of handoff.h: prompts that prefill workers compute. Only the engine thread. */
#pragma once

#include "base/list.h"
#include "daemon/steps/handoff_config.h"
#include "daemon/transfer/transfer.h"

struct handoff_receive {
	const struct handoff_config *config;
	struct transfer *transfer;
	struct list orders;
	uint64_t last_attempt;
	struct transfer_note *held; /* the note whose draws the last events borrow; owned */
};

/* config, transfer: borrowed. */
void handoff_receive_open(struct handoff_receive *h, const struct handoff_config *config,
			  struct transfer *transfer);

/* Frees it, after the transfer thread has ended. Accepts a struct of zeros. */
void handoff_receive_close(struct handoff_receive *h);

/* Hands over the prompts that the scheduler wants to receive. */
void handoff_receive_ask(struct handoff_receive *h);

/* Handles a note, which it takes, and sets *ret_n events. -EIO: the device is lost. */
int handoff_receive_take(struct handoff_receive *h, struct transfer_note *n,
			 struct scheduler_event *events, uint32_t *ret_n, struct err *e) MUST_CHECK;

/* Called before a request is aborted: its attempt is dropped. */
void handoff_receive_forget(struct handoff_receive *h, uint64_t request);

/* Drops all attempts. */
void handoff_receive_fail(struct handoff_receive *h);
