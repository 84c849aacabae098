/* How much memory this process may use: all that the machine has, or less if a control group has a limit. The process's
 * own control group and each group above it may have one. */
#pragma once

#include <stdint.h>

struct host_memory {
	uint64_t total; /* bytes of the machine, or the lowest limit if that is less */
	uint64_t left;	/* bytes that may still be taken */
};

struct host_memory host_memory_read(void);
