/* daemon/cli/tune/child.c: processes that end well, fail, are ended by a signal, never end, or print too much. This
 * program is its own child; its argument chooses the end. */
#include "daemon/cli/tune/child.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/tap.h"

static int behave(const char *how)
{
	if (!strcmp(how, "speak")) {
		for (int i = 0; i < 20000; i++)
			printf("line %d\n", i);
		return 0;
	}
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "sleep") || !strcmp(how, "close")) {
		printf("before\n");
		fflush(stdout);
		if (!strcmp(how, "close"))
			close(STDOUT_FILENO);
		for (;;)
			sleep(60);
	}
	return 3;
}

/* Runs this program with the argument `how`. Returns what child_run returns. */
static int run(const char *how, uint32_t seconds, struct buf *out, struct err *e)
{
	char name[] = "test", *argv[] = {name, (char *)(uintptr_t)how, NULL};

	return child_run(argv, seconds, out, e);
}

static void test_hanging(const char *how)
{
	uint64_t start = clock_now_ns(), took;
	struct err e = {0};
	struct buf out;

	buf_init(&out, 1 << 20);
	is_int(run(how, 1, &out, &e), -ETIMEDOUT, "%s: it is killed: %s", how, e.text);
	took = clock_now_ns() - start;
	ok(took > 900000000u && took < 20000000000u, "when its time is over");
	is_str(buf_str(&out), "before\n", "what it said before is there");
	buf_release(&out);
}

int main(int argc, char **argv)
{
	struct err e = {0};
	struct buf out;

	if (argc > 1)
		return behave(argv[1]);
	buf_init(&out, 1 << 20);
	is_int(run("speak", 60, &out, &e), 0, "one that ends: %s", e.text);
	for (size_t i = 0; i < out.len; i++)
		check(out.data[i] == '\n' || out.data[i] >= ' ');
	ok_all("a text");
	ok(out.len > 200000 && !strncmp(out.data, "line 0\n", 7) &&
		   !strcmp(out.data + out.len - 11, "line 19999\n"),
	   "all it said");
	buf_release(&out);
	buf_init(&out, 100);
	is_int(run("speak", 60, &out, &e), -ENOBUFS, "more than there is room for: %s", e.text);
	buf_release(&out);
	buf_init(&out, 100);
	is_int(run("fail", 60, &out, &e), -ECHILD, "a status that is not 0: %s", e.text);
	is_int(run("abort", 60, &out, &e), -ECHILD, "a signal");
	is_str(e.text, "ended by signal 6", "which is named");
	buf_release(&out);
	test_hanging("sleep");
	test_hanging("close");
	return done();
}
