/*
 * What `tigon bench kernels` and `tigon bench steps` share: their options, the engine that these open, and the peaks
 * of its device, measured before, between and after.
 */
#ifndef DAEMON_CLI_BENCH_SETUP_H
#define DAEMON_CLI_BENCH_SETUP_H

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
	uint32_t steps;	    /* bench steps: of a measurement of generated tokens */
	const char *only;   /* bench kernels: a kernel's name, NULL: all */
	uint32_t int8;	    /* bench kernels: the group of int8 products, 0: none */
	const char *plot;   /* NULL, or where the figure goes */
	const char *tuning; /* NULL, or a table */
	char program_cache[4096];
};

/* What the two have defaults of their own for; lists as they are written. */
struct bench_defaults {
	const char *prefill, *decode, *context;
	uint32_t repeat;
};

/* Fills *o from the command line, whose argv[0] is "kernels" or "steps"; options that only the other one has are refused.
 * -ECANCELED: --help was asked for, and printed. */
int bench_parse(int argc, char **argv, const struct bench_defaults *own, struct bench_options *o,
		struct err *e) MUST_CHECK;

struct bench {
	const struct bench_options *options; /* borrowed */
	struct engine *engine;
	struct load *load;
	struct peaks *peaks;
	struct peak best, least, known; /* of all measurements; known: zeros where nothing is */
	uint32_t measured;
};

/* Opens all for the lists of the options, in which what the model does not allow was cut, and measures the peaks for
 * the first time. Released by the caller also after an error. */
int bench_open(struct bench_options *o, struct bench *ret, struct err *e) MUST_CHECK;
void bench_release(struct bench *b);

/* Measures the peaks once more. */
int bench_measure(struct bench *b, struct err *e) MUST_CHECK;

/* Prints the lines above the rows: commit, device, model, peaks, and whether the run is void. Returns what stands in the
 * rows' last column, "-" or "void". */
const char *bench_print_head(const struct bench *b);

/* A generated token of so many streams, `steps` long, from this context on: the context as far as the engine allows
 * it. False, with a line that says why on standard output: the engine has no room. */
bool bench_context(const struct bench *b, uint32_t streams, uint32_t steps, uint32_t *context);

/* Writes the figure that --plot asked for, with a line that says what was measured. */
int bench_plot(const struct bench *b, const struct plot_panel *panels, size_t n,
	       struct err *e) MUST_CHECK;

/* What is being measured, for who waits at a terminal. */
void bench_progress(const char *fmt, ...) PRINTF(1, 2);

/* The median of n numbers, which get sorted; n > 0. */
double bench_median(double *v, uint32_t n);

#endif
