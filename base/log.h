/* Log lines on standard error, each by one write(2). Any thread may log.
 *
 * Logging never waits for a reader. A line for which there is no room (a pipe that nobody reads, a terminal that was
 * stopped) is dropped and counted, and the next line that finds room is preceded by one with the number dropped.
 *
 * Under systemd (JOURNAL_STREAM is set) a line begins with its <priority>, which journald reads; elsewhere with the
 * time of day and the level's name. The level is set once, at the start; lines of a higher level are left out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

/* Lines dropped since the start of the process. */
uint64_t log_dropped(void);

/* Limits log lines of one kind, which might flood the log, to one a minute. All zero at the start. For one thread. */
struct log_limit {
	uint64_t next_ns, n_left_out;
};

enum { LOG_MORE_MAX = 48 };

/* True: write a line now, with `more` at its end: the number of lines left out since the last one, or "". False: leave
 * the line out; it is counted. */
bool log_due(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX]) MUST_CHECK;

#define log_error(...)	 log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                           \
	do {                                                     \
		if (log_enabled(LOG_LEVEL_DEBUG))                \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__); \
	} while (0)
