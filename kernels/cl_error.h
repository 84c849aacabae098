/* Translates OpenCL's error codes to names and errnos. No other file looks an errno up by the code. */
#pragma once

#include <CL/cl.h>

#include "base/err.h"

/* Returns the name of a code ("CL_OUT_OF_RESOURCES"), or "unknown OpenCL error" if the table (cl_error.c) lacks it. */
const char *cl_error_name(cl_int code);

/* Fills e with "what: NAME (code)" and returns -ENOMEM for a lack of memory, -ENODEV for a missing device, else -EIO.
 * For CL_SUCCESS it returns 0 and leaves e alone. */
int cl_error(struct err *e, cl_int code, const char *what);
