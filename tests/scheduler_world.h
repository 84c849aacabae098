/*
 * A scheduler for tests of single rules: pages of 2 tokens, prompts written as letters, plans compared as text.
 *
 *     "a0+4"    a prefill row: its first token, its start, its number of tokens
 *     "a4+8^6^10" a prefill row that keeps states at 6 and 10 (snapshots)
 *     "@8"      a decode row whose token is at position 8; "@8?" its token is not known yet
 *     "a.1@8"   a decode row with the request's letter (world_letters) and the choice (world.named)
 *     "!"       behind a row: one for each of its draws
 */
#pragma once

#include "base/buf.h"
#include "scheduler/scheduler.h"
#include "tests/tap.h"

enum {
	WORLD_SEQS = 8,
	WORLD_SEQS_MAX = 16, /* the most that a configuration may have */
	WORLD_VOCAB = 1000,
	WORLD_END = 999,
	WORLD_LEN = 256,
	WORLD_LETTERS_MAX = 4096,
};

struct world {
	struct scheduler *s;
	struct scheduler_config config;
	const struct plan *plan;				/* the newest */
	struct draw_result results[WORLD_SEQS_MAX + WORLD_LEN]; /* draws, then scored tokens */
	struct scheduler_event events[2 * WORLD_SEQS_MAX];
	uint32_t n_events; /* of the last commit */
	struct buf text;
	bool named; /* world_plan writes a decode row with the letter of its request and its choice */
};

/* state_tokens 0: a model without states. */
struct scheduler_config world_config(uint32_t state_tokens, uint32_t n_pages, uint32_t budget);
struct world *world_open(const struct scheduler_config *config);

/* Checks the cache's invariants, then closes the world. */
void world_close(void *world);

/* Returns a world that is closed when its TEST has ended. */
static inline struct world *world_new(const struct scheduler_config *config)
{
	struct world *w = world_open(config);

	after_test(world_close, w);
	return w;
}

/* world_request returns a request with these letters as prompt, greedy, with one choice; WORLD_END ends it. It is valid
 * until the next call. world_submit submits such a request. Submitting returns the request's id. */
struct scheduler_request world_request(const char *prompt, uint32_t max_tokens);
uint64_t world_submit_request(struct world *w, const struct scheduler_request *r);
uint64_t world_submit(struct world *w, const char *prompt, uint32_t max_tokens);

/* The same for a prompt of n_prompt times one letter, which is also the seed of the request's draws. The request stays
 * valid. */
struct scheduler_request world_letters(char letter, uint32_t n_prompt, uint32_t max_tokens);
uint64_t world_submit_letters(struct world *w, char letter, uint32_t n_prompt, uint32_t max_tokens);

/* Makes the next plan. Returns it as text; "nothing": there is none. */
const char *world_plan(struct world *w);

/* Commits the oldest plan that is out, all of whose draws gave `token`. */
void world_commit(struct world *w, int32_t token);

/* Plans and commits one step, all of whose draws give `token`. */
void world_step(struct world *w, int32_t token);

/* Checks that the text of the next plan is `text`. step_is then commits the oldest plan that is out. */
#define plan_is(w, text, ...) is_str(world_plan(w), text, __VA_ARGS__)
#define step_is(w, token, text, ...)           \
	do {                                   \
		plan_is(w, text, __VA_ARGS__); \
		world_commit(w, token);        \
	} while (0)

/* Runs all requests to their end; every draw gives `token`. */
void world_run(struct world *w, int32_t token);

struct scheduler_stats world_stats(const struct world *w);

/* Flushes the cache. Returns whether no request is left and everything is free. */
bool world_at_baseline(struct world *w);

/* Returns whether the cache has a node that ends behind these `depth` tokens; in a model with states: one with a
 * state. */
bool world_published(const struct world *w, const int32_t *tokens, uint32_t depth);
bool world_published_text(const struct world *w, const char *text, uint32_t depth);
