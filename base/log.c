#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* Guards the writing of log lines, which any thread may do. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool cut;      /* the last line was written in part; guarded by lock */
static uint64_t told; /* how many dropped lines put_dropped has reported; guarded by lock */
static _Atomic uint64_t dropped;
static bool replaced; /* the last line may have a bar and no newline; guarded by lock */

/* The least time between two lines of log_progress, on a terminal and elsewhere. */
#define TERMINAL_NS UINT64_C(100000000)
#define LINES_NS    UINT64_C(5000000000)

/* The length of a full bar, in characters. */
enum { BAR = 16 };

/* The parameter `share` of write_line for a line without a bar. */
#define NO_BAR (-1.0)

/* The longest time in milliseconds that log_last waits for a reader. */
enum { LAST_MS = 1000 };

uint64_t log_dropped(void)
{
	return atomic_load_explicit(&dropped, memory_order_relaxed);
}

void log_set_level(enum log_level level)
{
	current = level;
}

bool log_enabled(enum log_level level)
{
	return level <= current;
}

/* Works like log_due, but `most` lines are due in a minute. */
static bool is_due(struct log_limit *l, uint32_t most, uint64_t now_ns, char more[LOG_MORE_MAX])
{
	if (now_ns >= l->next_ns) {
		l->n_lines = 0;
		l->next_ns = now_ns + (uint64_t)60 * 1000000000;
	}
	if (l->n_lines >= most) {
		l->n_left_out++;
		return false;
	}
	l->n_lines++;
	more[0] = 0;
	if (l->n_left_out)
		snprintf(more, LOG_MORE_MAX, " (and %" PRIu64 " more before)", l->n_left_out);
	l->n_left_out = 0;
	return true;
}

bool log_due(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX])
{
	return is_due(l, 1, now_ns, more);
}

bool log_due_often(struct log_limit *l, uint64_t now_ns, char more[LOG_MORE_MAX])
{
	return is_due(l, LOG_BURST, now_ns, more);
}

/* Writes the beginning of a line (priority, or time and level) to `line`. Returns its length. */
static size_t line_head(enum log_level level, char *line, size_t size)
{
	struct timespec now;
	struct tm tm;
	size_t n;

	if (getenv("JOURNAL_STREAM"))
		return (size_t)snprintf(line, size, "<%d>", levels[level].priority);
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	n = strftime(line, size, "%H:%M:%S", &tm);
	return n + (size_t)snprintf(line + n, size - n, ".%03ld %s: ", now.tv_nsec / 1000000,
				    levels[level].name);
}

/* Opens the pipe or the terminal of standard error anew, with O_NONBLOCK, unless it is open already. Set for descriptor
 * 2 itself, that flag would also apply to every other process that has the pipe or the terminal from the same parent.
 * Returns the new descriptor, which stays open. So no other pipe or terminal can get the inode number by which this one
 * is known again. -1: it cannot be opened. Call with the lock held. */
static int open_anew(const struct stat *st)
{
	static int opened = -1;
	static dev_t device;
	static ino_t inode;

	if (opened >= 0 && st->st_dev == device && st->st_ino == inode)
		return opened;
	if (opened >= 0)
		close(opened);
	opened = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	device = st->st_dev;
	inode = st->st_ino;
	return opened;
}

/* Writes to standard error as write(2) does, but does not wait for a reader: -1 if there is no room. To ask poll before
 * the write is not enough, because other processes that write to the same pipe may fill it in between. poll is the
 * fallback for what cannot be opened anew: a pipe of another user, or a named pipe that no process reads. Call with the
 * lock held. */
static ssize_t write_now(const char *text, size_t n)
{
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct stat st;
	int opened;

	if (fstat(STDERR_FILENO, &st) < 0)
		return -1;
	if (S_ISSOCK(st.st_mode))
		return send(STDERR_FILENO, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (!S_ISFIFO(st.st_mode) && !isatty(STDERR_FILENO))
		return write(STDERR_FILENO, text, n);
	opened = open_anew(&st);
	if (opened >= 0)
		return write(opened, text, n);
	return poll(&fd, 1, 0) == 1 && fd.revents & POLLOUT ? write(STDERR_FILENO, text, n) : -1;
}

/* Writes text to standard error. Returns how many bytes were written; 0: there is no room. A pipe takes all or none of
 * up to PIPE_BUF bytes (4096), and a line is shorter. A socket and a terminal may take a part. */
static size_t put(const char *text, size_t n)
{
	ssize_t r = write_now(text, n);

	if (r > 0)
		cut = (size_t)r < n;
	return r > 0 ? (size_t)r : 0;
}

/* Writes a line that says how many lines were dropped. Does nothing if there is still no room. */
static void put_dropped(void)
{
	char line[128] = "\n"; /* line[0] is written if the line before was cut */
	size_t n = 1 + line_head(LOG_LEVEL_WARNING, line + 1, sizeof(line) - 1);
	uint64_t more = log_dropped() - told;

	n += (size_t)snprintf(line + n, sizeof(line) - n,
			      "%" PRIu64
			      " lines of this log were dropped, because nobody read it\n",
			      more);
	n -= !cut;
	if (put(line + !cut, n) == n)
		told += more;
}

/* Writes a line. share: NO_BAR, or the part of a bar's length that is full. A line with a bar is on a terminal and gets
 * no newline. The next call of write_line erases it. */
__attribute__((format(printf, 3, 0))) static void write_line(enum log_level level, double share,
							     const char *fmt, va_list ap)
{
	static const char full[] = "################", empty[] = "................";
	static const char erase[] = "\r\033[K";
	const bool passing = share >= 0;
	const int n_full = passing ? (int)(MIN(share, 1) * BAR) : 0;
	char line[2048];
	/* Behind these bytes there is room for a bar or a newline. */
	const size_t size = sizeof(line) - BAR - 4;
	int saved = errno;
	size_t n = 1; /* line[0] is a newline, which is written if the line before was cut */
	int r;

	line[0] = '\n';
	n += line_head(level, line + n, size - n);
	r = vsnprintf(line + n, size - n, fmt, ap);
	n = r < 0 ? n : MIN(n + (size_t)r, size - 1);
	if (passing)
		n += (size_t)snprintf(line + n, sizeof(line) - n, " [%.*s%.*s]", n_full, full,
				      BAR - n_full, empty);
	else
		line[n++] = '\n';
	pthread_mutex_lock(&lock);
	if (replaced && put(erase, sizeof(erase) - 1))
		replaced = false;
	if (told < log_dropped())
		put_dropped();
	if (told < log_dropped() || !put(line + !cut, n - !cut))
		atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
	else
		replaced = passing;
	pthread_mutex_unlock(&lock);
	errno = saved;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	write_line(level, NO_BAR, fmt, ap);
	va_end(ap);
}

void log_progress(struct log_progress *p, uint64_t now_ns, double share, const char *fmt, ...)
{
	bool terminal = isatty(STDERR_FILENO);
	va_list ap;

	if (!log_enabled(LOG_LEVEL_INFO) || now_ns < p->next_ns)
		return;
	p->told = true;
	p->next_ns = now_ns + (terminal ? TERMINAL_NS : LINES_NS);
	va_start(ap, fmt);
	write_line(LOG_LEVEL_INFO, terminal ? share : NO_BAR, fmt, ap);
	va_end(ap);
}

void log_progress_end(struct log_progress *p, const char *fmt, ...)
{
	va_list ap;

	if (!p->told)
		return;
	va_start(ap, fmt);
	write_line(LOG_LEVEL_INFO, NO_BAR, fmt, ap);
	va_end(ap);
}

void log_last(const char *fmt, ...)
{
	/* line[0] is written only if the line before it has no newline. */
	char line[2048] = "\n";
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
	size_t n;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + 1, sizeof(line) - 2, fmt, ap);
	va_end(ap);
	n = strlen(line);
	line[n++] = '\n';
	poll(&fd, 1, LAST_MS);
	pthread_mutex_lock(&lock);
	if (cut || replaced)
		put(line, n);
	else
		put(line + 1, n - 1);
	replaced = false;
	pthread_mutex_unlock(&lock);
}
