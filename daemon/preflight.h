/* Checks of options that depend on the model and on this machine, before the model is loaded. */
#pragma once

#include "daemon/options.h"

/* Checks --max-model-len, --host-cache-memory and --cache-dir, which it creates if it is missing. The sentence names
 * the option. -EINVAL: the model has fewer positions, or the machine less memory. -ENOTDIR, -EACCES or another errno:
 * the directory cannot be used or is not private, or config.json cannot be read. */
int preflight_check(const struct options *o, struct err *e) MUST_CHECK;
