/* Reads a file that tigond --record wrote, makes the same calls of the scheduler again, and compares the plans. */
#pragma once

#include "base/err.h"

/* Replays the file and prints the result. -EINVAL: the file is empty, a line cannot be read, or a call has another
 * result than the recorded one; the sentence names the line, if there is one. Or another errno, such as that of opening
 * the file. */
int replay_file(const char *path, struct err *e) MUST_CHECK;
