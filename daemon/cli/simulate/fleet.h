/* Simulates several workers: prefill and decode apart, as in this picture, or unified workers, which compute their own
 * prompts.
 *
 *     workload ──> a decode worker, by session ── scheduler_next_prepare ─> peers_choose ──> a prefill worker
 *                        ^                                                                        │ plan.ships
 *                        └───────────────── scheduler_received <──────── link <───────────────────┘
 *
 * Schedulers, caches and the choice of a peer are those of tigond (scheduler/, protocol/transfer/peers.h). The device
 * is the cost model of cost.h. Each worker has a link, which carries one transfer after the other in each
 * direction; fabric_bytes_s adds one link that all workers share. As in the daemon, a step's pages are sent one layer
 * group after the other while the step is computed, and a request's state with its last step. No worker fails.
 *
 * A session stays with one decode worker, chosen by the session's number. While this worker has about four times the mean
 * number of requests or more, new requests of the session go to another worker. packaging/haproxy.cfg balances in a
 * similar way. */
#pragma once

#include "daemon/cli/simulate/runner.h"

struct fleet_options {
	uint32_t n_prefill; /* 0: decode workers prefill as well; at most PEERS_MAX */
	uint32_t n_decode;
	double link_bytes_s;   /* of a worker's link, each way */
	double fabric_bytes_s; /* of all links together; 0: no limit */
	double message_s;      /* time that a message takes however short it is */
	uint32_t n_groups;     /* number of layer groups in which a step's pages are sent */
	double heartbeat_s;
};

struct fleet_result {
	uint64_t requests, failed;
	uint64_t handed_over; /* prompts that were sent to prefill workers */
	/* prompt tokens of all admitted requests, and how many of these the workers that answer (decode or unified
	 * workers) had cached */
	uint64_t prompt_tokens, local_tokens;
	/* Prompt tokens. asked: of the prompts that prefill workers were sent; found: those of them that were cached
	 * there; prefilled: computed by prefill workers; computed: by the workers that answer. */
	uint64_t asked_tokens, found_tokens, prefilled_tokens, computed_tokens;
	uint64_t generated_tokens, retractions;
	uint64_t page_bytes, state_bytes; /* bytes that prefill workers sent */
	double seconds;			  /* simulated, until the last answer ends */
	/* Shares of `seconds` in which devices were busy: the mean of the workers, and the busiest worker's. */
	double prefill_busy, prefill_busiest, decode_busy, decode_busiest;
	/* Share of `seconds` in which the busiest of the workers' links sent or received. */
	double link_busiest;
	/* Times to the first token, between two tokens, and from drawing the first token on a prefill worker to
	 * receiving it on the decode worker. */
	struct samples ttft_s, between_s, wait_s;
};

/* Runs the workload to its end; config is the same for each worker. Any error has a sentence; -EINVAL: a scheduler
 * cannot have this configuration. */
int fleet_run(struct workload *w, const struct scheduler_config *config,
	      const struct cost_model *cost, const struct fleet_options *o,
	      struct fleet_result *ret, struct err *e) MUST_CHECK;
void fleet_result_release(struct fleet_result *r);
