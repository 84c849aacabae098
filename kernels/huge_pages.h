/* Large pages of the host's memory for the buffers of a CPU device. */
#pragma once

#include <CL/cl.h>
#include <stdint.h>

/* Asks the system for large pages behind a buffer. To be called before the buffer is first written. Linux grants large
 * pages only on request if transparent_hugepage/enabled is `madvise`. A step of a big model reads gigabytes of weights.
 * With pages of 4 KiB a processor's prefetcher stops every 64 cache lines, and the processor looks up an address
 * translation as often. The request is a hint: a refusal is no error. Waits for the queue. Does nothing on a system
 * without MADV_HUGEPAGE. */
void huge_pages_ask(cl_command_queue queue, cl_mem buffer, uint64_t bytes);
