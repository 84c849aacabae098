/* The OpenCL sources inside the binary, written by tools/embed.c at build time. */
#pragma once

struct kernel_source {
	const char *name; /* "generic/gemm.cl" */
	const char *text;
};

extern const struct kernel_source kernel_sources[]; /* ends with a NULL name */
