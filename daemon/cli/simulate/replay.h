/* Makes the calls of a file that tigond --record wrote again, and compares the plans. */
#pragma once

#include "base/err.h"

/* Prints the result. -EINVAL: a line that cannot be read, or a plan that differs; the sentence names the line. */
int replay_file(const char *path, struct err *e) MUST_CHECK;
