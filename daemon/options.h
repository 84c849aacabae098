/*
 * The command line of tigond: one table (name, argument, range, default, text) that feeds the
 * parser, --help and the test that compares it with man/tigond.8.
 *
 * Both --name value and --name=value are understood; the last one of a repeated option counts.
 * Sizes take the suffixes K, M, G and T (powers of 1024).
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum option_type {
	OPTION_FLAG,   /* bool, takes no argument */
	OPTION_TEXT,   /* const char *, borrowed from argv */
	OPTION_NUMBER, /* uint64_t, decimal */
	OPTION_SIZE,   /* uint64_t, bytes with an optional suffix */
	OPTION_CHOICE, /* unsigned, index into choices */
	OPTION_MEMORY, /* struct option_memory */
};

/* A choice between on and off, for what is on unless turned off. */
enum option_switch { OPTION_ON, OPTION_OFF };

/* Bytes, or a share of what is there: "8G", "0.6", "60%". Both 0: not given. */
struct option_memory {
	uint64_t bytes;
	double share;
};

struct option_def {
	const char *name;     /* without the dashes */
	const char *argument; /* what --help calls the value, NULL for a flag */
	enum option_type type;
	size_t offset; /* of the member of struct options */
	size_t given;  /* offset of a bool that tells whether it was given; 0: none */
	uint64_t min, max, initial;
	uint64_t multiple;	    /* 0: any */
	const char *const *choices; /* NULL-terminated */
	const char *initial_text;   /* default of a text option as --help shows it, NULL: none */
	const char *text;	    /* what it does, one line */
};

struct options {
	bool help; /* first, so that no `given` offset is 0 */
	bool version, list_devices;
	const char *model, *tokenizer, *served_model_name;
	const char *host;
	uint64_t port;
	unsigned dtype;		  /* enum engine_dtype */
	unsigned kernels;	  /* enum engine_kernels */
	unsigned batch_invariant; /* enum option_switch */
	const char *tuning;
	uint64_t max_model_len, max_num_seqs, max_batched_tokens, page_size;
	uint64_t max_queued_requests, max_body;
	const char *device, *program_cache, *dump_activations;
	struct option_memory device_memory, cache_memory;
	uint64_t host_cache_memory, cache_disk; /* bytes; 0: none, no limit */
	const char *cache_dir, *record;
	unsigned prefix_cache, cache_decoded; /* enum option_switch */
	uint64_t synthetic_seed;
	bool synthetic;
	unsigned log_level; /* enum log_level */
};

/* The table, [*n] entries. */
const struct option_def *options_table(size_t *n);

/* Fills *ret with the defaults and then from argv (argv[0] is skipped). Strings are borrowed from
 * argv. -EINVAL with a sentence; checks that involve two options are made here too. With --help,
 * --version or --list-devices nothing else is required. */
int options_parse(int argc, const char *const *argv, struct options *ret, struct err *e) MUST_CHECK;

/* "8G" or "1048576" to bytes; -EINVAL. */
int options_size(const char *text, uint64_t *ret) MUST_CHECK;

/* What --help prints. */
void options_help(FILE *out);

#endif
