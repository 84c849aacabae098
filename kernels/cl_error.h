/* Translates OpenCL's error codes. No other file does. */
#pragma once

#include <CL/cl.h>

#include "base/err.h"

/* "CL_OUT_OF_RESOURCES" and so on; "unknown OpenCL error" for a code that has no name. */
const char *cl_error_name(cl_int code);

/* Fills e with "what: NAME (code)" and returns -ENOMEM for a lack of memory, -ENODEV for a missing device, else -EIO.
 * 0 for CL_SUCCESS. */
int cl_error(struct err *e, cl_int code, const char *what);
