/* The program library: OpenCL programs from the embedded sources, with a cache of compiled binaries on disk.
 *
 * A program is a file ("gemm.cl") and its options. A variant ("x86", "nvidia") replaces whole files, includes as well
 * as programs; a file that it does not have comes from "generic".
 *
 * A program's binary is a file of the cache (cache_file.h); a damaged one is replaced by a newly compiled program. Of
 * several processes that need the same program at the same time one compiles it, and the others wait for its file (five
 * minutes at most). The process that compiles locks the byte of DIR/lock whose offset is the first 15 digits of <hash>
 * (F_OFD_SETLK; DIR/lock stays empty). */
#pragma once

#include <CL/cl.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct library {
	cl_context context;
	cl_device_id device;
	const char *variant;	/* "generic", "x86" or "nvidia" */
	const char *cache_dir;	/* NULL: no cache */
	unsigned built, loaded; /* numbers of programs compiled, and taken from the cache */
};

/* Returns the text of an embedded file. `file` is its name in the variant's folder, or else in generic/, or it has the
 * folder with it ("generic/gemm.cl"). NULL: there is none. */
const char *library_text(const char *variant, const char *file);

/* Appends the source of a program to out, with its includes in place. -ENOENT, -ELOOP or -ENOMEM with a sentence. */
int library_source(const char *variant, const char *file, struct buf *out,
		   struct err *e) MUST_CHECK;

/* Deletes the temporary files in a cache directory, this one's or PoCL's, that are older than a day. Processes that
 * were killed left them there, and PoCL an empty one in each process. Failures are ignored. */
void library_clean(const char *dir);

/* Returns whether the device is one of PoCL's. */
bool library_is_pocl(cl_device_id device);

/* Makes a program, which the caller releases, from its binary in the cache or else by compiling. offered: options.
 * A " -DNAME=VALUE" is left out if NAME is not in the source, so models share a program's binary if they differ only in
 * options that the program does not use. If the program does not compile, the error has the beginning of the compiler's
 * output, and the log (debug) all of it. If the cache, or PoCL's own one, cannot be written either, the error says
 * only that. -ENOEXEC: the compiler refuses the program. -ENOMEM: host or device memory is short. -EIO: another
 * failure of driver or cache, which says nothing about the program. */
int library_program(struct library *l, const char *file, const char *offered, cl_program *ret,
		    struct err *e) MUST_CHECK;
