/* The directory of compiled kernels, the same for the server and `tigon bench`, unless an option names another one. */
#pragma once

#include <stddef.h>

/* Returns the value of --program-cache. If it was not given (NULL): $CACHE_DIRECTORY (systemd), $XDG_CACHE_HOME/tigon
 * or ~/.cache/tigon, written into out; missing parents are made. NULL: the value is empty, or no such directory is
 * known. */
const char *program_cache_choose(const char *given, char *out, size_t size);
