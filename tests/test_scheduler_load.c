/*
 * scheduler/ under load: a hundred thousand requests that wait at once, a thousand running sequences; without a cache,
 * and with one that all of them share. Checks that all requests complete, without a cache in their order. Times are
 * printed as notes.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "scheduler/scheduler.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { REQUESTS = 100000, SEQS = 1000, PROMPT_MAX = 256, TOKENS_MAX = 64, VOCAB = 1000, END = 999 };

static double cpu_us(void)
{
	return (double)clock_read_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct scheduler_config config = {
	.page_tokens = 64,
	.state_tokens = 64,
	.n_pages = 5 * SEQS,
	.n_slots = 3 * SEQS,
	.max_plans_out = 1,
	.max_seqs = SEQS,
	.max_prefill_tokens = 8192,
	.max_model_len = PROMPT_MAX + TOKENS_MAX,
	.vocab_size = VOCAB,
};

static void submit_all(struct scheduler *s, uint64_t *ids)
{
	static int32_t prompts[16][PROMPT_MAX];
	static const int32_t end = END;
	double t = cpu_us();

	/* Prompts k and j share at least their first 64 * min(k % 4, j % 4) tokens. */
	for (uint32_t k = 0; k < ARRAY_SIZE(prompts); k++)
		for (uint32_t i = 0; i < PROMPT_MAX; i++)
			prompts[k][i] = i < 64 * (k % 4) ? 1 : (int32_t)k;
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct scheduler_request r = {
			.prompt = prompts[random_below(ARRAY_SIZE(prompts))],
			.n_prompt = 1 + random_below(PROMPT_MAX),
			.max_tokens = 1 + random_below(TOKENS_MAX),
			.n_choices = random_below(8) ? 1 : 1 + random_below(4),
			.end_tokens = &end,
			.n_end_tokens = 1,
			.sampling = {.repetition_penalty = 1},
		};

		check(scheduler_submit(s, &r, &ids[i], NULL) == 0);
	}
	t = cpu_us() - t;
	ok_all("%d requests wait at once", REQUESTS);
	printf("# submit: %.2f us a request\n", t / REQUESTS);
}

static void test_run(struct scheduler *s)
{
	static struct draw_result results[SEQS];
	static struct scheduler_event events[SEQS];
	uint64_t *ids = calloc(REQUESTS, sizeof(*ids)), last_begun = 0;
	size_t n_steps = 0, cap = 1 << 20, n_tokens = 0, n_finished = 0;
	double *cost = calloc(cap, sizeof(*cost)), total = 0;
	struct scheduler_stats st;
	uint32_t most = 0;

	submit_all(s, ids);
	for (;;) {
		double t = cpu_us();
		const struct plan *p = scheduler_plan(s);
		uint32_t n;

		t = cpu_us() - t;
		if (!p || n_steps == cap)
			break;
		for (uint32_t i = 0; i < p->n_draws; i++)
			results[i].token = random_below(50) ? 1 : END;
		most = MAX(most, p->n_rows);
		cost[n_steps] = t;
		t = cpu_us();
		n = scheduler_commit(s, results, events);
		cost[n_steps] += cpu_us() - t;
		total += cost[n_steps++];
		n_tokens += n;
		for (uint32_t i = 0; i < n; i++)
			n_finished += events[i].request_finished;
		/* Prompts end in the order of submission: none overtakes another. */
		for (uint32_t i = 0; i < n && i < p->n_prefill_rows; i++)
			if (config.cache_disabled && !p->rows[p->draws[i].row].decode) {
				check(events[i].request >= last_begun);
				last_begun = events[i].request;
			}
	}
	if (config.cache_disabled)
		ok_all("first come, first served");
	is_int(n_finished, REQUESTS, "all of them finish, in %zu steps with up to %u rows", n_steps,
	       most);
	scheduler_stats(s, &st);
	ok(scheduler_flush(s) == 0 && !st.running && !st.waiting, "and leave nothing");
	scheduler_stats(s, &st);
	ok(st.cache.free_pages == config.n_pages && st.cache.free_slots == config.n_slots,
	   "all is free");
	printf("# %llu of %llu prompt tokens cached, %llu waited for another one's prompt, %llu retractions\n",
	       (unsigned long long)st.cached_tokens, (unsigned long long)st.prompt_tokens,
	       (unsigned long long)st.shared_waits, (unsigned long long)st.retractions);
	if (!config.cache_disabled)
		ok(st.cached_tokens * 2 > st.prompt_tokens && st.shared_waits > 0,
		   "most prompts are cached");
	qsort(cost, n_steps, sizeof(*cost), by_value);
	printf("# %zu tokens; plan and commit: %.2f s in all, %.1f us a step, median %.1f, p99 "
	       "%.1f, "
	       "%.0f ns a token\n",
	       n_tokens, total / 1e6, total / (double)n_steps, cost[n_steps / 2],
	       cost[n_steps * 99 / 100], total * 1e3 / (double)n_tokens);
	free(ids);
	free(cost);
}

static void test_abort(struct scheduler *s)
{
	uint64_t *ids = calloc(REQUESTS, sizeof(*ids));
	struct scheduler_stats st;
	double t;

	submit_all(s, ids);
	for (uint32_t i = REQUESTS; i > 1; i--) {
		uint32_t k = random_below(i);
		uint64_t id = ids[i - 1];

		ids[i - 1] = ids[k];
		ids[k] = id;
	}
	t = cpu_us();
	for (uint32_t i = 0; i < REQUESTS; i++)
		scheduler_abort(s, ids[i]);
	t = cpu_us() - t;
	scheduler_stats(s, &st);
	ok(!st.waiting && !scheduler_plan(s), "all are aborted, in random order");
	printf("# abort: %.2f us a request\n", t / REQUESTS);
	free(ids);
}

int main(void)
{
	for (int disabled = 1; disabled >= 0; disabled--) {
		struct scheduler *s;

		config.cache_disabled = disabled;
		if (scheduler_new(&config, &s, NULL) < 0)
			return 1;
		test_run(s);
		test_abort(s);
		scheduler_free(s);
	}
	return done();
}
