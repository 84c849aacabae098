/* The command line of `tigon tune`, of the process that chooses cuts and of its children, each of which measures
 * one. */
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
	struct tune_cuts cuts;	  /* the cuts to measure; none: the program's own list */
	bool family;		  /* write rows for all devices with as many compute units */
	uint32_t budget;	  /* seconds for all cuts */
	uint32_t limit;		  /* seconds that one child may take in all */
	uint32_t largest;	  /* largest M to measure */
	const char *measure;	  /* the cut to measure, in this process; NULL: choose */
	uint32_t seconds;	  /* seconds of measuring once the model is open */
	char program_cache[4096];
};

/* Reads the command line and makes all checks that need no device. -ECANCELED: it has --help, and the help was
 * printed. */
int tune_options_parse(int argc, char **argv, struct tune_options *ret, struct err *e) MUST_CHECK;
