/* Reads a file that tigond --record wrote, makes the same calls of the scheduler again, and compares the plans. */
#pragma once

#include "base/err.h"

/* Replays the file and prints the result. -EINVAL: a line cannot be read, or a plan differs; the sentence names the
 * line. -errno: the file cannot be opened. */
int replay_file(const char *path, struct err *e) MUST_CHECK;
