/* The calls that the scheduler has: submits them, hands them their tokens, ends them. A live call holds the work's
 * reference (daemon/request/call.h), which is dropped when the engine thread is done with the call. */
#pragma once

#include "base/list.h"
#include "daemon/request/call.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/record.h"

/* Planning times are kept for the last LIVE_STEPS steps: a prompt needs the time of the first step that computes any
 * of it until its first token. A prompt that takes more steps counts as queued until its first token. */
enum { LIVE_STEPS = 4096 };

struct live {
	/* borrowed */
	struct server *server;
	struct scheduler *scheduler;
	struct record *record;	 /* NULL: not recording */
	struct handoff *handoff; /* NULL: this worker is unified */

	struct list calls;
	struct call **touched; /* [max_num_seqs] calls with a token in this step; owned */
	struct {
		uint64_t step, ns;
	} planned[LIVE_STEPS]; /* step s is at s % LIVE_STEPS */
};

/* Fails a call that is not live, and drops its reference. */
void live_refuse(struct live *l, struct call *c, const struct err *why) ON(role_engine);

/* Submits all prompts of a call, or refuses it. */
void live_submit(struct live *l, struct call *c) ON(role_engine);

/* Handles a control message: the client has left, or stop strings ended choices. */
void live_control(struct live *l, struct call *c) ON(role_engine);

/* Notes the time: a step was planned now. */
void live_planned(struct live *l, uint64_t step) ON(role_engine);

/* Hands the events of a step to their calls, and wakes each call once. */
void live_deliver(struct live *l, const struct scheduler_event *events, uint32_t n) ON(role_engine);

void live_fail_all(struct live *l, const struct err *why) ON(role_engine);
