/* Makes the calls of a file of tigond --record again and compares the plans. */
#ifndef DAEMON_CLI_SIMULATE_REPLAY_H
#define DAEMON_CLI_SIMULATE_REPLAY_H

#include "base/err.h"

/* Prints what came of it. -EINVAL: a line that cannot be read, or a plan that differs; the sentence
 * names the line. */
int replay_file(const char *path, struct err *e) MUST_CHECK;

#endif
