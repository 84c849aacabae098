/* Kernels of the nvidia variant on a CPU, lane by lane: what PTX gives them, in C.
 *
 * run.py compiles a kernel as OpenCL C for this CPU. It puts calls of functions of warp.c in the places of inline
 * assembly, and of macros and functions that consist of it. So a kernel's text is compiled as it stands, but for these.
 *
 * A lane is a coroutine, and lanes take turns when one waits: for its warp (shuffles, mma.sync) or for its group
 * (barrier). Local memory is static; so groups run one after the other, or each in a process of its own. The program is
 * not position-independent: then addresses of local memory have 32 bits, as kernels expect.
 *
 * The emulator shows neither how the memory of a GPU orders accesses, nor what a compiler for a GPU makes of the text.
 * Source of the instructions: the PTX ISA, "mma.m16n8k16", "shfl.sync", "redux.sync", "bar.sync", "cvt". */
#pragma once

#include <stddef.h>

/* Runs group x, y of nx groups in a row: `lanes` lanes, a multiple of 32 and at most 1,024, each of which calls
 * kernel(). Ends the process with a message if no lane can go on. */
void emulate(void (*kernel)(void), unsigned lanes, size_t x, size_t y, size_t nx);

/* Runs n groups in a row at the same time, for kernels whose groups wait for each other. What they write is seen in
 * memory of emulated_memory alone. */
void emulate_together(void (*kernel)(void), unsigned lanes, size_t n);

/* Returns zeros, from a multiple of 64 bytes on: global memory, which stays until the end of the process. Kernels may
 * ask for its lines in a cache. If they ask for another line, the process ends with a message. */
void *emulated_memory(size_t bytes);
