/* Where compiled kernels are kept unless an option says so: of the server and of `tigon bench` the same place. */
#pragma once

#include <stddef.h>

/* The value of --program-cache. Not given (NULL): $CACHE_DIRECTORY (systemd), $XDG_CACHE_HOME/tigon or ~/.cache/tigon, into
 * out, whose parents are made. NULL: it is empty, or there is no such place. */
const char *program_cache_choose(const char *given, char *out, size_t size);
