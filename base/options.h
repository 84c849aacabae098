/*
 * Command lines. A program lists its options in a table (name, argument, range, default, text); the parser, --help and
 * the tests that compare the table with a manual page all read it.
 *
 * Both "--name value" and "--name=value" are understood; a flag has no value. If an option is repeated, the last value
 * counts, unless the option's `take` collects the values. Sizes take the suffixes K, M, G and T (powers of 1024).
 */
#pragma once

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
	OPTION_REAL,	  /* double: 0.5, 200e9, or 2G like a size */
	OPTION_CHOICE,	  /* unsigned, index into choices */
	OPTION_MEMORY,	  /* struct option_memory */
	OPTION_OWN,	  /* any type; `take` reads the value */
};

/* The values of an OPTION_CHOICE between on and off. `on` is the first value, and so the default unless a row says
 * otherwise. */
enum option_switch { OPTION_ON, OPTION_OFF };

/* An amount of memory: either bytes ("8G") or a share ("0.6", "60%") of a memory that the option's text names. The
 * other member is 0. Both are 0: the option was not given. */
struct option_memory {
	uint64_t bytes;
	double share;
};

/* One row of a table. Most rows give the first four members by their place, all others by name. */
struct option_def {
	const char *name;     /* without the dashes */
	const char *argument; /* the value's name in --help, NULL for a flag */
	enum option_type type;
	size_t offset;	   /* offset of the member of the caller's struct that gets the value */
	size_t given;	   /* offset of a bool that is set if the option was given; 0: none */
	uint64_t min, max; /* bounds of a number or size; `take` may use them, too */
	uint64_t initial;  /* the default of a number or size; of a choice, the default's index */
	uint64_t multiple; /* a number or size must be a multiple of this; 0: any */
	double least, most, usual;  /* OPTION_REAL: these replace min, max and initial */
	const char *const *choices; /* NULL-terminated */
	const char *initial_text; /* the default that --help shows; NULL: initial, usual, or none */
	bool read_initial;	  /* OPTION_OWN: the default is what `take` makes of initial_text */
	const char *text;	  /* the effect of the option, one line */
	/* OPTION_OWN: fills the member. -EINVAL with a sentence that begins with "--name: ". */
	int (*take)(const struct option_def *d, const char *value, void *member, struct err *e);
};

/* Sets the members of *to that have a default (numbers, sizes, reals, choices, and options with read_initial), then
 * the members that argv names (argv[0] is skipped). Other members stay as they are. Strings are borrowed from argv.
 * After -EINVAL, with a sentence, *to may be filled in part. */
int option_table_parse(const struct option_def *table, size_t n, int argc, const char *const *argv,
		       void *to, struct err *e) MUST_CHECK;

/* As option_table_parse, for a command of tigon. If argv has --help or -h, prints the help instead and returns
 * -ECANCELED. usage: the command line as the help shows it, behind "tigon ". */
int option_table_command(const struct option_def *table, size_t n, const char *usage, int argc,
			 char *const *argv, void *to, struct err *e) MUST_CHECK;

/* Prints the lines of --help: for each option one line, and a second one if there is a range or a default to show. */
void option_table_help(const struct option_def *table, size_t n, FILE *out);

/* Reads bytes from "8G" or "1048576". -EINVAL: it is no size, or too large. */
int option_size(const char *text, uint64_t *ret) MUST_CHECK;
