/*
 * Streams of made-up tokens on an engine, without a scheduler: the steps that the bench measures.
 *
 * Every stream has KV pages and a state slot of its own, all filled with random numbers before anything is measured:
 * memory that was never written, or that streams share, would come out of a cache. Tokens are random in every step,
 * so that streams choose experts of their own: those that a model draws soon repeat. A step is queued before anybody
 * has waited for the one before, as the daemon does it; each draws its tokens, greedily.
 */
#pragma once

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/roofline.h"

struct load;

struct load_result {
	double seconds; /* from the first plan handed over to the last result */
	uint32_t steps;
	uint64_t launches;
	struct roofline roofline; /* of all the steps */
};

/* New. Engine and options, which it was opened with, are borrowed. n_pages: pages that will be needed, of which the
 * engine may have fewer. */
int load_open(struct engine *g, const struct engine_options *o, uint32_t n_pages, struct load **ret,
	      struct err *e) MUST_CHECK;
void load_close(struct load *l);

/* The longest that each of so many streams can be, in tokens. */
uint32_t load_longest(const struct load *l, uint32_t streams);

/* A prompt of n tokens from nothing, in steps of at most max_prefill_tokens, and its first token. experts: that each
 * layer touches, for the roofline. n <= load_longest(1). */
int load_prefill(struct load *l, uint32_t n, double experts, struct load_result *ret,
		 struct err *e) MUST_CHECK;

/* Tokens [from, from + n) of a prompt of `of` tokens alone; from is a multiple of load_most. */
int load_window(struct load *l, uint32_t from, uint32_t n, uint32_t of, double experts,
		struct load_result *ret, struct err *e) MUST_CHECK;

/* Tokens of a prompt that a step takes. */
uint32_t load_most(const struct load *l);

/* So many steps, in each of which every stream generates a token; each has `context` tokens before the first.
 * context + steps <= load_longest(streams). */
int load_decode(struct load *l, uint32_t streams, uint32_t context, uint32_t steps, double experts,
		struct load_result *ret, struct err *e) MUST_CHECK;

/* Tokens from here on are those of a seed; `reported`: with the log-probabilities of every draw. */
void load_seed(struct load *l, uint64_t seed, bool reported);

/* Adds what the last step left: the draws of all streams, and of the first few of them what is in their first page and
 * their state. load_prefill is one stream. */
int load_digest(struct load *l, uint32_t streams, struct hash128 *h, struct err *e) MUST_CHECK;
