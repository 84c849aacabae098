/* The directory in which compiled kernels are kept. tigond and the commands of `tigon` choose it in the same way. */
#pragma once

#include <stddef.h>

/* Chooses the directory, and returns its path. If --program-cache was given, its value `given` is the path; if that is
 * empty, returns NULL. If the option was not given (`given` is NULL), the path is the first of $CACHE_DIRECTORY (which
 * systemd sets), $XDG_CACHE_HOME/tigon and $HOME/.cache/tigon whose variable has an absolute path. That path is written
 * to out, and its missing parents are created. NULL: there is no such variable. */
const char *program_cache_choose(const char *given, char *out, size_t size);
