/* Clients that leave, as the watch thread sees them; descriptors that are used again. */
#include "daemon/http/watch.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/lifecycle.h"
#include "daemon/steps/loop.h"
#include "tests/tap.h"

static struct server server;
static const struct endpoint endpoint = {.id = "chatcmpl-", .parse = openai_parse_chat};
static struct watch *watch;

static void no_resume(void *connection)
{
}

static struct call *new_call(void)
{
	struct call *c = call_new(&server, &endpoint);

	c->http.resume = no_resume;
	call_arrive(c);
	return c;
}

/* Milliseconds until the call is aborted; -1: not within `limit`. */
static int aborted_after(struct call *c, int limit)
{
	uint64_t begin = clock_now_ns();

	while (!atomic_load(&c->aborted)) {
		if (clock_now_ns() - begin > (uint64_t)limit * 1000000)
			return -1;
		usleep(500);
	}
	return (int)((clock_now_ns() - begin) / 1000000);
}

static struct connection *open_watched(int fd)
{
	return watch_open(watch, fd, &(struct sockaddr){.sa_family = AF_UNIX});
}

static void test_hang_up(bool half)
{
	struct connection *k;
	struct call *c = new_call();
	int fds[2], ms;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	k = open_watched(fds[0]);
	watch_receiving(watch, k, 0);
	watch_answering(watch, k, c);
	is_int(aborted_after(c, 50), -1, "a client that stays is left alone");
	if (half)
		shutdown(fds[1], SHUT_WR);
	else
		close(fds[1]);
	ms = aborted_after(c, 2000);
	ok(ms >= 0 && ms < 100, "one that %s is seen (%d ms)",
	   half ? "shuts down its half" : "leaves", ms);
	watch_idle(watch, k);
	call_unref(c);
	watch_close(watch, k);
	close(fds[0]);
	if (half)
		close(fds[1]);
}

/* It left between two requests, or before the body was complete: seen when the next one begins. */
TEST(left_before)
{
	struct connection *k;
	struct call *c = new_call();
	int fds[2];

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	k = open_watched(fds[0]);
	watch_answering(watch, k, NULL);
	watch_idle(watch, k);
	close(fds[1]);
	watch_answering(watch, k, c);
	ok(aborted_after(c, 2000) >= 0, "one that had left before is seen");
	watch_idle(watch, k);
	call_unref(c);
	watch_close(watch, k);
	close(fds[0]);
}

/* A descriptor that is used again at once: events of the former connection are ignored. */
TEST(reuse)
{
	int wrong = 0, unseen = 0;

	for (int turn = 0; turn < 300; turn++) {
		struct call *c = new_call(), *next = new_call();
		struct connection *k;
		int fds[2], again[2];

		check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
		k = open_watched(fds[0]);
		watch_answering(watch, k, c);
		close(fds[1]);
		if (turn % 3)
			usleep((useconds_t)turn);
		watch_idle(watch, k);
		watch_close(watch, k);
		close(fds[0]);
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, again) == 0);
		k = open_watched(again[0]);
		watch_answering(watch, k, next);
		if (turn % 10 == 0)
			usleep(3000);
		wrong += atomic_load(&next->aborted);
		if (turn % 10 == 0) {
			close(again[1]);
			unseen += aborted_after(next, 2000) < 0;
		}
		watch_idle(watch, k);
		watch_close(watch, k);
		close(again[0]);
		if (turn % 10)
			close(again[1]);
		call_unref(c);
		call_unref(next);
	}
	is_int(wrong, 0, "no event reaches the next user of a descriptor");
	is_int(unseen, 0, "which is watched itself");
}

int main(void)
{
	struct err e = {0};

	log_set_level(LOG_LEVEL_ERROR);
	metrics_init(&server.metrics);
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	server.options = (struct options){.model = "/nowhere",
					  .max_num_seqs = 4,
					  .page_size = 64,
					  .max_batched_tokens = 64};
	check(loop_start(&server, &e) == 0);
	check(watch_start(&watch, &e) == 0);
	watch_limit(watch, 1000, &(struct networks){0});
	ok_all("started");
	test_hang_up(false);
	test_hang_up(true);
	run_tests();
	watch_free(watch);
	loop_free(server.loop);
	is_int(atomic_load(&server.calls), 0, "nothing is left");
	lifecycle_free(server.lifecycle);
	return done();
}
