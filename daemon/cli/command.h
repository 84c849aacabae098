/* The commands of `tigon`. Each has a row in main.c, and all but the smallest have a file or folder of their own. */
#pragma once

#include <stdio.h>

#include "base/err.h"

struct command {
	const char *name, *text;
	/* Runs the command; argv[0] is its name. 0; -ECANCELED: --help was printed; else -errno with a sentence.
	 * NULL: the command has subcommands. */
	int (*run)(int argc, char **argv, struct err *e);
	const struct command *parts; /* the subcommands; the last row has no name */
};

/* Runs the command that argv[1] names, or prints the list of commands for --help. The last row of the table has no
 * name. Prints an error behind "program command: ". Returns the exit status. */
int command_run(const char *program, const struct command *table, int argc, char **argv);

/* Prints text that a server may have chosen: each control character, which could steer the terminal, as a question
 * mark. */
void print_plain(FILE *out, const char *text);

int bench_kernels(int argc, char **argv, struct err *e);
int bench_serve(int argc, char **argv, struct err *e);
int bench_steps(int argc, char **argv, struct err *e);
int cli_cache(int argc, char **argv, struct err *e);
int cli_export(int argc, char **argv, struct err *e);
int cli_registry(int argc, char **argv, struct err *e);
int cli_simulate(int argc, char **argv, struct err *e);
int cli_transfer_key(int argc, char **argv, struct err *e);
int cli_tune(int argc, char **argv, struct err *e);
