/* The directory in which compiled kernels are kept. tigond and the commands of `tigon` choose it in the same way. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* Chooses the directory, creates it if it is missing, and checks that files can be written there. *ret becomes its
 * path, which is `given` or is written to out [size]; NULL: nothing is kept. If --program-cache was given, its value
 * `given` is the path; if that is empty, *ret is NULL. If the option was not given (`given` is NULL), the path is the
 * first of $CACHE_DIRECTORY (which systemd sets), $XDG_CACHE_HOME/tigon and $HOME/.cache/tigon whose variable has an
 * absolute path. Its missing parents are created. If there is no such variable, or the directory cannot be written, the
 * path is tigon-UID below $TMPDIR or /tmp, and the log says so. If that directory cannot be written, belongs to another
 * user, or others can write to it, *ret is NULL. -EACCES, -EROFS, -ENOTDIR or another errno: the directory that was
 * given cannot be used. */
int program_cache_choose(const char *given, char *out, size_t size, const char **ret,
			 struct err *e) MUST_CHECK;
