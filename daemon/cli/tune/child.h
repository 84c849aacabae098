/*
 * A process of this program's own that measures one cut. A driver may end it or never come back (PoCL does either); and
 * whoever has used OpenCL must not fork, so the one that starts them never uses it.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Runs this program with argv (NULL-terminated), appends its standard output to out, and waits for its end; after so many
 * seconds it is killed. An error says in a few words what became of it: -ETIMEDOUT, -ECHILD (it failed or was
 * ended), or that it could not be started. */
int child_run(char *const argv[], uint32_t seconds, struct buf *out, struct err *e) MUST_CHECK;
