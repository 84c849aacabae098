/* Numbers of this process, as the operating system has them. */
#pragma once

#include <stdint.h>

struct process_numbers {
	uint64_t cpu_ns;	    /* time on all processors, in user and system mode */
	uint64_t open_fds, max_fds; /* file descriptors */
	uint64_t resident_bytes, virtual_bytes; /* memory */
};

/* Numbers that cannot be read are 0. */
void process_read(struct process_numbers *ret);
