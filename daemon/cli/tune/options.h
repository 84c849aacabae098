/* The command line of `tigon tune`, both for the process that chooses cuts and for its children. Each child measures
 * one cut. */
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
	uint32_t budget;	  /* seconds for all cuts; no cut begins later */
	uint32_t limit;		  /* seconds that one child may take in all */
	uint32_t largest;	  /* longest prompt to measure, in tokens */
	const char *measure;	  /* measure this cut, in this process; NULL: choose cuts */
	uint32_t seconds;	  /* seconds of measuring once the model is open */
	char program_cache[4096];
};

/* Reads the command line and checks its options. -ECANCELED: it has --help, and the help was printed. */
int tune_options_parse(int argc, char **argv, struct tune_options *ret, struct err *e) MUST_CHECK;
