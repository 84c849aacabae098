/* The OpenCL sources and the built-in tuning table inside the binary, written by tools/embed.c at build time. */
#pragma once

struct kernel_source {
	const char *name; /* folder and file: "generic/gemm.cl" */
	const char *text;
};

extern const struct kernel_source kernel_sources[]; /* ends with a NULL name */
