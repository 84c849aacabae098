/* The directory of compiled kernels. tigond and the commands of `tigon` choose the same one, unless an option names
 * another. */
#pragma once

#include <stddef.h>

/* Chooses the directory. `given` is the value of --program-cache, NULL: the option was not given. Then the directory
 * is $CACHE_DIRECTORY (which systemd sets), $XDG_CACHE_HOME/tigon or $HOME/.cache/tigon; its path is written to out,
 * and its missing parents are created. Returns `given`, out, or NULL: `given` is empty, or no variable has an
 * absolute path. */
const char *program_cache_choose(const char *given, char *out, size_t size);
