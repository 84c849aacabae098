/*
 * Golden answers: a model directory's golden.json, and requests run through scheduler and engine as the
 * daemon runs them, without HTTP. For tests that need the real forward pass.
 */
#pragma once

#include <jansson.h>

#include "base/ids.h"
#include "engine/engine.h"
#include "scheduler/scheduler.h"

enum { GOLDEN_TOP = 5 };

struct golden_step {
	int32_t ids[GOLDEN_TOP];
	float logprobs[GOLDEN_TOP];
	float margin;
};

struct golden_case {
	char name[64];
	struct ids prompt, output;
	struct golden_step *steps; /* [output.len] */
	uint32_t max_tokens;
};

struct golden {
	struct golden_case *cases;
	size_t n;
};

/* Reads DIR/golden.json, for as long as the program runs; false (and a diagnostic line) when it cannot. */
bool golden_open(const char *dir, struct golden *ret);

enum { RUN_CHOICES = 8 };

/* A request and, after run_all, its results, which live until the program ends. */
struct run {
	const int32_t *prompt;
	uint32_t n_prompt, max_tokens, min_tokens;
	uint32_t n_choices; /* 0: 1; at most RUN_CHOICES */
	bool ignore_end;
	const int32_t *end_tokens; /* [n_end_tokens]; NULL: the model's */
	uint32_t n_end_tokens;
	struct sampling sampling;
	uint32_t arrival;     /* step before which it is submitted */
	bool prompt_logprobs; /* with the GOLDEN_TOP best */
	/* results; `out` and `draws` for each choice */
	struct scheduler_hit hit;
	struct ids out[RUN_CHOICES];
	struct draw_result *draws[RUN_CHOICES]; /* [out.len] */
	struct draw_result *scores; /* [n_prompt] of the prompt from token 1 on; NULL: not wanted */
	uint32_t n_scores;	    /* up to here they came */
};

/* How requests share an engine. */
struct run_setup {
	uint32_t max_seqs, budget; /* no more than the engine was opened with */
	uint32_t page_tokens;	   /* as the engine was opened with */
	uint64_t shuffle; /* renames pages, slots and seats; 0: the smallest free one first */
	/* requests may resume prefixes that others of this run have computed */
	bool cache;
	bool refuse_decoded; /* if so: only prefilled ones */
	bool one_plan; /* each plan is made when the one before has run; otherwise two are out */
	uint32_t n_pages, n_slots;     /* 0: all that the engine has */
	struct scheduler_stats *stats; /* NULL, or where the scheduler's go when all have ended */
	/* Called for every step after it has run; NULL: not called. With it there is one plan at a time. */
	void (*watch)(void *arg, const struct plan *plan, const struct draw_result *results);
	void *arg;
};

/* Options of a test's engine: pages of 64 tokens; the dtype by its name, float32 or bfloat16. */
struct engine_options run_options(const char *dir, const char *dtype, uint32_t max_seqs,
				  uint32_t max_prefill_tokens);

/* All that the engine's options allow. */
struct run_setup run_setup_of(const struct engine_options *o);

/* Greedy, with the five best log-probabilities. */
struct sampling run_greedy(void);

/* Greedy requests for all cases, each of its case's max_tokens, whatever tokens are drawn. They live until the program
 * ends. */
struct run *golden_runs(const struct golden *g);

/* A greedy request that ends after max_tokens, whatever tokens are drawn. */
struct run run_of(const int32_t *prompt, size_t n_prompt, uint32_t max_tokens);

/* Runs all requests to their end; false, and it says why, on an engine or scheduler error, and when pages, slots or
 * seats are missing afterwards: all of them must be free or the cache's, and free when that is flushed. */
bool run_all(struct engine *g, const struct run_setup *setup, struct run *runs, size_t n);

/* The number of leading steps with the reference's token. SIZE_MAX, with a note of the place: the answers part, or one
 * of them ends, where the reference has no margin below `margin`, so it is no near tie. */
size_t golden_same_steps(const struct golden_case *c, const struct run *r, float margin);

/* Checks the log-probabilities of the prompt's tokens from n_prompt on, when the case's prompt and output were the
 * prompt: in float32 every listed one within 2e-4. */
bool golden_scores_match(const struct golden_case *c, const struct run *r, float *worst);

/* Checks float32: the same tokens up to the end or a near tie, and every listed log-probability up to there within
 * 2e-4. Notes the first difference; *worst grows to the largest. */
bool golden_matches(const struct golden_case *c, const struct run *r, float *worst);

/* The same tokens and the same bits of every log-probability, of the prompt's tokens and choice by choice; says
 * where not. */
bool run_same(const struct run *a, const struct run *b, const char *name);
