/* The directory in which compiled kernels are kept. tigond and the commands of `tigon` choose it in the same way. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* Chooses the directory, creates it if it is missing, and checks that files can be written there. `given` is the value
 * of --program-cache, which is the path; if it is empty, *ret is NULL, and nothing is kept. If the option was not given
 * (`given` is NULL), the path is the first of $CACHE_DIRECTORY (which systemd sets), $XDG_CACHE_HOME/tigon and
 * $HOME/.cache/tigon whose variable has an absolute path. It is written to out, and its missing parents are created. If
 * there is no such variable, or the directory cannot be written, it is tigon-UID below $TMPDIR or /tmp instead, and the
 * log says so; a directory of that name that others can write is not used, and *ret is NULL.
 * -EACCES, -EROFS, -ENOTDIR or another errno: the directory that was given cannot be used. */
int program_cache_choose(const char *given, char *out, size_t size, const char **ret,
			 struct err *e) MUST_CHECK;
