/*
 * Command lines by a table of options (name, argument, range, default, text), which feeds the parser and --help: those of
 * tigond (options.h) and of the tools that are like it.
 *
 * Both --name value and --name=value are understood; the last one of a repeated option counts.
 * Sizes take the suffixes K, M, G and T (powers of 1024).
 */
#ifndef DAEMON_OPTION_TABLE_H
#define DAEMON_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum option_type {
	OPTION_FLAG,	  /* bool, takes no argument */
	OPTION_TEXT,	  /* const char *, borrowed from argv */
	OPTION_NUMBER,	  /* uint64_t, decimal */
	OPTION_NUMBER_32, /* uint32_t, decimal */
	OPTION_SIZE,	  /* uint64_t, bytes with an optional suffix */
	OPTION_CHOICE,	  /* unsigned, index into choices */
	OPTION_MEMORY,	  /* struct option_memory */
	OPTION_OWN,	  /* what `take` makes of it */
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
	size_t offset; /* of the member of the caller's struct */
	size_t given;  /* offset of a bool that tells whether it was given; 0: none */
	uint64_t min, max, initial;
	uint64_t multiple;	    /* 0: any */
	const char *const *choices; /* NULL-terminated */
	const char *initial_text;   /* default of a text option as --help shows it, NULL: none */
	bool read_initial;	    /* OPTION_OWN: initial_text is a value, which `take` reads */
	const char *text;	    /* what it does, one line */
	/* OPTION_OWN: fills the member, or says what such a value is ("--name: ..."). */
	int (*take)(const struct option_def *d, const char *value, void *member, struct err *e);
};

/* Fills the members of *to that have a default (numbers, sizes, choices, and with read_initial) with it, and then all that
 * argv names (argv[0] is skipped). Strings are borrowed from argv. -EINVAL with a sentence; *to may be filled in part then. */
int option_table_parse(const struct option_def *table, size_t n, int argc, const char *const *argv,
		       void *to, struct err *e) MUST_CHECK;

/* What --help prints of them. */
void option_table_help(const struct option_def *table, size_t n, FILE *out);

/* "8G" or "1048576" to bytes; -EINVAL. */
int option_size(const char *text, uint64_t *ret) MUST_CHECK;

#endif
