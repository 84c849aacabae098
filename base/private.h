/* Files and directories that other users must keep out of: keys that they must not read, caches that they must not
 * write, because programs and pages of a cache are used as they are. */
#pragma once

#include "base/err.h"

/* Checks that a directory belongs to this user or to root, and that nobody else may write to it. 0 also if it cannot be
 * looked at: then its use fails. -EPERM with a sentence that begins with the path. */
int private_directory(const char *path, struct err *e) MUST_CHECK;

/* Calls `line` for each line of a file with keys, without blanks at both ends; not for empty lines and comments (#). The
 * line may be changed, and is wiped afterwards. Refuses a file that other users may read. A negative result of `line`
 * ends the reading, and is returned. The sentence of an error begins with the path. */
int private_lines(const char *path, int (*line)(void *arg, char *line, struct err *e), void *arg,
		  struct err *e) MUST_CHECK;
