/*
 * What planning costs: the thread's CPU time of scheduler_plan and scheduler_commit with a thousand running requests,
 * some of which end in every step while others are admitted, against the size of the tree. Every run is the
 * same, so a step's cost is the least of several runs: what else the machine does is left out.
 *
 *     bench_scheduler [STEPS [RUNS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scheduler/scheduler.h"

enum {
	PAGE = 64,
	RUNNING = 1000,
	SYSTEM = 2 * PAGE,	    /* tokens that all prompts begin with */
	PROMPT = SYSTEM + PAGE + 2, /* of those that fill the tree */
	TURN = 60,		    /* tokens that an admitted prompt adds to one of them */
	VOCAB = 100000,
	END = 1,
};

static uint64_t random_state = 1;

static uint32_t below(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(random_state >> 33) % n;
}

static double cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Prompt number `which`; with a turn when that is not 0. */
static void submit(struct scheduler *s, uint32_t which, uint32_t turn, uint32_t max_tokens)
{
	static const int32_t end = END;
	int32_t prompt[PROMPT + TURN];
	struct scheduler_request r = {
		.prompt = prompt,
		.n_prompt = PROMPT + (turn ? TURN : 0),
		.max_tokens = max_tokens,
		.n_choices = 1,
		.end_tokens = &end,
		.n_end_tokens = 1,
		.sampling = {.repetition_penalty = 1},
	};
	uint64_t id;

	for (uint32_t i = 0; i < r.n_prompt; i++)
		prompt[i] = i < SYSTEM ? 7 : (int32_t)(10 + (which * 31 + i) % 90000);
	prompt[SYSTEM] = (int32_t)(10 + which % 90000);
	prompt[SYSTEM + 1] = (int32_t)(10 + which / 90000);
	if (turn)
		prompt[PROMPT] = (int32_t)(10 + turn % 90000);
	if (scheduler_submit(s, &r, &id, NULL) < 0)
		abort();
}

static void commit(struct scheduler *s, const struct plan *p, uint32_t one_in, uint32_t *n_ended)
{
	static struct draw_result results[2 * RUNNING];
	static struct scheduler_event events[2 * RUNNING];
	uint32_t n;

	for (uint32_t i = 0; i < p->n_draws; i++)
		results[i].token = one_in && !below(one_in) ? END : 2 + (int32_t)below(VOCAB - 2);
	n = scheduler_commit(s, results, events);
	for (uint32_t i = 0; i < n; i++)
		*n_ended += events[i].request_finished;
}

static void report(const char *what, double *cost, uint32_t n)
{
	double total = 0;

	for (uint32_t i = 0; i < n; i++)
		total += cost[i];
	qsort(cost, n, sizeof(*cost), by_value);
	printf("  %s: mean %.1f us, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f\n", what, total / n,
	       cost[n / 2], cost[n * 9 / 10], cost[n * 99 / 100], cost[n - 1]);
}

static void run(uint32_t n_nodes, uint32_t n_steps, double *plan_cost, double *commit_cost,
		bool say)
{
	const struct scheduler_config config = {
		.page_tokens = PAGE,
		.state_tokens = PAGE,
		.n_pages = 2 * n_nodes + 200 * RUNNING,
		.n_slots = n_nodes + 8 * RUNNING,
		.page_bytes = 1,
		.slot_bytes = 40,
		.max_plans_out = 1,
		.max_seqs = RUNNING + 24,
		.max_prefill_tokens = 8192,
		.max_model_len = 8192,
		.vocab_size = VOCAB,
	};
	struct scheduler *s;
	struct scheduler_stats st, before;
	const struct plan *p;
	uint32_t n_ended = 0, turn = 0;

	random_state = 1;
	if (scheduler_new(&config, &s, NULL) < 0)
		abort();
	for (uint32_t i = 0; i < n_nodes; i++)
		submit(s, i, 0, 1);
	while ((p = scheduler_plan(s)))
		commit(s, p, 0, &n_ended);
	for (uint32_t i = 0; i < RUNNING; i++)
		submit(s, below(n_nodes), ++turn, 7000);
	do {
		p = scheduler_plan(s);
		commit(s, p, 0, &n_ended);
		scheduler_stats(s, &st);
	} while (st.waiting);
	before = st;
	for (uint32_t i = 0; i < n_steps; i++) {
		double t = cpu_us();

		p = scheduler_plan(s);
		t = cpu_us() - t;
		plan_cost[i] = plan_cost[i] > 0 && plan_cost[i] < t ? plan_cost[i] : t;
		n_ended = 0;
		t = cpu_us();
		commit(s, p, 500, &n_ended);
		t = cpu_us() - t;
		commit_cost[i] = commit_cost[i] > 0 && commit_cost[i] < t ? commit_cost[i] : t;
		for (; n_ended; n_ended--)
			submit(s, below(n_nodes), ++turn, 7000);
	}
	scheduler_stats(s, &st);
	if (say)
		printf("%u tree nodes at first, %llu at last, %u running; %.1f admissions a step, %.0f %% of their "
		       "prompts cached\n",
		       n_nodes, (unsigned long long)st.cache.nodes, st.running,
		       (double)(st.prompt_tokens - before.prompt_tokens) / (PROMPT + TURN) /
			       n_steps,
		       100.0 * (double)(st.cached_tokens - before.cached_tokens) /
			       (double)(st.prompt_tokens - before.prompt_tokens));
	scheduler_free(s);
}

static void measure(uint32_t n_nodes, uint32_t n_steps, uint32_t n_runs)
{
	double *plan_cost = calloc(n_steps, sizeof(*plan_cost)),
	       *commit_cost = calloc(n_steps, sizeof(*commit_cost));

	for (uint32_t i = 0; i < n_runs; i++)
		run(n_nodes, n_steps, plan_cost, commit_cost, i == 0);
	report("plan", plan_cost, n_steps);
	report("commit", commit_cost, n_steps);
	free(plan_cost);
	free(commit_cost);
}

int main(int argc, char **argv)
{
	uint32_t n_steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 2000;
	uint32_t n_runs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 5;

	measure(1000, n_steps, n_runs);
	measure(10000, n_steps, n_runs);
	measure(100000, n_steps, n_runs);
	return 0;
}
