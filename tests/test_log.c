/* base/log: a log that nobody reads, or that another process fills, takes the lines that it has room for and drops the
 * others. Only log_last waits for a reader, and not for ever. Lines about progress. */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scratch.h"
#include "tests/tap.h"

enum { LINES = 3000 };

static char text[1 << 20];

/* Makes standard error a copy of fd. */
static void log_into(int fd)
{
	dup2(fd, STDERR_FILENO);
}

/* Reads all that fd has now, without waiting for more, and returns it as text. */
static const char *read_all(int fd)
{
	size_t n = 0;
	ssize_t r;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while ((r = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = 0;
	return text;
}

static size_t count(const char *in, const char *what)
{
	size_t n = 0;

	for (const char *p = in; (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

/* Writes more lines than there is room for, and reads those that came. Then writes single lines, the last one when the
 * reader has gone. */
static void unread(const char *name, int reader, int writer)
{
	uint64_t before = log_dropped(), dropped;
	char want[128];
	size_t came;

	log_into(writer);
	for (int i = 0; i < LINES; i++)
		log_info(
			"line %d of a log that nobody reads, with a tail so that the room is used up",
			i);
	dropped = log_dropped() - before;
	ok(dropped > 0 && dropped < LINES, "%s: some lines are dropped, none is waited for", name);
	came = count(read_all(reader), " of a log");
	is_int(came + dropped, LINES, "%s: every other line came", name);
	log_info("there is room again");
	snprintf(want, sizeof(want), "warning: %d lines of this log were dropped", (int)dropped);
	read_all(reader);
	ok(count(text, want) == 1 && count(text, "info: there is room again\n") == 1,
	   "%s: then a line says how many", name);
	log_info("nothing was dropped");
	is_int(count(read_all(reader), "\n"), 1, "%s: once", name);
	close(reader);
	log_info("the reader has gone");
	ok(true, "%s: a reader that has gone ends nothing", name);
	close(writer);
}

/* Calls a test for the two ends of a pipe, and for those of a socket. */
static void with_pipe_and_socket(void (*test)(const char *name, int reader, int writer))
{
	int fds[2];

	if (!ok(!pipe(fds), "a pipe"))
		return;
	test("a pipe", fds[0], fds[1]);
	if (!ok(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "a socket"))
		return;
	test("a socket", fds[0], fds[1]);
}

TEST(nobody_reads)
{
	signal(SIGPIPE, SIG_IGN);
	with_pipe_and_socket(unread);
}

static _Atomic int n_logged;
static _Atomic bool logged_enough;

/* Stands for another process with the same standard error: writes until the reader has gone. */
static void *write_on(void *arg)
{
	static const char block[64 << 10];

	while (write(*(int *)arg, block, sizeof(block)) > 0)
		;
	return NULL;
}

static void *log_on(void *arg)
{
	while (!atomic_load(&logged_enough)) {
		log_info("a line of a log that another process fills");
		atomic_fetch_add(&n_logged, 1);
	}
	return NULL;
}

/* Another process takes all the room there is. In each round the reader reads a little and then stops. At that moment
 * the log may have seen room that is gone when it writes. It must not wait for it. */
static void shared(const char *name, int reader, int writer)
{
	enum { ROUNDS = 200, READS = 20, MORE = 1000 };
	pthread_t other, logging;
	int round, more = MORE;

	log_into(writer);
	atomic_store(&logged_enough, false);
	pthread_create(&other, NULL, write_on, &writer);
	pthread_create(&logging, NULL, log_on, NULL);
	for (round = 0; round < ROUNDS && more >= MORE; round++) {
		int before;

		for (int i = 0; i < READS; i++)
			check(read(reader, text, 4096) > 0);
		before = atomic_load(&n_logged);
		more = 0;
		for (int ms = 0; ms < 10000 && more < MORE; ms++) {
			usleep(1000);
			more = atomic_load(&n_logged) - before;
		}
	}
	ok(more >= MORE, "%s that another process fills: no line is waited for (round %d)", name,
	   round);
	atomic_store(&logged_enough, true);
	close(reader);
	pthread_join(logging, NULL);
	pthread_join(other, NULL);
	close(writer);
}

TEST(another_process_writes)
{
	with_pipe_and_socket(shared);
}

TEST(last)
{
	char full[4096] = "";
	int fds[2];

	if (!ok(!pipe(fds), "a pipe"))
		return;
	log_into(fds[1]);
	log_last("tigond: %s", "a sentence");
	is_str(read_all(fds[0]), "tigond: a sentence\n", "the last sentence stands alone");
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	while (write(fds[1], full, sizeof(full)) > 0)
		;
	fcntl(fds[1], F_SETFL, 0);
	log_last("tigond: %s", "a sentence");
	ok(true, "it does not wait for ever for a reader");
	close(fds[0]);
	close(fds[1]);
}

TEST(file)
{
	int fd = open(scratch_path("log"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t before = log_dropped();

	/* If an earlier test dropped lines that the log has not told of, the file begins with one line more, which says
	 * how many. It is not an "info: line". */
	log_into(fd);
	for (int i = 0; i < LINES; i++)
		log_info("line %d", i);
	lseek(fd, 0, SEEK_SET);
	is_int(count(read_all(fd), "info: line "), LINES, "a file takes all lines");
	is_int(log_dropped() - before, 0, "and none is dropped");
	close(fd);
}

TEST(journal)
{
	int fds[2];

	if (!ok(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "a socket"))
		return;
	setenv("JOURNAL_STREAM", "8:1", 1);
	log_into(fds[1]);
	log_error("a sentence");
	unsetenv("JOURNAL_STREAM");
	ok(!strcmp(read_all(fds[0]), "<3>a sentence\n"),
	   "under systemd a line begins with its priority");
}

TEST(progress)
{
	const uint64_t second = 1000000000;
	struct log_progress p = {0}, quiet = {.next_ns = 2 * second};
	int fds[2];

	if (!ok(!pipe(fds), "a pipe"))
		return;
	log_into(fds[1]);
	log_progress(&p, 0, 0.3, "compiled %d of 3", 1);
	log_progress(&p, 4 * second, 0.6, "compiled %d of 3", 2);
	is_int(count(read_all(fds[0]), "\n"), 1, "within 5 seconds one line");
	log_progress(&p, 6 * second, 0.6, "compiled %d of 3", 2);
	ok(count(read_all(fds[0]), "compiled 2 of 3\n") == 1, "then the next");
	log_progress_end(&p, "compiled %d", 3);
	ok(count(read_all(fds[0]), "compiled 3\n") == 1, "and the last at once");
	log_progress(&quiet, second, 0.5, "loaded %d", 1);
	log_progress_end(&quiet, "loaded %d", 1);
	is_str(read_all(fds[0]), "", "what ends soon is not mentioned");
	close(fds[0]);
	close(fds[1]);
}

/* Opens a terminal: fds[0] is the side of the person, fds[1] that of programs. False: there is none here. */
static bool open_terminal(int fds[2])
{
	fds[0] = posix_openpt(O_RDWR | O_NOCTTY);
	if (fds[0] >= 0 && !grantpt(fds[0]) && !unlockpt(fds[0]) &&
	    (fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY)) >= 0)
		return true;
	ok(true, "there is no terminal here # SKIP");
	return false;
}

/* A terminal that nobody reads, as over a network that hangs: lines are dropped, and the last may be cut anywhere. */
TEST(nobody_reads_the_terminal)
{
	uint64_t before = log_dropped(), dropped;
	int fds[2];
	size_t came;

	if (!open_terminal(fds))
		return;
	log_into(fds[1]);
	for (int i = 0; i < LINES; i++)
		log_info("line %d of a log that nobody reads%.*s", i, i % 7, "......");
	dropped = log_dropped() - before;
	ok(dropped > 0 && dropped < LINES,
	   "a terminal: some lines are dropped, none is waited for");
	came = count(read_all(fds[0]), ": line ");
	/* A line may be cut in front of the words that are counted here. */
	ok(came + dropped <= LINES && came + dropped >= LINES - 2,
	   "a terminal: every other line came");
	log_info("there is room again");
	ok(count(read_all(fds[0]), "info: there is room again\r\n") == 1, "a terminal: it goes on");
	close(fds[0]);
	close(fds[1]);
}

TEST(progress_on_a_terminal)
{
	const uint64_t ms = 1000000;
	struct log_progress p = {0};
	int fds[2], terminal, fd;

	if (!open_terminal(fds))
		return;
	terminal = fds[0];
	fd = fds[1];
	log_into(fd);
	log_progress(&p, 0, 0.25, "compiled %d of 4", 1);
	log_progress(&p, 50 * ms, 0.5, "compiled %d of 4", 2);
	log_progress(&p, 150 * ms, 0.75, "compiled %d of 4", 3);
	log_info("another line");
	log_progress(&p, 300 * ms, 1, "compiled %d of 4", 4);
	log_progress_end(&p, "compiled %d", 4);
	read_all(terminal);
	is_int(count(text, "\n"), 2, "only another line and the last one stay");
	ok(strstr(text, "compiled 1 of 4 [####............]\r\033[K") &&
		   strstr(text, "compiled 3 of 4 [############....]\r\033[K") &&
		   strstr(text, "compiled 4 of 4 [################]\r\033[K"),
	   "each has a bar, and the next one takes its place");
	ok(!strstr(text, "compiled 2 of 4"), "ten times a second at most");
	ok(strstr(text, "another line\r\n") && strstr(text, "compiled 4\r\n"),
	   "and both are whole");
	log_progress(&p, 500 * ms, 0.75, "compiled %d of 4", 3);
	log_last("tigond: no");
	log_last("tigond: %s", "never");
	ok(count(read_all(terminal), "....]\r\ntigond: no\r\ntigond: never\r\n") == 1,
	   "a work that fails leaves a whole line, and the last sentence is behind it");
	close(fd);
	close(terminal);
}

TEST_MAIN()
