/*
 * Several workers in simulated time: prefill and decode apart, or each doing both.
 *
 *     workload ──> a decode worker, by session ── scheduler_next_prepare ─> peers_choose ──> a prefill worker
 *                        ^                                                                        │ plan.ships
 *                        └───────────────── scheduler_received <──────── link <───────────────────┘
 *
 * Schedulers, caches and the choice of a peer are those of tigond (scheduler/, protocol/transfer/peers.h); the device is the cost
 * model of runner.h, and the network a link for each worker, which passes on one transfer after the other each way, and if asked
 * for one link that all share. A step's pages go out window by window while it is computed, as the daemon sends them; a
 * request's state with its last step. Nobody fails.
 *
 * A session stays with one worker, by its number, as packaging/haproxy.cfg has it: unless that one has twice the mean
 * number of requests.
 */
#pragma once

#include "daemon/cli/simulate/runner.h"

struct fleet_options {
	uint32_t n_prefill; /* 0: those that decode prefill as well; at most PEERS_MAX */
	uint32_t n_decode;
	double link_bytes_s;   /* of a worker, each way */
	double fabric_bytes_s; /* of all together; 0: no limit */
	double message_s;      /* what a message takes however short it is */
	uint32_t n_windows;    /* in which a step's pages are sent */
	double heartbeat_s;
};

struct fleet_result {
	uint64_t requests, failed;
	uint64_t handed_over;		      /* requests whose prompt came from a prefill worker */
	uint64_t prompt_tokens, local_tokens; /* of requests; of those found by who answers */
	/* Prompt tokens: asked of prefill workers, found there, computed there, computed by who answers. */
	uint64_t asked_tokens, found_tokens, prefilled_tokens, computed_tokens;
	uint64_t generated_tokens, retractions;
	uint64_t page_bytes, state_bytes; /* sent */
	double seconds;			  /* until the last answer's end */
	/* Shares of it in which a device had something to do: the mean, and the busiest one's. */
	double prefill_busy, prefill_busiest, decode_busy, decode_busiest;
	double link_busiest; /* share in which a worker's link sent or received */
	struct samples ttft_s, between_s, wait_s; /* wait: from the first token there to it here */
};

/* Runs the workload to its end; config is that of each worker. -ENOMEM, -EINVAL. */
int fleet_run(struct workload *w, const struct scheduler_config *config,
	      const struct cost_model *cost, const struct fleet_options *o,
	      struct fleet_result *ret, struct err *e) MUST_CHECK;
void fleet_result_release(struct fleet_result *r);
