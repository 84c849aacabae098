/* The commands of `tigon`. Each has a row in main.c, and a file or a folder of its own. */
#pragma once

#include <stdio.h>

#include "base/err.h"

struct command {
	const char *name, *text;
	/* Runs the command; argv[0] is its name. Returns 0, -ECANCELED if it printed --help, or -errno with a sentence.
	 * NULL: the command has subcommands. */
	int (*run)(int argc, char **argv, struct err *e);
	const struct command *parts; /* the subcommands; the last row has no name */
};

/* Runs the command of the table that argv[1] names; if it has subcommands, runs the subcommand that argv[2] names. For
 * --help, `help` or no argument prints the list of commands instead. The last row of the table has no name. Prints an
 * error to standard error. Returns the exit status, which is that of a failure if there is no argument. */
int command_run(const char *program, const struct command *table, int argc, char **argv);

/* Prints text that a server may have chosen, with a question mark in the place of each control character, because these
 * could steer the terminal. */
void print_plain(FILE *out, const char *text);

int bench_copies(int argc, char **argv, struct err *e);
int bench_kernels(int argc, char **argv, struct err *e);
int bench_serve(int argc, char **argv, struct err *e);
int bench_steps(int argc, char **argv, struct err *e);
int cli_cache(int argc, char **argv, struct err *e);
int cli_devices(int argc, char **argv, struct err *e);
int cli_eval(int argc, char **argv, struct err *e);
int cli_export(int argc, char **argv, struct err *e);
int cli_inspect(int argc, char **argv, struct err *e);
int cli_quantize(int argc, char **argv, struct err *e);
int cli_registry(int argc, char **argv, struct err *e);
int cli_simulate(int argc, char **argv, struct err *e);
int cli_transfer_key(int argc, char **argv, struct err *e);
int cli_tune(int argc, char **argv, struct err *e);
