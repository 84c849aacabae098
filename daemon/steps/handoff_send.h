/* A prefill worker's side of handoff.h: prompts that are computed for decode workers. The engine thread's. */
#pragma once

#include "base/list.h"
#include "daemon/steps/handoff_config.h"
#include "daemon/steps/shipping.h"

struct handoff_send {
	const struct handoff_config *config;
	struct transfer *transfer;
	struct shipping *shipping; /* owned */
	struct list shipments;
	struct err lost; /* code 0: the device is there */
};

/* transfer: borrowed. */
int handoff_send_open(struct handoff_send *h, const struct handoff_config *config,
		      struct transfer *transfer, struct err *e) MUST_CHECK;

/* The transfer thread has ended. Does nothing for zeros. */
void handoff_send_close(struct handoff_send *h);

/* The transfer thread: counts a prompt that is about to be announced, unless the daemon drains. */
bool handoff_send_admit(struct server *s);

void handoff_send_take(struct handoff_send *h, const struct transfer_note *n);
void handoff_send_deliver(struct handoff_send *h, const struct scheduler_event *ev);
void handoff_send_fail(struct handoff_send *h, const struct err *why);
