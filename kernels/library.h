/*
 * The program library: OpenCL programs from the embedded sources, with a cache of compiled binaries on
 * disk.
 *
 * A program is named by its file ("gemm.cl") and its options; a variant ("x86", "nvidia") replaces whole
 * files, includes as well as programs, and falls back to "generic" file by file.
 *
 * Cache file: DIR/<hash>.clbin = "TIGONCL1" | u64 bytes | u64[2] FNV-1a 128 of the binary | binary. <hash>
 * covers device and driver names, all source text after includes, and the options, so that a change
 * in any of them is another file. Written under a temporary name and renamed; whatever does not check
 * is built anew and replaced.
 */
#ifndef KERNELS_LIBRARY_H
#define KERNELS_LIBRARY_H

#include <CL/cl.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct library {
	cl_context context;
	cl_device_id device;
	const char *variant;	/* "generic", "x86" or "nvidia" */
	const char *cache_dir;	/* NULL: no cache */
	unsigned built, loaded; /* programs compiled, programs taken from the cache */
};

/* The source of `file` for a variant with its includes inlined, appended to out. -ENOENT. */
int library_source(const char *variant, const char *file, struct buf *out,
		   struct err *e) MUST_CHECK;

/* New program, released by the caller. Compiler output goes into the error (its beginning) and the log. */
int library_program(struct library *l, const char *file, const char *options, cl_program *ret,
		    struct err *e) MUST_CHECK;

#endif
