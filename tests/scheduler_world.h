/*
 * A scheduler for tests of single rules: pages of 2 tokens, prompts written as letters, plans compared as text.
 *
 *     "a0+4"    a prefill row: its first token, its start, its number of tokens
 *     "a4+8^6^10" which keeps states at 6 and 10 (snapshots)
 *     "@8"      a decode row whose token stands at position 8; "@8?" its token is not known yet
 *     "!"       behind a row: it draws, once a choice
 */
#ifndef TESTS_SCHEDULER_WORLD_H
#define TESTS_SCHEDULER_WORLD_H

#include "base/buf.h"
#include "scheduler/scheduler.h"

enum { WORLD_SEQS = 8, WORLD_VOCAB = 1000, WORLD_END = 999, WORLD_LEN = 256 };

struct world {
	struct scheduler *s;
	struct scheduler_config config;
	const struct plan *plan;			    /* the newest */
	struct draw_result results[WORLD_SEQS + WORLD_LEN]; /* draws, then scored tokens */
	struct scheduler_event events[2 * WORLD_SEQS];
	uint32_t n_events; /* of the last commit */
	struct buf text;
};

/* state_tokens 0: a model without states. */
struct scheduler_config world_config(uint32_t state_tokens, uint32_t n_pages, uint32_t budget);
struct world *world_new(const struct scheduler_config *config);

/* Checks the cache's invariants as well. */
void world_free(struct world *w);

/* A request with these letters as prompt, greedy, one choice; WORLD_END ends it. Valid until the next call. */
struct scheduler_request world_request(const char *prompt, uint32_t max_tokens);
uint64_t world_submit_request(struct world *w, const struct scheduler_request *r);
uint64_t world_submit(struct world *w, const char *prompt, uint32_t max_tokens);

/* The next plan, as text; "nothing". */
const char *world_plan(struct world *w);

/* Commits the oldest plan that is out, all of whose draws gave `token`. */
void world_commit(struct world *w, int32_t token);

/* Everything that is there runs to its end; every draw gives `token`. */
void world_run(struct world *w, int32_t token);

struct scheduler_stats world_stats(const struct world *w);

/* The cache has a node that ends after these tokens; in a model with states: with a state there. */
bool world_published(const struct world *w, const int32_t *tokens, uint32_t depth);
bool world_published_text(const struct world *w, const char *text, uint32_t depth);

#endif
