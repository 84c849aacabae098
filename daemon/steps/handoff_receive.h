/* A decode worker's side of handoff.h: prompts that prefill workers compute. The engine thread's. */
#pragma once

#include "base/list.h"
#include "daemon/steps/handoff_config.h"
#include "daemon/transfer/transfer.h"

struct handoff_receive {
	const struct handoff_config *config;
	struct transfer *transfer;
	struct list orders;
	uint64_t last_attempt;
	struct transfer_note *held; /* the last events point to its draws; owned */
};

/* config, transfer: borrowed. */
void handoff_receive_open(struct handoff_receive *h, const struct handoff_config *config,
			  struct transfer *transfer);

/* The transfer thread has ended. Does nothing for zeros. */
void handoff_receive_close(struct handoff_receive *h);

/* Asks for the prompts that the scheduler wants to receive. */
void handoff_receive_ask(struct handoff_receive *h);

/* Takes a note, which is the callee's from now on, and sets *ret_n events. -EIO: the device is lost. */
int handoff_receive_take(struct handoff_receive *h, struct transfer_note *n,
			 struct scheduler_event *events, uint32_t *ret_n, struct err *e) MUST_CHECK;

/* A request is about to be aborted. */
void handoff_receive_forget(struct handoff_receive *h, uint64_t request);

/* Nothing will be received any more. */
void handoff_receive_fail(struct handoff_receive *h);
