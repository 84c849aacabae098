/* tigon: the tools around tigond. Each tool is a command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/command.h"

static const struct command bench_parts[] = {
	{"kernels", "each kernel of a model's steps, beside the peak of the device", bench_kernels},
	{"steps", "whole steps of a model: prompts and generated tokens a second", bench_steps},
	{"copies", "copies of pages and states, alone and beside generated tokens", bench_copies},
	{"serve", "a server, by many streams at the same time", bench_serve},
	{0},
};

static const struct command commands[] = {
	{"bench", "measure kernels, steps, copies, or how fast a server answers",
	 .parts = bench_parts},
	{"cache", "show the content of a server's prefix cache, or flush it", cli_cache},
	{"devices", "list the OpenCL devices, and measure them", cli_devices},
	{"eval", "how well a model predicts a text, and how far it is from another one", cli_eval},
	{"export", "write a model's weights as a Hugging Face checkpoint", cli_export},
	{"inspect", "show what a model's files hold, and what fits on the devices", cli_inspect},
	{"quantize", "write a model as a GGUF file with weights of few bits", cli_quantize},
	{"registry", "tell decode workers which prefill workers there are", cli_registry},
	{"simulate", "run the scheduler and the prefix cache on a workload without a device",
	 cli_simulate},
	{"transfer-key", "make keys for workers that talk to each other", cli_transfer_key},
	{"tune", "find the fastest cuts of the kernels on a device", cli_tune},
	{0},
};

int main(int argc, char **argv)
{
	int status;

	if (argc > 1 && !strcmp(argv[1], "--version")) {
		printf("tigon " TIGON_VERSION "\n");
		return EXIT_SUCCESS;
	}
	status = command_run("tigon", commands, argc, argv);
	/* If the output cannot be written, for example to a full disk, the command has failed. */
	if ((fflush(stdout) || ferror(stdout)) && status == EXIT_SUCCESS) {
		fprintf(stderr, "tigon: standard output could not be written\n");
		status = EXIT_FAILURE;
	}
	return status;
}
