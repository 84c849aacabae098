/*
 * A scheduler for tests of single rules: pages of 2 tokens, prompts written as letters, plans compared as text.
 *
 *     "a0+4"    a prefill row: its first token, its start, its number of tokens
 *     "a4+8^6^10" which keeps states at 6 and 10 (snapshots)
 *     "@8"      a decode row whose token is at position 8; "@8?" its token is not known yet
 *     "a.1@8"   the same, with the request's letter and the choice (world.named)
 *     "!"       behind a row: it draws, once a choice
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
	bool named; /* decode rows are written with the names of their requests */
};

/* state_tokens 0: a model without states. */
struct scheduler_config world_config(uint32_t state_tokens, uint32_t n_pages, uint32_t budget);
struct world *world_open(const struct scheduler_config *config);

/* Checks the cache's invariants as well. */
void world_close(void *world);

/* A world that is closed when its TEST has ended. */
static inline struct world *world_new(const struct scheduler_config *config)
{
	struct world *w = world_open(config);

	after_test(world_close, w);
	return w;
}

/* A request with these letters as prompt, greedy, one choice; WORLD_END ends it. Valid until the next call. */
struct scheduler_request world_request(const char *prompt, uint32_t max_tokens);
uint64_t world_submit_request(struct world *w, const struct scheduler_request *r);
uint64_t world_submit(struct world *w, const char *prompt, uint32_t max_tokens);

/* The same for a prompt that is n_prompt times the same letter, which is also the seed of its draws; valid for ever. */
struct scheduler_request world_letters(char letter, uint32_t n_prompt, uint32_t max_tokens);
uint64_t world_submit_letters(struct world *w, char letter, uint32_t n_prompt, uint32_t max_tokens);

/* Makes the next plan. Returns it as text; "nothing": there is none. */
const char *world_plan(struct world *w);

/* Commits the oldest plan that is out, all of whose draws gave `token`. */
void world_commit(struct world *w, int32_t token);

/* Plans and commits one step, all of whose draws give `token`. */
void world_step(struct world *w, int32_t token);

/* The next plan has to be this text; step_is also commits it. */
#define plan_is(w, text, ...) is_str(world_plan(w), text, __VA_ARGS__)
#define step_is(w, token, text, ...)           \
	do {                                   \
		plan_is(w, text, __VA_ARGS__); \
		world_commit(w, token);        \
	} while (0)

/* Everything that is there runs to its end; every draw gives `token`. */
void world_run(struct world *w, int32_t token);

struct scheduler_stats world_stats(const struct world *w);

/* No request is left, and when the cache is flushed everything is free. */
bool world_at_baseline(struct world *w);

/* The cache has a node that ends after these tokens; in a model with states: with a state there. */
bool world_published(const struct world *w, const int32_t *tokens, uint32_t depth);
bool world_published_text(const struct world *w, const char *text, uint32_t depth);
