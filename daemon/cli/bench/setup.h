/* The code that `tigon bench kernels`, `steps` and `copies` share: options, opening the engine, and the peaks of its
 * device (kernels/peak.h), which are measured at the start and after each kind of step. */
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
	uint32_t repeat; /* measurements of each kind of step */
	/* Tokens that each stream generates. bench steps: in one measurement. bench kernels: in all measurements of a
	 * kind of step, one in each. */
	uint32_t steps;
	uint64_t in_flight; /* bench copies: bytes of copies that are under way at most */
	const char *only;   /* bench kernels: print only this kernel; NULL: all */
	const char *plot;   /* NULL: no figure */
	const char *tuning; /* NULL: the built-in table */
	char program_cache[4096];
};

/* The defaults of options that differ between the benches; those of lists are text. */
struct bench_defaults {
	const char *prefill, *decode, *context;
	uint32_t repeat;
};

struct bench {
	const struct bench_options *options; /* borrowed */
	struct engine *engine;
	struct load *load;
	struct peaks *peaks;
	struct peak best, least; /* of all measurements of the peaks */
	struct peak known;	 /* the peaks that this device is known to reach; zeros: unknown */
	uint32_t measured;	 /* times that the peaks were measured */
};

/* Reads the command line, whose argv[0] is "kernels", "steps" or "copies" (an option of another bench is refused),
 * opens the engine, measures the peaks for the first time, and calls `run`. -ECANCELED: --help was printed. */
int bench_run(int argc, char **argv, const struct bench_defaults *own,
	      int (*run)(struct bench *b, struct err *e), struct err *e) MUST_CHECK;

/* A kind of step to measure. */
struct bench_case {
	uint32_t streams; /* 0: a prompt */
	/* tokens of the prompt; with streams: tokens of each stream before its first step */
	uint32_t tokens;
};

/* Makes an array of the cases that the options ask for, owned by the caller: first the prompts, then each number of
 * streams with each context. A context is shortened so that the generated tokens fit into the model's length. A case
 * for which the engine has too few pages, or the model is too short for the generated tokens alone, is left out, and a
 * line on standard output names it. -EINVAL: no case is left; the caller owns the array even then. */
int bench_cases(const struct bench *b, struct bench_case **ret, size_t *ret_n,
		struct err *e) MUST_CHECK;

/* Measures the peaks once more. */
int bench_measure_peaks(struct bench *b, struct err *e) MUST_CHECK;

/* Prints the lines above the rows: commit, device, tuning, model, peaks, whether much of the model fits into a cache,
 * and whether the run is void, because a measured peak is below the known one (peak_below). Returns the text of the
 * rows' last column, "-" or "void". */
const char *bench_print_head(const struct bench *b);

/* Writes the figure of --plot, with a line that names model, device, kernels and number format, and says whether the
 * run is void. */
int bench_plot(const struct bench *b, const struct plot_panel *panels, size_t n,
	       struct err *e) MUST_CHECK;

/* Prints a line about the current measurement to standard error. Does nothing if that is not a terminal. */
void bench_progress(const char *fmt, ...) PRINTF(1, 2);
