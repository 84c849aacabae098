/* Log lines on standard error, each by one write(2). Any thread may log.
 *
 * Logging never waits for a reader. A line for which there is no room (a pipe that nobody reads, a terminal that was
 * stopped) is dropped and counted. The next line that finds room is preceded by one that says how many were dropped.
 * This holds for a pipe that other processes write to as well, unless the pipe belongs to another user and so cannot be
 * opened anew (write_now in log.c): a line may wait there if another process fills the pipe at that very moment.
 *
 * Under systemd (JOURNAL_STREAM is set) a line begins with its <priority>, which journald reads; elsewhere with the
 * time of day and the level's name. log_set_level is to be called before other threads start; without it the level
 * is LOG_LEVEL_INFO. Lines that are less important than the level are left out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

/* Returns the number of lines dropped since the start of the process. */
uint64_t log_dropped(void);

/* Limits log lines of one kind, which might flood the log, to one a minute, or to LOG_BURST. All zeros at the start.
 * Only one thread uses a struct log_limit. */
struct log_limit {
	uint64_t next_ns, n_left_out;
	uint32_t n_lines; /* lines of the minute that ends at next_ns */
};

/* LOG_BURST is enough for what a large fleet says when all of it is started, and too little to fill a disk. */
enum { LOG_MORE_MAX = 48, LOG_BURST = 64 };

/* Returns whether a line may be written now. If so, `more` becomes the text for its end: how many lines were left out
 * since the last line that was written, or "" if none was. If not, counts the line as left out. */
bool log_due(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX]) MUST_CHECK;

/* Like log_due, for lines that are normal when they are few: LOG_BURST of them are due in a minute, which begins with
 * the first one. */
bool log_due_often(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX]) MUST_CHECK;

/* The lines about the progress of a long work, such as the loading of a model. On a terminal one line with a bar is
 * replaced again and again. Elsewhere there is at most one new line every 5 seconds. Only one thread uses a struct
 * log_progress. */
struct log_progress {
	/* log_progress writes no line before this time. The caller sets it for the first line. */
	uint64_t next_ns;
	bool told; /* log_progress has written a line */
};

/* Writes a line about the progress, unless it is too early for one. share: the part of the work that is done, from 0 to
 * 1; the same part of the bar is full. */
void log_progress(struct log_progress *p, uint64_t now_ns, double share, const char *fmt, ...)
	PRINTF(4, 5);

/* Writes the last line, about a work that is done, but only if log_progress wrote a line before. No other line replaces
 * it. */
void log_progress_end(struct log_progress *p, const char *fmt, ...) PRINTF(2, 3);

/* Writes the sentence with which the program ends, whatever log_set_level was given. The line has neither time nor
 * level. If standard error takes no data now, waits for a second at most. */
void log_last(const char *fmt, ...) PRINTF(1, 2);

#define log_error(...)	 log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                           \
	do {                                                     \
		if (log_enabled(LOG_LEVEL_DEBUG))                \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__); \
	} while (0)
