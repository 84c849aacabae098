#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
	const char *name;
	int priority; /* syslog's numbers, which journald reads */
} levels[] = {
	[LOG_LEVEL_ERROR] = {"error", 3},
	[LOG_LEVEL_WARNING] = {"warning", 4},
	[LOG_LEVEL_INFO] = {"info", 6},
	[LOG_LEVEL_DEBUG] = {"debug", 7},
};

static enum log_level current = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	current = level;
}

bool log_enabled(enum log_level level)
{
	return level <= current;
}

bool log_due(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX])
{
	if (now_ns < l->next_ns) {
		l->n_left_out++;
		return false;
	}
	more[0] = 0;
	if (l->n_left_out)
		snprintf(more, LOG_MORE_MAX, " (and %" PRIu64 " more before)", l->n_left_out);
	l->n_left_out = 0;
	l->next_ns = now_ns + (uint64_t)60 * 1000000000;
	return true;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	int saved = errno;
	size_t n;
	va_list ap;
	ssize_t r;

	if (!log_enabled(level))
		return;
	if (getenv("JOURNAL_STREAM")) {
		n = (size_t)snprintf(line, sizeof(line), "<%d>", levels[level].priority);
	} else {
		struct timespec now;
		struct tm tm;

		clock_gettime(CLOCK_REALTIME, &now);
		localtime_r(&now.tv_sec, &tm);
		n = strftime(line, sizeof(line), "%H:%M:%S", &tm);
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      ".%03ld %s: ", now.tv_nsec / 1000000, levels[level].name);
	}
	va_start(ap, fmt);
	r = vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	n = r < 0 ? n : MIN(n + (size_t)r, sizeof(line) - 2);
	line[n++] = '\n';
	/* A log that cannot be written must never stop the daemon. */
	r = write(STDERR_FILENO, line, n);
	(void)r;
	errno = saved;
}
