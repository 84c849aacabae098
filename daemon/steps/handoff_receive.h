/* The decode worker's side of daemon/steps/handoff.h: prompts that prefill workers compute. Only the engine thread
 * calls these functions. */
#pragma once

#include "base/list.h"
#include "daemon/steps/handoff_config.h"
#include "daemon/transfer/transfer.h"

struct handoff_receive {
	const struct handoff_config *config;
	struct transfer *transfer;
	struct list orders;    /* prompts that a prefill worker is to compute */
	uint64_t last_attempt; /* number of the latest attempt, counted from 1 */
	/* the latest NOTE_CAME, owned: the events of that prompt borrow its draws */
	struct transfer_note *held;
};

/* config, transfer: borrowed. */
void handoff_receive_open(struct handoff_receive *h, const struct handoff_config *config,
			  struct transfer *transfer);

/* Frees the content of *h, after the transfer thread has ended. Accepts a struct of zeros. */
void handoff_receive_close(struct handoff_receive *h);

/* Asks prefill workers for the prompts that the scheduler wants to receive (scheduler_next_prepare). */
void handoff_receive_ask(struct handoff_receive *h);

/* Handles a note, which this module then owns. If it is the NOTE_CAME of an order's attempt, writes the events
 * of the first tokens, and sets *ret_n to their number (0: the prompt is computed here after all). Otherwise *ret_n is
 * unchanged. -EIO: the device is lost. */
int handoff_receive_take(struct handoff_receive *h, struct transfer_note *n,
			 struct scheduler_event *events, uint32_t *ret_n, struct err *e) MUST_CHECK;

/* To be called when a request ends: drops its order and its attempt, if it has any. */
void handoff_receive_forget(struct handoff_receive *h, uint64_t request);

/* Drops all attempts, and keeps the orders. */
void handoff_receive_fail(struct handoff_receive *h);
