/* The input of a simulation: requests, each at its time. A workload is a trace or the agentic one.
 *
 * A trace is a file of JSON lines, one request a line; keys besides "at" and "prompt" are optional:
 *
 *     {"at": 0.25, "prompt": [1, 2, 3], "output": 20}
 *     {"at": 1.5, "prompt": [{"seed": 7, "tokens": 500}, 8, 9], "boundaries": [500], "priority": 0, "salt": 1}
 *
 * at: seconds. prompt: a list of token ids and objects. An object stands for as many made-up tokens as its "tokens"
 * says; the same seed gives the same tokens, so that prompts can share beginnings. output: the number of generated
 * tokens (default 16). boundaries: rising numbers of prompt tokens behind which turns end, at most SIM_BOUNDARIES_MAX
 * of them. priority: lower first. salt: a text, which means the same as cache_salt in a request to tigond, or a whole
 * number. Prompts with different salts share nothing; 0 means no salt.
 *
 * The agentic workload is the one of TokenSpeed's report on Qwen3.5; the numbers here are the defaults of the options
 * of `tigon simulate`. Many users share a system prompt. A session has 10 to 15 turns. Here a turn is a request with
 * its answer. The first turn is a long context (50 thousand tokens). Each later turn repeats everything before, the
 * model's answers included, and appends a tool's result (800 tokens). A user sends the next turn some time after an
 * answer. After the last turn the user begins another session, if one is left. So the times of requests depend on the
 * ends of earlier requests. */
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
	struct prefix_space space; /* that of its salt */
	uint64_t tag;		   /* names the request to workload_done */
};

struct agentic_options {
	uint32_t sessions, users;
	uint32_t system_tokens, first_tokens, turn_tokens, output_tokens;
	uint32_t min_turns, max_turns;
	double think_s; /* mean time from an answer to the next turn; the distribution is exponential */
	uint64_t seed;
};

struct workload;

/* Makes a workload from a trace; workload_free frees it. -EINVAL: a line is wrong, and the sentence names the file and
 * the line; or the trace has no requests. -EFBIG: a line is too long. -EFAULT: a salt cannot be hashed. -ENOMEM.
 * -ENOENT or another errno: the file cannot be read. */
int workload_open_trace(const char *path, struct workload **ret, struct err *e) MUST_CHECK;

/* Makes an agentic workload; workload_free frees it. -EINVAL: its sessions could become too long; -ENOMEM. */
int workload_new_agentic(const struct agentic_options *o, struct workload **ret,
			 struct err *e) MUST_CHECK;
void workload_free(struct workload *w);

/* Gives the time of the next request. False: there is none now; a request that runs may lead to another one when it
 * ends. */
bool workload_peek(const struct workload *w, double *ret_at);

/* Takes the next request, which workload_peek must have found. -ENOMEM. */
int workload_next(struct workload *w, struct sim_request *ret) MUST_CHECK;

/* Tells the workload that a request has ended at the time `now`, with these generated tokens, which are copied.
 * -ENOMEM. */
int workload_done(struct workload *w, uint64_t tag, double now, const int32_t *output,
		  uint32_t n_output) MUST_CHECK;

/* Returns a bound on the tokens that a prompt and its output have together. */
uint32_t workload_longest(const struct workload *w);

/* Makes up the token of draw k of a step; equal arguments give equal tokens. tag: any number that no other step has. */
int32_t workload_token(uint64_t tag, uint32_t k);
