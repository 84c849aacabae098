/* Runs streams of made-up tokens on an engine, without a scheduler. `tigon bench kernels`, `tigon bench steps` and
 * `tigon tune` measure steps of such streams.
 *
 * Every stream has KV pages and a state slot of its own, all filled with random numbers before anything is measured.
 * Memory that was never written, or that streams share, might stay in a cache and be read too fast. The tokens of every
 * step are random, so that streams use different experts; tokens that a model draws would soon repeat. As in the
 * daemon, a step is queued before its predecessor has ended. Draws are greedy. */
#pragma once

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/roofline.h"

struct load;

struct load_result {
	double seconds; /* from handing over the first plan to receiving the last result */
	uint32_t steps;
	uint64_t launches;
	struct roofline roofline; /* sum over all the steps */
};

/* Makes a load, which load_close frees. The engine, which was opened with the options o, and these options are
 * borrowed. n_pages: the pages that will be needed; the engine may have fewer. */
int load_open(struct engine *g, const struct engine_options *o, uint32_t n_pages, struct load **ret,
	      struct err *e) MUST_CHECK;
void load_close(struct load *l);

/* Returns the most tokens that each stream can have if there are `streams` of them. 0: the engine does not run so many
 * streams, or has less than a page for each. */
uint32_t load_longest(const struct load *l, uint32_t streams);

/* Computes a prompt of n tokens from nothing, in steps of at most load_most tokens, and draws the token behind it.
 * n <= load_longest(1). experts: the number of different experts that a layer uses in a step, for result->roofline. */
int load_prefill(struct load *l, uint32_t n, double experts, struct load_result *result,
		 struct err *e) MUST_CHECK;

/* Computes only tokens [from, from + n) of a prompt of `of` tokens. If they end the prompt, draws the token behind it.
 * Earlier calls must have computed all tokens before `from`, which is a multiple of load_most. */
int load_window(struct load *l, uint32_t from, uint32_t n, uint32_t of, double experts,
		struct load_result *result, struct err *e) MUST_CHECK;

/* Returns the most tokens of a prompt that a step takes. */
uint32_t load_most(const struct load *l);

/* Runs `steps` steps, in each of which every stream generates a token. Each stream begins behind `context` tokens,
 * which are not computed: its pages and state are used as they are in memory. context + steps <=
 * load_longest(streams). */
int load_decode(struct load *l, uint32_t streams, uint32_t context, uint32_t steps, double experts,
		struct load_result *result, struct err *e) MUST_CHECK;

/* Sets a function that is called once a step, when the step was queued and before an earlier one is waited for.
 * If it fails, the call that runs steps fails with its error. NULL: no function is called. */
typedef int load_beside_call(void *user, struct err *e);
void load_beside(struct load *l, load_beside_call *call, void *user);

/* Returns the number of pages that streams use: pages 0, 1, 2, ... */
uint32_t load_pages(const struct load *l);

/* Sets the seed from which later tokens are made. reported: later draws have log-probabilities. */
void load_seed(struct load *l, uint64_t seed, bool reported);

/* Adds results of the last step to a hash, for comparing bits: the draws of all streams, and the first page and the
 * state of the first four streams. After load_prefill, streams is 1. */
int load_digest(struct load *l, uint32_t streams, struct hash128 *h, struct err *e) MUST_CHECK;
