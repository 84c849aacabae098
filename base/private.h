/* Checks that other users cannot read files with keys, nor write to the directories of caches: the checksums in a cache
 * find damaged programs and pages, but not forged ones. */
#pragma once

#include "base/err.h"

/* Checks that a directory belongs to this user or to root, and that nobody else may write to it. -EPERM: the check
 * failed; the sentence begins with the path. If stat fails, returns 0, because the use of the directory fails later. */
int private_directory(const char *path, struct err *e) MUST_CHECK;

/* Calls `line` for each line of a file with keys, without blanks at both ends; not for empty lines and comments (#).
 * The callback may change the text of the line. The memory that had the text is wiped at
 * the end, if no line has more than 8 KiB. Refuses a file that other
 * users may read or write; but if another user owns it, its group may read it. A line with a zero byte is -EINVAL. A
 * result of `line` other than 0 ends the reading, and is returned. The sentence of an error begins with the path. */
int private_lines(const char *path, int (*line)(void *arg, char *line, struct err *e), void *arg,
		  struct err *e) MUST_CHECK;
