/* tigon: the tools around tigond, a command each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/cli/bench/bench.h"
#include "daemon/cli/cache.h"
#include "daemon/cli/export.h"
#include "daemon/cli/registry.h"
#include "daemon/cli/simulate/simulate.h"
#include "daemon/cli/transfer_key.h"
#include "daemon/cli/tune/tune.h"
#include "engine/engine.h"

static int cli_devices(int argc, char **argv)
{
	struct err e = {0};

	if (argc > 1 && !strcmp(argv[1], "--help")) {
		printf("usage: tigon devices\n");
		return EXIT_SUCCESS;
	}
	if (argc > 1) {
		fprintf(stderr, "tigon devices: \"%s\" is not an option\n", argv[1]);
		return EXIT_FAILURE;
	}
	if (engine_list_devices(stdout, &e) < 0) {
		fprintf(stderr, "tigon devices: %s\n", e.text);
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}

static const struct {
	const char *name, *text;
	int (*run)(int argc, char **argv); /* argv[0] is the command's name */
} commands[] = {
	{"bench", "measure kernels, steps, or how fast a server answers", cli_bench},
	{"cache", "show what a server's prefix cache holds, or flush it", cli_cache},
	{"devices", "list the OpenCL devices", cli_devices},
	{"export", "write a model's weights as a Hugging Face checkpoint", cli_export},
	{"registry", "tell decode workers which prefill workers there are", cli_registry},
	{"simulate", "run the scheduler and the prefix cache on a workload without a device",
	 cli_simulate},
	{"transfer-key", "make keys for workers that talk to each other", cli_transfer_key},
	{"tune", "find the fastest cuts of the kernels on a device", cli_tune},
};

static void print_help(FILE *out)
{
	fprintf(out, "usage: tigon COMMAND ...\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].text);
	fprintf(out, "\ntigon COMMAND --help says more; so does man tigon.\n");
}

/* Rows that did not arrive are no success: a full disk, for one. */
static int written(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	if (status == EXIT_SUCCESS)
		fprintf(stderr, "tigon: standard output could not be written\n");
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return EXIT_FAILURE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("tigon " TIGON_VERSION "\n");
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return written(commands[i].run(argc - 1, argv + 1));
	fprintf(stderr, "tigon: there is no command \"%s\"; tigon --help lists them\n", argv[1]);
	return EXIT_FAILURE;
}
