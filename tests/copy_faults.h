/* Copies between host and device that fail, as calls and events of OpenCL say it. The program is linked with --wrap
 * (meson.build), so that its own calls of the functions below come here. Calls inside of the driver do not: there a copy
 * that fails is a marker, which has run in good order. So the commands that wait for it run as well, on bytes that were
 * not copied, which is the worst that a driver can do. (PoCL 3.1 would end the process if a command failed that others
 * wait for.) */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum copy_fault {
	FAULT_NONE,
	FAULT_REFUSED, /* the call returns an error, and nothing is queued */
	FAULT_BROKEN,  /* the command is queued, copies nothing, and its event ends with an error */
	FAULT_HELD     /* the same, but not before copy_fault_release */
};

/* Lets reads (write: writes) on all queues fail from now on, but for the next `good` ones. FAULT_NONE: none of them
 * fails. */
void copy_fault_set(bool write, enum copy_fault fault, uint32_t good);

/* Ends the commands that FAULT_HELD holds. */
void copy_fault_release(void);

/* For whole programs. The environment variable COPY_FAULT names a file. While it exists, it says which commands fail on
 * the queue that was made last, which is that of the copies (engine/copies.h): "read refused", "read broken", "write
 * refused" or "write broken". */
