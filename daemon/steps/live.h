/* A call is live while the scheduler has its prompts. The functions here submit calls, hand them their tokens, and
 * end them. The work's reference to a live call (daemon/request/call.h) is dropped when the call is live no longer. */
#pragma once

#include "base/list.h"
#include "daemon/request/call.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/record.h"

/* The times at which the last LIVE_STEPS steps were planned are kept. At the first token of a prompt, the metrics
 * need the time of the first step that computed any of it. A prompt that took more steps counts as queued until its
 * first token. */
enum { LIVE_STEPS = 4096 };

struct live {
	/* borrowed */
	struct server *server;
	struct scheduler *scheduler;
	struct record *record;	 /* NULL: not recording */
	struct handoff *handoff; /* NULL: this worker is unified */

	struct list calls;     /* the live calls */
	struct call **touched; /* [max_num_seqs] calls with an event in this step; owned */
	struct {
		uint64_t step, ns;
	} planned[LIVE_STEPS]; /* step s is at s % LIVE_STEPS */
};

/* Fails a call that is not live, and drops the work's reference. */
void live_refuse(struct live *l, struct call *c, const struct err *why) ON(role_engine);

/* Submits all prompts of a call, or refuses it. */
void live_submit(struct live *l, struct call *c) ON(role_engine);

/* Handles a control message: the client has left, or http has found stop strings. Does nothing if the call is not
 * live. */
void live_control(struct live *l, struct call *c) ON(role_engine);

/* Notes that this step was planned now. */
void live_planned(struct live *l, uint64_t step) ON(role_engine);

/* Hands the events of a step to their calls. Ends the calls whose last choice has ended, and those that have failed.
 * Each of these, and each call that wants its tokens now, is woken once. */
void live_deliver(struct live *l, const struct scheduler_event *events, uint32_t n) ON(role_engine);

/* Fails and ends all live calls. */
void live_fail_all(struct live *l, const struct err *why) ON(role_engine);
