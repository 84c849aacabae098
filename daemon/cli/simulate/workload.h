/* The input of a simulation: requests, each at its time. Agentic requests depend on the ends of earlier ones.
 *
 * A trace is a file of JSON lines, a request each; keys besides "at" and "prompt" are optional:
 *
 *     {"at": 0.25, "prompt": [1, 2, 3], "output": 20}
 *     {"at": 1.5, "prompt": [{"seed": 7, "tokens": 500}, {"seed": 12, "tokens": 64}],
 *      "output": 128, "boundaries": [500], "priority": 0, "salt": 1}
 *
 * at: seconds. prompt: token ids, or pieces, each a seed and a number of made-up tokens; the same seed gives the same
 * tokens, so that prompts can share beginnings. output: the number of generated tokens (default 16).
 *
 * The agentic workload is the one of TokenSpeed's report on Qwen3.5. Many users share a system prompt. A session
 * begins with a long context (50 thousand tokens). Each of its 10 to 15 turns repeats everything before, the model's
 * answers included, and appends a tool's result (800 tokens). The loop is closed: a user thinks, sends the next turn,
 * and begins another session after the last one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "prefix_cache/prefix_cache.h"

enum { SIM_VOCAB = 1 << 17, SIM_BOUNDARIES_MAX = 32 };

struct sim_request {
	double at;	       /* seconds */
	const int32_t *prompt; /* borrowed until workload_done */
	uint32_t n_prompt, n_output;
	uint32_t boundaries[SIM_BOUNDARIES_MAX], n_boundaries;
	int32_t priority;
	struct prefix_space space; /* of its salt */
	uint64_t tag;		   /* a number that the workload chose */
	/* leading tokens that an earlier prompt or answer had: the hits of an unlimited cache */
	uint32_t shared;
};

struct agentic_options {
	uint32_t sessions, users;
	uint32_t system_tokens, first_tokens, turn_tokens, output_tokens;
	uint32_t min_turns, max_turns;
	double think_s; /* mean; drawn from an exponential distribution */
	uint64_t seed;
};

struct workload;

/* New. -ENOENT; -EINVAL with file and line in the sentence. */
int workload_open_trace(const char *path, struct workload **ret, struct err *e) MUST_CHECK;
int workload_new_agentic(const struct agentic_options *o, struct workload **ret,
			 struct err *e) MUST_CHECK;
void workload_free(struct workload *w);

/* The time of the next request. False: none is known yet; requests that run may lead to others when they end. */
bool workload_peek(const struct workload *w, double *ret_at);

/* Takes that request. -ENOMEM. */
int workload_next(struct workload *w, struct sim_request *ret) MUST_CHECK;

/* Tells that a request has ended at this time with these generated tokens, which are copied. -ENOMEM. */
int workload_done(struct workload *w, uint64_t tag, double now, const int32_t *output,
		  uint32_t n_output) MUST_CHECK;

/* The longest prompt with its output, and the number of requests (sessions times mean turns). */
uint32_t workload_longest(const struct workload *w);

/* A generated token, the same for the same two numbers: of a step (or a worker's step), and of a draw in it. */
int32_t workload_token(uint64_t tag, uint32_t k);
