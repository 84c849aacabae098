/*
 * The calls that the scheduler has: submits them, hands them their tokens, ends them. Each live call holds the work's
 * reference (daemon/request/call.h), which is dropped when the call is over for the engine thread.
 */
#pragma once

#include "base/list.h"
#include "daemon/request/call.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/record.h"

/* The time at which a step was planned is kept until the first token of a prompt that it admitted: for more steps than any
 * prompt takes. */
enum { LIVE_STEPS = 4096 };

struct live {
	/* borrowed */
	struct server *server;
	struct scheduler *scheduler;
	struct record *record;	 /* NULL: not recording */
	struct handoff *handoff; /* NULL: this worker prefills and decodes */

	struct list calls;
	struct call **touched; /* [max_num_seqs] calls that got something of this step; owned */
	struct {
		uint64_t step, ns;
	} planned[LIVE_STEPS]; /* step s is at s % LIVE_STEPS */
};

/* Answers a call that is not live with an error, and drops its reference. */
void live_refuse(struct live *l, struct call *c, const struct err *why) ON(role_engine);

/* Submits all prompts of a call, or refuses it. */
void live_submit(struct live *l, struct call *c) ON(role_engine);

/* A client left, or stop strings ended choices. */
void live_control(struct live *l, struct call *c) ON(role_engine);

/* A step was planned now. */
void live_planned(struct live *l, uint64_t step) ON(role_engine);

/* Hands the events of a step to their calls, and wakes each call once. */
void live_deliver(struct live *l, const struct scheduler_event *events, uint32_t n) ON(role_engine);

void live_fail_all(struct live *l, const struct err *why) ON(role_engine);
