#include "daemon/cli/tune/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SECOND 1000000000ull

enum { LOOK_MS = 100, PART = 65536 };

static int start(char *const argv[], int out, pid_t *ret, struct err *e)
{
	posix_spawn_file_actions_t actions;
	int code = posix_spawn_file_actions_init(&actions);

	if (!code)
		code = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
							O_RDONLY, 0);
	if (!code)
		code = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (!code)
		code = posix_spawn(ret, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return code ? err_set(e, code, "it does not start: %s", strerror(code)) : 0;
}

/* Reads the child's output until the child closes it. -ETIMEDOUT: it is still open at the time `until`. */
static int read_all(int in, uint64_t until, struct buf *out)
{
	static char part[PART];

	for (;;) {
		struct pollfd p = {.fd = in, .events = POLLIN};
		ssize_t n;

		if (clock_now_ns() >= until)
			return -ETIMEDOUT;
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		n = read(in, part, sizeof(part));
		if (n == 0 || (n < 0 && errno != EINTR))
			return 0;
		if (n > 0)
			buf_append(out, part, (size_t)n);
	}
}

/* Waits for the child's end, because a child that has closed its output may still be running. -ETIMEDOUT: it is still
 * running at the time `until`. */
static int wait_until(pid_t pid, uint64_t until, int *ret_status)
{
	const struct timespec pause = {.tv_nsec = LOOK_MS * 100000};

	while (waitpid(pid, ret_status, WNOHANG) == 0) {
		if (clock_now_ns() >= until)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int child_run(char *const argv[], uint32_t seconds, struct buf *out, struct err *e)
{
	uint64_t until = clock_now_ns() + seconds * SECOND;
	int ends[2], status = 0, r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set(e, errno, "it does not start: %s", strerror(errno));
	r = start(argv, ends[1], &pid, e);
	close(ends[1]);
	if (r < 0) {
		close(ends[0]);
		return r;
	}
	r = read_all(ends[0], until, out);
	close(ends[0]);
	if (r == 0)
		r = wait_until(pid, until, &status);
	if (r < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return err_set(e, ETIMEDOUT, "no end after %u s", seconds);
	}
	if (WIFSIGNALED(status))
		return err_set(e, ECHILD, "ended by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		return err_set(e, ECHILD, "it failed");
	return out->failed ? err_set(e, ENOBUFS, "it says too much") : 0;
}
