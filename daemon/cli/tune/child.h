/* Starts this program again as a child process that measures one cut. A driver may end its process or hang (PoCL does
 * both); then only the child is lost. A process that has used OpenCL must not fork, so the parent never uses OpenCL. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Runs this program with argv (NULL-terminated), appends the child's standard output to out, and waits for its end;
 * after `seconds` seconds the child is killed. The error's text is not a sentence, but a few words on how the child
 * ended. -ETIMEDOUT; -ECHILD: it failed or a signal ended it; -ENOBUFS: its output does not fit into out; or the errno
 * of starting it. */
int child_run(char *const argv[], uint32_t seconds, struct buf *out, struct err *e) MUST_CHECK;
