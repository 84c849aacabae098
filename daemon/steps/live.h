/* A call is live while the scheduler has its prompts. The functions here submit calls, hand them their tokens, and end
 * them. The work's reference to a live call (daemon/request/call.h) is dropped when the call stops being live.
 *
 * A call of many prompts is submitted in parts, so that it waits its turn like others. Its prompts are *ahead* from
 * their submission until they have been computed: one of each call, and further ones while the call has fewer than
 * twice --max-num-seqs, which keep all seats taken, and all calls together fewer than --max-queued-requests. The others
 * wait *behind*, in the call. */
#pragma once

#include "base/list.h"
#include "daemon/request/call.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/record.h"

/* The times at which the last LIVE_STEPS steps were planned are kept. At the first token of a prompt, the metrics need
 * the time of the step at whose planning the prompt was admitted. If that time is not kept any more, the prompt counts
 * as queued until its first token. */
enum { LIVE_STEPS = 4096 };

struct live {
	/* borrowed */
	struct server *server;
	struct scheduler *scheduler;
	struct record *record;	 /* NULL: not recording */
	struct handoff *handoff; /* NULL: this worker is unified */
	const struct engine *engine;

	struct list calls;	    /* the live calls */
	struct list matchers;	    /* of their constraints (steering_share) */
	uint64_t n_ahead, n_behind; /* their prompts that are ahead, and behind */
	struct call **touched;	    /* [max_num_seqs] calls with an event in this step; owned */
	struct call **steered;	    /* [max_num_seqs] those of them that need masks; owned */
	struct {
		uint64_t step, ns;
	} planned[LIVE_STEPS]; /* step s is at s % LIVE_STEPS */
};

/* Fails a call that is not live, and drops the work's reference. */
void live_refuse(struct live *l, struct call *c, const struct err *why) ON(role_engine);

/* Submits the first prompts of a call. If the scheduler does not accept one, refuses the whole call (live_refuse). If
 * the call is aborted already, submits nothing, counts an abort, and drops the work's reference. */
void live_submit(struct live *l, struct call *c) ON(role_engine);

/* Handles the message `control` of a call (call.h): ends the choices that http has ended (call_stop_choice), and ends
 * the whole call if it is aborted. A call that is not live is left as it is. */
void live_control(struct live *l, struct call *c) ON(role_engine);

/* Notes that step number `step` was planned now. */
void live_planned(struct live *l, uint64_t step) ON(role_engine);

/* Hands events to their calls, and submits their next prompts. Ends the calls whose last choice has ended. Fails and ends
 * each call for whose tokens there is no memory or no room (call_push), whose logits are not finite, whose steering
 * fails, or one of whose prompts the scheduler does not accept. Wakes the connection
 * of each call that has ended, and of each call that wants its tokens now (call_wants_tokens). Then makes the masks of
 * the next draws. */
void live_deliver(struct live *l, const struct scheduler_event *events, uint32_t n) ON(role_engine);

/* Fails and ends all live calls. */
void live_fail_all(struct live *l, const struct err *why) ON(role_engine);
