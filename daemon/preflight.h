/* Checks of options that depend on the model and on this machine, before the model is loaded. */
#pragma once

#include "daemon/options.h"

/* Checks --max-model-len, and, unless --prefix-cache is off, --host-cache-memory and --cache-dir. Creates the directory
 * if it is missing. The sentence names the option, or config.json if that is at fault. -EINVAL: the model has fewer
 * positions, this process may have less memory, or config.json is wrong. -ENOTDIR, -EACCES, -EPERM or another errno:
 * the directory cannot be used or is not private (base/private.h), or config.json cannot be read. */
int preflight_check(const struct options *o, struct err *e) MUST_CHECK;
