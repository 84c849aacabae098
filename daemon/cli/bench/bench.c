#include "daemon/cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static const struct {
	const char *name, *text;
	int (*run)(int argc, char **argv);
} parts[] = {
	{"kernels", "each kernel of a model's steps, beside the peak of the device", bench_kernels},
	{"steps", "whole steps of a model: prompts and generated tokens a second", bench_steps},
	{"serve", "a server, by many streams at the same time", bench_serve},
};

static void print_help(FILE *out)
{
	fprintf(out, "usage: tigon bench PART [--name value ...]\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		fprintf(out, "  %-8s %s\n", parts[i].name, parts[i].text);
	fprintf(out, "\ntigon bench PART --help says more; so does man tigon.\n");
}

int cli_bench(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return EXIT_FAILURE;
	}
	if (!strcmp(argv[1], "--help")) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strcmp(argv[1], parts[i].name))
			return parts[i].run(argc - 1, argv + 1);
	fprintf(stderr, "tigon bench: \"%s\" is none of kernels, steps and serve\n", argv[1]);
	return EXIT_FAILURE;
}
