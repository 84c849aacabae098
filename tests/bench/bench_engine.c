/*
 * Tokens a second of scheduler and engine, without HTTP.
 *
 *     bench_engine DIR float32|bfloat16 auto|generic|x86|nvidia STREAMS...
 *
 * Prints the time to open, then a row for each number of streams: prompt tokens a second (a prompt of 512 tokens for
 * each stream); generated tokens a second, and launches and microseconds a step, of requests with prompts of 64
 * tokens, whose prefill is counted in. The second of two passes counts. Environment: TOKENS generated a stream (512),
 * SYNTHETIC for weights made up from config.json, SEPARATE for a launch a kernel, PLAIN for weights that are not
 * coded, TIGON_PROGRAM_CACHE.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "tests/golden.h"

enum { PROMPT = 512 };

static double seconds_since(uint64_t start)
{
	return (double)(clock_now_ns() - start) / 1e9;
}

/* The index of `name` in `names`, or -1. */
static int name_of(const char *name, const char *const names[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, names[i]))
			return (int)i;
	return -1;
}

int main(int argc, char **argv)
{
	struct engine_options o = {
		.dtype = ENGINE_FLOAT32,
		.program_cache = getenv("TIGON_PROGRAM_CACHE"),
		.page_tokens = 64,
		.max_seqs = 32,
		.max_prefill_tokens = 2048,
		.max_model_len = 4096,
	};
	struct run_setup setup = run_setup_of(&o);
	struct engine_counters before, after;
	uint64_t start = clock_now_ns();
	int32_t prompt[PROMPT];
	uint32_t tokens = getenv("TOKENS") ? (uint32_t)strtoul(getenv("TOKENS"), NULL, 10) : 512;
	static const char *const dtypes[] = {"float32", "bfloat16"};
	static const char *const variants[] = {"auto", "generic", "x86", "nvidia"};
	int dtype, kernels;
	struct engine *g;
	struct err e = {0};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5 || (dtype = name_of(argv[2], dtypes, ARRAY_SIZE(dtypes))) < 0 ||
	    (kernels = name_of(argv[3], variants, ARRAY_SIZE(variants))) < 0) {
		fprintf(stderr, "usage: bench_engine DIR float32|bfloat16 "
				"auto|generic|x86|nvidia STREAMS...\n");
		return 2;
	}
	o.model_dir = argv[1];
	o.dtype = (enum engine_dtype)dtype;
	o.kernels = (enum engine_kernels)kernels;
	o.separate_launches = getenv("SEPARATE") != NULL;
	o.plain_weights = getenv("PLAIN") != NULL;
	if (getenv("SYNTHETIC")) {
		o.synthetic = true;
		o.synthetic_seed = 1;
	}
	log_set_level(LOG_LEVEL_DEBUG);
	if (engine_open(&o, &g, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	printf("open\t%.3f s\t%s\t%s\n", seconds_since(start), engine_info(g)->kernels,
	       engine_info(g)->device_name);
	/* Fewer pages than a GPU has room for: to make and check a pool of all takes longer than a run. */
	setup.n_pages = MIN(engine_info(g)->n_pages,
			    o.max_seqs * CEIL_DIV(PROMPT + tokens + 1, o.page_tokens));
	for (int i = 0; i < PROMPT; i++)
		prompt[i] = (int32_t)((uint32_t)i * 2654435761u % engine_info(g)->model.vocab_size);
	for (int a = 4; a < argc; a++) {
		int n = (int)strtol(argv[a], NULL, 10);
		struct run *runs = calloc((size_t)n, sizeof(*runs));
		double prefill, all;

		for (int pass = 0; pass < 2; pass++) {
			for (int i = 0; i < n; i++)
				runs[i] = run_of(prompt, PROMPT, 1);
			start = clock_now_ns();
			if (!run_all(g, &setup, runs, (size_t)n))
				return 1;
			prefill = seconds_since(start);
			for (int i = 0; i < n; i++) {
				runs[i] = run_of(prompt, 64, tokens);
				runs[i].sampling.want_logprobs = false;
			}
			engine_counters(g, &before);
			start = clock_now_ns();
			if (!run_all(g, &setup, runs, (size_t)n))
				return 1;
			all = seconds_since(start);
			engine_counters(g, &after);
		}
		printf("%d streams\tprefill %.0f tok/s\tdecode %.0f tok/s\t%.1f launches a step\t%.0f us a step\n",
		       n, n * PROMPT / prefill, n * tokens / all,
		       (double)(after.launches - before.launches) /
			       (double)(after.steps - before.steps),
		       all * 1e6 / (double)(after.steps - before.steps));
		free(runs);
	}
	engine_close(g);
	return 0;
}
