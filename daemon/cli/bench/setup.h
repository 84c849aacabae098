/* The parts that `tigon bench kernels` and `tigon bench steps` share: options, opening the engine, and the peaks of
 * its device, measured before, between and after. */
#pragma once

#include "daemon/cli/bench/list.h"
#include "daemon/cli/bench/load.h"
#include "daemon/cli/plot.h"
#include "engine/profile.h"

struct bench_options {
	struct engine_options engine;
	struct option_memory cache_memory;
	unsigned batch_invariant; /* enum option_switch */
	struct bench_list prefill, decode, context;
	uint32_t repeat;
	uint32_t steps;	    /* bench steps: generated tokens of a measurement */
	const char *only;   /* bench kernels: a kernel's name, NULL: all */
	uint32_t int8;	    /* bench kernels: the group of int8 products, 0: none */
	const char *plot;   /* NULL: no figure */
	const char *tuning; /* NULL: the built-in table */
	char program_cache[4096];
};

/* Defaults in which the two benches differ; lists as text. */
struct bench_defaults {
	const char *prefill, *decode, *context;
	uint32_t repeat;
};

struct bench {
	const struct bench_options *options; /* borrowed */
	struct engine *engine;
	struct load *load;
	struct peaks *peaks;
	/* of all measurements; known: the usual ones, zeros: unknown */
	struct peak best, least, known;
	uint32_t measured;
};

/* Reads the command line, whose argv[0] is "kernels" or "steps" (an option that only the other bench has is refused),
 * opens the engine, measures the peaks for the first time, and calls `run`. -ECANCELED: --help was printed. */
int bench_run(int argc, char **argv, const struct bench_defaults *own,
	      int (*run)(struct bench *b, struct err *e), struct err *e) MUST_CHECK;

/* A kind of step to measure. */
struct bench_case {
	uint32_t streams; /* 0: a prompt */
	uint32_t tokens;  /* of the prompt; with streams: of each stream before its first step */
};

/* The cases of the options for which the engine has memory, new: prompts, then streams by context. A line on standard
 * output names each case that is left out. -EINVAL: no case is left. */
int bench_cases(const struct bench *b, struct bench_case **ret, size_t *ret_n,
		struct err *e) MUST_CHECK;

/* Measures the peaks once more. */
int bench_measure(struct bench *b, struct err *e) MUST_CHECK;

/* Prints the lines above the rows: commit, device, model, peaks, and whether the run is void. Returns the text of the
 * rows' last column, "-" or "void". */
const char *bench_print_head(const struct bench *b);

/* Writes the figure of --plot, with a line that names model, device, kernels and number format. */
int bench_plot(const struct bench *b, const struct plot_panel *panels, size_t n,
	       struct err *e) MUST_CHECK;

/* Shows the current measurement on a terminal. */
void bench_progress(const char *fmt, ...) PRINTF(1, 2);
