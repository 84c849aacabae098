/*
 * Golden answers, which transformers computed: a model directory's golden.json; and requests that run through scheduler
 * and engine as the daemon runs them, without HTTP. For tests that need the real forward pass.
 */
#pragma once

#include <jansson.h>

#include "base/ids.h"
#include "engine/engine.h"
#include "scheduler/scheduler.h"

enum { GOLDEN_TOP = 5 };

/* One token of a recorded answer: the most likely tokens there, the best first. margin: the best log-probability less
 * the second one. */
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

/* Reads golden.json of the directory; its data live until the program ends. False, with a line that says why: it cannot
 * be read. */
bool golden_open(const char *dir, struct golden *ret);

enum { RUN_CHOICES = 8 };

/* A request and, after run_all, its results, which live until the program ends. */
struct run {
	const int32_t *prompt;
	uint32_t n_prompt, max_tokens, min_tokens;
	uint32_t n_choices; /* at most RUN_CHOICES; 0 stands for 1 */
	bool ignore_end;
	const int32_t *end_tokens; /* [n_end_tokens]; NULL: the model's */
	uint32_t n_end_tokens;
	const uint32_t *allowed;	/* token mask of all draws; NULL: none */
	const struct plan_bias *biases; /* [n_biases] */
	uint32_t n_biases;
	struct sampling sampling;
	uint32_t arrival;     /* number of the step, from 0, before which it is submitted */
	bool prompt_logprobs; /* wanted, with the GOLDEN_TOP best beside each */
	uint32_t first_score; /* with prompt_logprobs: the first token whose score is wanted */
	enum pooling pooling; /* the vector that is wanted; max_tokens is 0 then */
	/* the results; `out` and `draws` are the tokens of each choice */
	struct scheduler_hit hit;
	struct ids out[RUN_CHOICES];
	struct draw_result *draws[RUN_CHOICES]; /* [out.len] */
	/* [n_prompt] of the prompt's tokens; [0] is not set; NULL: not wanted */
	struct draw_result *scores;
	uint32_t n_scores; /* index behind the last score that came */
	float *pooled;	   /* [hidden_size] */
	uint32_t n_pooled; /* hidden_size; 0: there is no vector */
};

/* How requests share an engine. */
struct run_setup {
	uint32_t max_seqs, budget; /* seats; prefill budget. No more than the engine has */
	uint32_t page_tokens;	   /* as the engine was opened with */
	/* seed of a random order of pages, slots and seats; 0: the smallest free one comes first */
	uint64_t shuffle;
	/* requests may resume prefixes that requests of this run left in the cache */
	bool cache;
	bool refuse_decoded; /* with `cache`: only prefilled prefixes */
	bool one_plan; /* each plan is made when the one before has run; otherwise two are out */
	uint32_t n_pages, n_slots;     /* 0: all that the engine has */
	struct scheduler_stats *stats; /* gets the scheduler's at the end; NULL: not wanted */
	/* Called for every step after it has run; then one plan at a time is out. NULL: not called. */
	void (*watch)(void *arg, const struct plan *plan, const struct draw_result *results);
	void *arg;
};

/* Returns options of a test's engine, with pages of 64 tokens. dtype: float32 or bfloat16; with
 * ",int8" behind it the KV cache is in int8. */
struct engine_options run_options(const char *dir, const char *dtype, uint32_t max_seqs,
				  uint32_t max_prefill_tokens);

/* Returns a setup with all seats and the whole budget of the engine's options, and no cache. */
struct run_setup run_setup_of(const struct engine_options *o);

/* Returns greedy sampling with the GOLDEN_TOP best log-probabilities. */
struct sampling run_greedy(void);

/* Returns a greedy request for each case (run_of), with the case's max_tokens. They live until the program ends. */
struct run *golden_runs(const struct golden *g);

/* Returns a greedy request that ends after max_tokens, whatever tokens are drawn. */
struct run run_of(const int32_t *prompt, size_t n_prompt, uint32_t max_tokens);

/* Runs all requests to their end. False, with a line that says why: engine or scheduler failed, or pages, slots or
 * seats are missing afterwards. All of them must then be free or the cache's, and free when the cache is flushed. */
bool run_all(struct engine *g, const struct run_setup *setup, struct run *runs, size_t n);

/* Returns how many tokens, from the first on, the answer of r's choice 0 has in common with the case's. SIZE_MAX, with
 * a line that names the place: the answers part, or one of them ends before the other, and the case's step there is no
 * near tie (a step with a margin below `margin`). */
size_t golden_same_steps(const struct golden_case *c, const struct run *r, float margin);

/* r: a run whose prompt is the case's prompt and, behind it, the case's output. Checks for float32 that each
 * log-probability that the case lists for its output is within 2e-4 of the run's scores. *worst grows to the largest
 * difference. */
bool golden_scores_match(const struct golden_case *c, const struct run *r, float *worst);

/* Checks r's choice 0 for float32: it has the case's tokens up to the end or a near tie (a margin below 4e-4), and
 * every log-probability that the case lists up to there is within 2e-4. Prints the first difference that is too large.
 * *worst grows to the largest difference. */
bool golden_matches(const struct golden_case *c, const struct run *r, float *worst);

/* Whether both runs have the same tokens and the same bits of every log-probability, of the prompt and of each choice,
 * and of the vector.
 * Prints the first difference, behind `name`. */
bool run_same(const struct run *a, const struct run *b, const char *name);

/* Returns the largest difference of the log-probabilities of the first choices' tokens, over n pairs of runs, and in
 * *ret_tokens how many tokens were compared. INFINITY: a pair has different tokens. */
float runs_apart(const struct run *a, const struct run *b, size_t n, size_t *ret_tokens);
