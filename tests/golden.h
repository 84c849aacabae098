/*
 * Golden answers: a model directory's golden.json, and requests run through scheduler and engine as the
 * daemon runs them, without HTTP. For tests that need the real forward pass.
 */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

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

/* Reads DIR/golden.json; false (and a diagnostic line) when it cannot. */
bool golden_open(const char *dir, struct golden *ret);
void golden_release(struct golden *g);

/* A request and, after run_all, what came of it. */
struct run {
	const int32_t *prompt;
	uint32_t n_prompt, max_tokens, n_choices;
	bool ignore_end;
	struct sampling sampling;
	uint32_t arrival; /* step before which it is submitted */
	/* results, for each choice */
	struct ids out[8];
	struct draw_result *draws[8]; /* [out.len] */
};

/* Greedy, with the five best log-probabilities. */
struct sampling run_greedy(void);

/* Runs all requests to their end; false on an engine or scheduler error. `shuffle` renames pages and slots. */
bool run_all(struct engine *g, uint32_t max_seqs, uint32_t budget, uint64_t shuffle, struct run *runs,
	     size_t n);
void run_release(struct run *r);

#endif
