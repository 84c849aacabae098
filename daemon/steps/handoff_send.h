/* The prefill worker's side of daemon/steps/handoff.h: prompts that are computed for decode workers. Only the engine
 * thread calls these functions, unless the comment of a function says otherwise. */
#pragma once

#include "base/list.h"
#include "daemon/steps/handoff_config.h"
#include "daemon/steps/shipping.h"

struct handoff_send {
	const struct handoff_config *config;
	struct transfer *transfer;
	struct shipping *shipping; /* owned */
	struct list shipments;	   /* prompts that are computed for decode workers */
	/* the first error of handoff_send_fail, with which new prompts fail; code 0: none */
	struct err lost;
};

/* config, transfer: borrowed. */
int handoff_send_open(struct handoff_send *h, const struct handoff_config *config,
		      struct transfer *transfer, struct err *e) MUST_CHECK;

/* Frees the content of *h, after the transfer thread has ended. Accepts a struct of zeros. */
void handoff_send_close(struct handoff_send *h);

/* Called by the transfer thread before it sends a NOTE_ASKED: counts the prompt in server.calls. False: the daemon
 * drains or has failed; then the prompt is not counted, and must be refused. */
bool handoff_send_admit(struct server *s);

/* These functions do the prefill worker's part of handoff_take (the caller keeps n), of handoff_deliver (for one
 * event), and of handoff_fail. */
void handoff_send_take(struct handoff_send *h, const struct transfer_note *n);
void handoff_send_deliver(struct handoff_send *h, const struct scheduler_event *ev);
void handoff_send_fail(struct handoff_send *h, const struct err *why);
