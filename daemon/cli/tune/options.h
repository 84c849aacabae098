/* The command line of `tigon tune`, of the process that chooses as well as of those that measure. */
#pragma once

#include "base/options.h"
#include "engine/engine.h"

enum { TUNE_CUTS_MAX = 64 };

struct tune_cuts {
	const char *v[TUNE_CUTS_MAX];
	uint32_t n;
};

struct tune_options {
	struct engine_options engine;
	unsigned batch_invariant; /* enum option_switch */
	const char *out;	  /* NULL: standard output */
	struct tune_cuts cuts;	  /* none: those of the program */
	bool family;		  /* rows for all devices of this kind */
	uint32_t budget;	  /* seconds */
	uint32_t limit;		  /* seconds that one process may take in all */
	uint32_t largest;	  /* M */
	const char *measure;	  /* the cut to measure, in this process; NULL: choose */
	uint32_t seconds;	  /* for that, once the model is open */
	char program_cache[4096];
};

/* -ECANCELED: --help was asked for, and printed. Checks what can be checked without the device. */
int tune_options_parse(int argc, char **argv, struct tune_options *ret, struct err *e) MUST_CHECK;
