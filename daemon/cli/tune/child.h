/* Starts this program again as a child process that measures one cut. A driver may end a process or hang in it (PoCL
 * does both). A process that has used OpenCL must not fork, so the parent never uses it. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Runs this program with argv (NULL-terminated), appends its standard output to out, and waits for its end; after so
 * many seconds the child is killed. The error says in a few words how it ended: -ETIMEDOUT, -ECHILD (it failed or a
 * signal ended it), or the errno of starting it. */
int child_run(char *const argv[], uint32_t seconds, struct buf *out, struct err *e) MUST_CHECK;
