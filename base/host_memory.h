/* How much memory this process may use: what the machine has, or less if a control group has a limit. Each control
 * group above the process's own may have one. */
#pragma once

#include <stdint.h>

struct host_memory {
	uint64_t total; /* bytes of the machine, or the lowest limit */
	uint64_t left;	/* bytes that may still be taken */
};

struct host_memory host_memory_read(void);
