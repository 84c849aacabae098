/* Log lines on standard error, one write each, safe from any thread.
 *
 * Under systemd (JOURNAL_STREAM is set) a line begins with its <priority>, which journald reads; elsewhere with the
 * time of day. The level is set once at start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

/* Limits log lines of one kind, which clients may cause, to one a minute. Zero at the start; one thread. */
struct log_limit {
	uint64_t next_ns, n_left_out;
};

enum { LOG_MORE_MAX = 48 };

/* Whether such a line is due now. `more` is then text for its end: the number of lines left out since the last one,
 * or nothing. */
bool log_due(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX]) MUST_CHECK;

#define log_error(...)	 log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                           \
	do {                                                     \
		if (log_enabled(LOG_LEVEL_DEBUG))                \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__); \
	} while (0)
