/* The forward pass against golden answers that transformers computed in float32.
 *
 *     test_golden MODEL float32|bfloat16 [generic|x86|auto [GOLDEN]]
 *
 * GOLDEN: a directory with a golden.json of MODEL, a quantised file whose numbers transformers had as floats
 * (golden/quantised_models.py). Without it MODEL is a directory, and has one.
 *
 * Then the same log-probabilities are requested in another way: prompt and answer together are the prompt.
 *
 * The margin of a step is its best log-probability less the second. float32: the same tokens up to the end or to a step
 * with a margin below 4e-4, and every listed log-probability up to there within 2e-4. bfloat16: the same tokens up to
 * the end or to a step with a margin below 0.2; up to there the log-probabilities of 99 of 100 tokens within 0.1. The
 * first token's log-probability is within 0.05, and within 0.01 in the root mean square of all cases: in one of them it
 * changes by as much as 0.03 with the last bit of any sum. Quantised weights have products with activations of 8 bits
 * there, and other bounds. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/golden.h"
#include "tests/tap.h"

static float worst;

/* How far bfloat16 may be from float32. margin: that of a step whose token may be another one; near: how far the
 * log-probabilities of 99 of 100 steps may be off. */
struct bounds {
	float margin, near;
};
static const struct bounds plain = {0.2f, 0.1f};
/* lexis as Q8_0 and Q4_K_M: the largest difference of all steps was 0.28 and 0.33, that of 99 of 100 0.17 and 0.19. */
static const struct bounds quantised = {0.7f, 0.25f};

static void test_float32(const struct golden *g, const struct run *runs)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct golden_case *c = &g->cases[i];

		ok(golden_matches(c, &runs[i], &worst),
		   "%s: %zu prompt tokens, the same %zu tokens and log-probabilities", c->name,
		   c->prompt.len, c->output.len);
	}
	printf("# largest difference of a log-probability: %.3g\n", (double)worst);
}

static void test_bfloat16(const struct golden *g, const struct run *runs, const struct bounds *b)
{
	size_t steps = 0, near = 0;
	double first = 0, all = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct golden_case *c = &g->cases[i];
		size_t n = golden_same_steps(c, &runs[i], b->margin);

		if (!ok(n != SIZE_MAX, "%s: the same tokens where the margin decides", c->name))
			continue;
		if (n) {
			float diff = fabsf(runs[i].draws[0][0].logprob - c->steps[0].logprobs[0]);

			worst = fmaxf(worst, diff);
			first += (double)diff * (double)diff;
			if (diff > 0.05f)
				printf("# %s: first step off by %g\n", c->name, (double)diff);
			check(diff <= 0.05f);
		}
		for (size_t k = 0; k < n; k++, steps++) {
			float diff = fabsf(runs[i].draws[0][k].logprob - c->steps[k].logprobs[0]);

			near += diff <= b->near;
			all += (double)diff * (double)diff;
		}
	}
	first = sqrt(first / (double)g->n);
	printf("# root mean square of the differences: first steps %.3g, all %.3g\n", first,
	       sqrt(all / (double)steps));
	check(first <= 0.01);
	ok_all("first steps within 0.05 (%.3g)", (double)worst);
	ok((double)near >= 0.99 * (double)steps, "%zu of %zu steps within %g", near, steps,
	   (double)b->near);
}

/* Requests scores of each answer, as the end of a prompt. */
static void test_prompts(struct engine *g, const struct run_setup *setup,
			 const struct golden *golden, const struct bounds *b, bool exact)
{
	struct run *runs = calloc(golden->n, sizeof(*runs));
	size_t near = 0, n = 0, ranked = 0, decided = 0;

	worst = 0;
	for (size_t i = 0; i < golden->n; i++) {
		const struct golden_case *c = &golden->cases[i];
		int32_t *prompt = calloc(c->prompt.len + c->output.len, sizeof(*prompt));

		memcpy(prompt, c->prompt.v, c->prompt.len * sizeof(*prompt));
		memcpy(prompt + c->prompt.len, c->output.v, c->output.len * sizeof(*prompt));
		runs[i] = run_of(prompt, c->prompt.len + c->output.len, 1);
		runs[i].prompt_logprobs = true;
	}
	ok(run_all(g, setup, runs, golden->n), "all ran as prompts");
	for (size_t i = 0; i < golden->n; i++) {
		const struct golden_case *c = &golden->cases[i];
		const struct run *r = &runs[i];

		check(r->n_scores == r->n_prompt);
		if (exact)
			check(golden_scores_match(c, r, &worst));
		for (uint32_t k = 1; k < r->n_scores; k++) {
			const struct draw_result *s = &r->scores[k];

			/* The token stands among the best at its rank, and nowhere else. */
			check(s->token == r->prompt[k] && s->rank >= 1 && s->n_top == GOLDEN_TOP);
			for (uint32_t j = 0; j < s->n_top; j++)
				check((s->top_ids[j] == s->token) == (s->rank == j + 1) &&
				      (s->top_ids[j] != s->token ||
				       s->top_logprobs[j] == s->logprob));
		}
		for (size_t k = 0; k < c->output.len; k++, n++) {
			const struct draw_result *s = &r->scores[c->prompt.len + k];

			near += fabsf(s->logprob - c->steps[k].logprobs[0]) <= b->near;
			ranked += s->rank == 1;
			decided += c->steps[k].margin >= b->margin;
			check(s->rank == 1 || c->steps[k].margin < b->margin);
		}
	}
	ok_all("prompt and answer as a prompt: the answer's log-probabilities%s",
	       exact ? "" : ", and each has its rank");
	printf("# largest difference of a log-probability: %.3g\n", (double)worst);
	ok((double)near >= 0.99 * (double)n && (double)ranked >= 0.97 * (double)n &&
		   (double)decided >= 0.95 * (double)n,
	   "%zu of %zu within %g, %zu of them the best, and %zu have to be", near, n,
	   (double)b->near, ranked, decided);
	for (size_t i = 0; i < golden->n; i++)
		free((int32_t *)(uintptr_t)runs[i].prompt);
	free(runs);
}

int main(int argc, char **argv)
{
	struct engine_options o;
	struct run_setup setup;
	struct golden golden = {0};
	struct engine *g;
	struct run *runs;
	struct err e = {0};
	const struct bounds *b = argc > 4 ? &quantised : &plain;

	if (argc < 3)
		return 2;
	o = run_options(argv[1], argv[2], 16, 1024);
	setup = run_setup_of(&o);
	if (argc > 3 && !strcmp(argv[3], "generic"))
		o.kernels = ENGINE_KERNELS_GENERIC;
	if (argc > 3 && !strcmp(argv[3], "x86"))
		o.kernels = ENGINE_KERNELS_X86;
	if (!golden_open(argc > 4 ? argv[4] : o.model_dir, &golden))
		return 2;
	if (engine_open(&o, &g, &e) < 0) {
		if (e.code == ENOTSUP)
			return skip_all(e.text);
		printf("# %s\n", e.text);
		return 2;
	}
	runs = golden_runs(&golden);
	for (size_t i = 0; i < golden.n; i++)
		runs[i].ignore_end = false;
	ok(run_all(g, &setup, runs, golden.n), "all cases ran (%s, %s)",
	   engine_info(g)->device_name, engine_info(g)->kernels);
	if (o.dtype == ENGINE_FLOAT32)
		test_float32(&golden, runs);
	else
		test_bfloat16(&golden, runs, b);
	test_prompts(g, &setup, &golden, b, o.dtype == ENGINE_FLOAT32);
	engine_close(g);
	return done();
}
