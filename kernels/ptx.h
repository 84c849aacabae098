/* Instructions that NVIDIA's OpenCL compiler does not take from source, hidden in the PTX that it makes.
 *
 * The compiler compiles for sm_90, and the assembler behind it refuses instructions that only sm_90a has (wgmma).
 * Inline assembly may have them as comments, "//@instruction;", which survive in the text that CL_PROGRAM_BINARIES
 * returns. With the comments made instructions and the target made sm_90a, that text is a program of its own
 * (clCreateProgramWithBinary). */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define PTX_HIDDEN "//@"

/* Makes a new text of *ret_bytes bytes in which the comments are instructions and the target is sm_90a, for the caller
 * to free. A text without such comments needs none: then *ret is NULL. text has `bytes` bytes and needs no terminating
 * zero. -ENOEXEC: the text has such comments, but is not for sm_90. -ENOMEM. */
int ptx_reveal(const char *text, size_t bytes, char **ret, size_t *ret_bytes) MUST_CHECK;
