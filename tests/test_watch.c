/* Clients that leave, as the watch thread sees them; descriptors that are used again. */
#include "daemon/http/watch.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
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
	struct err e = {0};

	c->http.resume = no_resume;
	check(call_arrive(c, &e) == 0);
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

/* A connection: fds[0] is the server's descriptor, fds[1] the client's. */
static struct connection *open_at(bool admin, const struct sockaddr *from, int fds[2])
{
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	return watch_open(watch, admin, fds[0], from);
}

static struct connection *open_watched(int fds[2])
{
	return open_at(false, &(struct sockaddr){.sa_family = AF_UNIX}, fds);
}

/* c: the call that the connection has; NULL: none. */
static void close_watched(struct connection *k, struct call *c, int fds[2])
{
	if (c) {
		watch_idle(watch, k);
		call_unref(c);
	}
	watch_close(watch, k);
	close(fds[0]);
	close(fds[1]);
}

/* A client leaves, or (half) shuts down its half of the connection. Returns the milliseconds until this is seen; -1: it
 * was not seen within two seconds. */
static int hang_up(bool half)
{
	struct connection *k;
	struct call *c = new_call();
	int fds[2], ms;

	k = open_watched(fds);
	watch_receiving(watch, k, 0);
	watch_answering(watch, k, c);
	is_int(aborted_after(c, 50), -1, "a client that stays is left alone");
	if (half)
		shutdown(fds[1], SHUT_WR);
	else
		close(fds[1]);
	ms = aborted_after(c, 2000);
	watch_idle(watch, k);
	call_unref(c);
	watch_close(watch, k);
	close(fds[0]);
	if (half)
		close(fds[1]);
	return ms;
}

/* Of five clients three must be seen within 100 ms: a busy machine may delay one or two. */
static void test_hang_up(bool half)
{
	enum { N = 5 };
	int ms[N], n_below = 0;

	for (int i = 0; i < N; i++) {
		ms[i] = hang_up(half);
		n_below += ms[i] >= 0 && ms[i] < 100;
	}
	ok(n_below > N / 2, "one that %s is seen at once (%d, %d, %d, %d, %d ms)",
	   half ? "shuts down its half" : "leaves", ms[0], ms[1], ms[2], ms[3], ms[4]);
}

/* A client left between two requests, or before the body was complete: this is seen when the next answer begins. */
TEST(left_before)
{
	struct connection *k;
	struct call *c = new_call();
	int fds[2];

	k = open_watched(fds);
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

		k = open_watched(fds);
		watch_answering(watch, k, c);
		close(fds[1]);
		if (turn % 3)
			usleep((useconds_t)turn);
		watch_idle(watch, k);
		watch_close(watch, k);
		close(fds[0]);
		k = open_watched(again);
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

/* Whether the client sees within `ms` milliseconds that the watch thread has cut its connection. */
static bool is_cut(int client, int ms)
{
	struct pollfd p = {.fd = client, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* A client shuts down its half behind a request without a call: the server has a second to answer it, wherever in the
 * watch thread's own second this happens. */
TEST(leaving)
{
	enum { N = 10 };
	struct connection *k[N];
	uint64_t left_ns[N];
	int fds[N][2], seen = 0, early = 0;

	for (int i = 0; i < N; i++) {
		k[i] = open_watched(fds[i]);
		left_ns[i] = clock_now_ns();
		shutdown(fds[i][1], SHUT_WR);
		usleep(110000);
		for (int j = 0; j <= i; j++) {
			bool cut = is_cut(fds[j][1], 0);

			if (clock_now_ns() - left_ns[j] < 1000000000) {
				seen++;
				early += cut;
			}
		}
	}
	ok(seen >= N && !early,
	   "a client that has shut down its half may read a second long (%d of %d)", early, seen);
	for (int i = 0; i < N; i++) {
		ok(is_cut(fds[i][1], 4000), "then its connection is cut");
		close_watched(k[i], NULL, fds[i]);
	}
}

/* Answers that are not read may take 1000 bytes together. Beyond that the watch thread ends answers until the rest fits,
 * each time the one that counts most: bytes times seconds. Answer 0 has not begun, so its bytes count once: it is
 * ended only when it alone takes more, and then its client gets an error. */
TEST(unread)
{
	enum { N = 4 };
	static const struct {
		size_t bytes;
		uint64_t waits_s;
	} rows[N] = {{600, 0}, {500, 10}, {300, 20}, {200, 12}};
	const uint64_t now = clock_now_ns();
	struct connection *k[N];
	struct call *c[N];
	struct call_news news = {0};
	struct buf tokens = {0};
	int fds[N][2];

	for (int i = 0; i < N; i++) {
		k[i] = open_watched(fds[i]);
		c[i] = new_call();
		call_accept(c[i]);
		call_keep(c[i], i ? 0 : rows[i].bytes);
		if (rows[i].waits_s)
			atomic_store(&c[i]->waits_ns, now - rows[i].waits_s * 1000000000ull);
		watch_answering(watch, k[i], c[i]);
	}
	for (int i = 1; i < N; i++)
		call_keep(c[i], rows[i].bytes);
	is_int((long long)atomic_load(&server.metrics.unread_bytes), 1600, "all are counted");
	ok(is_cut(fds[2][1], 3000), "300 bytes for 20 s: the client is cut off");
	ok(is_cut(fds[1][1], 3000), "then 500 bytes for 10 s");
	ok(!is_cut(fds[3][1], 1200) && !is_cut(fds[0][1], 0), "the others may stay");
	is_int((long long)atomic_load(&server.metrics.unread), 2, "/metrics says so");
	call_keep(c[3], 0);
	call_keep(c[0], 1001);
	for (int i = 0; i < 300 && !news.failure.code; i++) {
		call_take(c[0], &tokens, no_resume, &news);
		usleep(10000);
	}
	is_int(news.failure.code, PROBLEM_UNREAD, "one that has not begun gets an error");
	ok(aborted_after(c[0], 2000) >= 0, "and the engine computes no more of it");
	ok(!is_cut(fds[0][1], 0), "on its connection");
	for (int i = 0; i < N; i++)
		close_watched(k[i], c[i], fds[i]);
	buf_release(&tokens);
	is_int((long long)atomic_load(&server.metrics.unread_bytes), 0, "nothing is left");
}

/* Answers that take too much memory when nothing is left to compute. Their clients get an error if the answer has not
 * begun. Only a stream whose end http has taken is cut off. */
TEST(unread_at_the_end)
{
	enum { N = 4, ANSWERED = 1, STREAM = 2, TAKEN = 3 };
	struct connection *k[N];
	struct call *c[N];
	struct buf tokens = {0};
	struct err e = {0};
	int fds[N][2];

	for (int i = 0; i < N; i++) {
		struct call_news news;
		struct buf body;

		k[i] = open_watched(fds[i]);
		c[i] = new_call();
		c[i]->text.ask.stream = i >= STREAM;
		if (i == ANSWERED) {
			buf_init(&body, 100);
			buf_puts(&body, "an answer");
			call_reply(c[i], &body);
		} else {
			call_accept(c[i]);
			call_end(c[i]);
		}
		if (i == TAKEN)
			call_take(c[i], &tokens, no_resume, &news);
		watch_answering(watch, k[i], c[i]);
		call_keep(c[i], 1001);
	}
	for (int i = 0; i < N - 1; i++) {
		struct call_news news;

		ok(aborted_after(c[i], 3000) >= 0 && !is_cut(fds[i][1], 0),
		   "an answer is ended, its connection is not");
		call_take(c[i], &tokens, no_resume, &news);
		is_int(news.failure.code, PROBLEM_UNREAD, "its client gets an error");
		is_int(news.stage, i == ANSWERED ? CALL_ANSWERED : CALL_ENDED,
		       "in the stage that it had");
		ok(!call_begin_answer(c[i], &e) && e.code == PROBLEM_UNREAD,
		   "also if http had begun to make the answer");
	}
	ok(is_cut(fds[TAKEN][1], 3000), "a stream that is at its end is cut off");
	for (int i = 0; i < N; i++)
		close_watched(k[i], c[i], fds[i]);
	buf_release(&tokens);
}

/* When eight connections of an address wait, each new one cuts the one that has waited longest. A connection waits for
 * the rest of a request, or for a client that does not read its answer. */
TEST(share)
{
	enum { SHARE = 8, N = SHARE + 4 };
	struct call *c[] = {new_call(), new_call()};
	struct connection *k[N];
	int fds[N][2], wrong = 0;

	watch_limit(watch, false, 8 * SHARE, &(struct networks){0});
	for (int i = 0; i < N; i++) {
		k[i] = open_watched(fds[i]);
		if (i < 2)
			watch_answering(watch, k[i], i ? c[0] : NULL);
		if (i == 1)
			call_waits(c[0], true);
		if (i == 3)
			watch_answering(watch, k[i], c[1]);
		/* Number 3 does not wait, so the eighth that waits is number 8. Number 9 is the first to cut one. */
		for (int j = 0; j <= i; j++)
			wrong += is_cut(fds[j][1], 0) != (j < i - SHARE);
	}
	is_int(wrong, 0,
	       "the one that has waited longest is closed, also when its answer is not read");
	ok(!is_cut(fds[3][1], 0), "one whose answer is not made does not wait");
	for (int i = 0; i < N; i++) {
		watch_idle(watch, k[i]);
		close_watched(k[i], NULL, fds[i]);
	}
	call_unref(c[0]);
	call_unref(c[1]);
	watch_limit(watch, false, 1000, &(struct networks){0});
}

/* The few connections of --admin-port make room for one another, and never for one of the main port. */
TEST(admin_port)
{
	enum { MOST = 32, FREE = MOST / 8, N = MOST + 8 };
	struct connection *k[N], *main_port[2];
	int fds[N][2], main_fds[2][2], wrong = 0;

	watch_limit(watch, true, MOST, &(struct networks){0});
	main_port[0] = open_watched(main_fds[0]);
	for (int i = 0; i < N; i++) {
		struct sockaddr_in from = {.sin_family = AF_INET,
					   .sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)i)};

		k[i] = open_at(true, (struct sockaddr *)&from, fds[i]);
		/* libmicrohttpd closes one that was cut. */
		if (i >= MOST - FREE) {
			wrong += !is_cut(fds[i - (MOST - FREE)][1], 0);
			close_watched(k[i - (MOST - FREE)], NULL, fds[i - (MOST - FREE)]);
		}
		wrong += is_cut(fds[i][1], 0);
	}
	is_int(wrong, 0, "--admin-port: each new connection ends the one that has waited longest");
	main_port[1] = open_watched(main_fds[1]);
	ok(!is_cut(main_fds[0][1], 0) && !is_cut(main_fds[1][1], 0) && !is_cut(fds[N - 1][1], 0),
	   "and none of the other port");
	for (int i = N - (MOST - FREE); i < N; i++)
		close_watched(k[i], NULL, fds[i]);
	for (int i = 0; i < 2; i++)
		close_watched(main_port[i], NULL, main_fds[i]);
}

/* Connections from 2001:db8:0:NET::i wait; an address may have eight. Returns how many of twelve were cut. */
static int cut_of_networks(bool one_network)
{
	enum { SHARE = 8, N = 12 };
	struct connection *k[N];
	int fds[N][2], n = 0;

	watch_limit(watch, false, 8 * SHARE, &(struct networks){0});
	for (int i = 0; i < N; i++) {
		struct sockaddr_in6 from = {.sin6_family = AF_INET6,
					    .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8}};

		from.sin6_addr.s6_addr[7] = one_network ? 0 : (uint8_t)i;
		from.sin6_addr.s6_addr[15] = (uint8_t)i;
		k[i] = open_at(false, (struct sockaddr *)&from, fds[i]);
	}
	for (int i = 0; i < N; i++) {
		n += is_cut(fds[i][1], 0);
		close_watched(k[i], NULL, fds[i]);
	}
	watch_limit(watch, false, 1000, &(struct networks){0});
	return n;
}

TEST(ipv6)
{
	is_int(cut_of_networks(true), 4,
	       "an IPv6 client cannot have more by changing its last 64 bits");
	is_int(cut_of_networks(false), 0, "other networks are other clients");
}

/* An upload that goes on has not waited: the connection behind it gives way. */
TEST(uploads)
{
	enum { SHARE = 8 };
	struct connection *k[SHARE + 1];
	int fds[SHARE + 1][2];

	watch_limit(watch, false, 8 * SHARE, &(struct networks){0});
	for (int i = 0; i < SHARE; i++) {
		k[i] = open_watched(fds[i]);
		watch_receiving(watch, k[i], 0);
	}
	watch_receiving(watch, k[0], 1000);
	watch_receiving(watch, k[1], 64 << 10);
	watch_receiving(watch, k[0], 64 << 10);
	k[SHARE] = open_watched(fds[SHARE]);
	ok(!is_cut(fds[0][1], 0) && !is_cut(fds[1][1], 0) && is_cut(fds[2][1], 0),
	   "an upload that goes on does not give way");
	for (int i = 0; i <= SHARE; i++)
		close_watched(k[i], NULL, fds[i]);
	watch_limit(watch, false, 1000, &(struct networks){0});
}

/* Many small answers of one client, of which three have to be ended, against a larger one of another. */
TEST(unread_of_many)
{
	enum { N = 40 };
	const uint64_t before = atomic_load(&server.metrics.unread);
	struct connection *k[N + 1];
	struct call *c[N + 1];
	int fds[N + 1][2], n_cut = 0;

	for (int i = 0; i <= N; i++) {
		k[i] = open_watched(fds[i]);
		c[i] = new_call();
		c[i]->owner = i < N ? 1 : 2;
		call_accept(c[i]);
		watch_answering(watch, k[i], c[i]);
		call_keep(c[i], i < N ? 20 : 250);
	}
	for (int i = 0; i < 300 && atomic_load(&server.metrics.unread) < before + 3; i++)
		usleep(10000);
	ok(!is_cut(fds[N][1], 0) && !atomic_load(&c[N]->aborted),
	   "one answer stays where another client has many");
	for (int i = 0; i < N; i++)
		n_cut += aborted_after(c[i], i < 3 ? 2000 : 0) >= 0;
	is_int(n_cut, 3, "small ones are ended, which make room");
	for (int i = 0; i <= N; i++) {
		call_keep(c[i], 0);
		close_watched(k[i], c[i], fds[i]);
	}
}

/* A large body must bring 64 KiB in each 2 seconds, while other large ones are refused. Fewer bytes win no time. */
TEST(rate)
{
	enum { PIECE = 64 << 10, STEPS = 45 };
	struct connection *slow, *steady;
	int fds[2][2];

	slow = open_watched(fds[0]);
	steady = open_watched(fds[1]);
	for (uint64_t i = 0; i < STEPS; i++) {
		watch_receiving(watch, slow, PIECE + i);
		watch_receiving(watch, steady, PIECE * (i + 1));
		atomic_store(&server.bodies_refused, true);
		usleep(100000);
	}
	ok(is_cut(fds[0][1], 0), "a large body that gets a byte now and then is cut");
	ok(!is_cut(fds[1][1], 0), "one that gets 64 KiB every 0.1 seconds is not");
	close_watched(slow, NULL, fds[0]);
	close_watched(steady, NULL, fds[1]);
}

/* A watch of another server, whose state is not that of a server without a model. */
TEST(stalled)
{
	enum { N = 5 };
	static const uint64_t waits_s[N] = {0, 2, 11, 0, 11};
	static char block[1 << 10];
	static struct server other;
	const uint64_t now = clock_now_ns();
	struct watch *first = watch;
	struct connection *k[N];
	struct call *c[N];
	struct err e = {0};
	int fds[N][2];

	other.options = server.options;
	check(lifecycle_new(&other.lifecycle, &e) == 0);
	lifecycle_loaded(other.lifecycle);
	check(watch_start(&watch, &other, &e) == 0);
	watch_limit(watch, false, 1000, &(struct networks){0});
	for (int i = 0; i < N; i++) {
		k[i] = open_watched(fds[i]);
		c[i] = new_call();
		if (waits_s[i])
			atomic_store(&c[i]->waits_ns, now - waits_s[i] * 1000000000ull);
		watch_answering(watch, k[i], c[i]);
	}
	/* The last one's client reads what was sent before, slowly. */
	while (send(fds[4][0], block, sizeof(block), MSG_DONTWAIT) > 0)
		;
	call_keep(c[3], other.options.answer_memory + 1);
	ok(aborted_after(c[3], 3000) >= 0, "a large answer is ended by an error");
	call_keep(c[3], 0);
	atomic_store(&c[3]->waits_ns, now - 11 * 1000000000ull);
	ok(!is_cut(fds[2][1], 1200), "a client that reads nothing is left alone");
	check(recv(fds[4][1], block, sizeof(block), 0) > 0);
	usleep(1100000);
	atomic_store(&c[1]->waits_ns, clock_now_ns() - waits_s[1] * 1000000000ull);
	lifecycle_drain(other.lifecycle);
	ok(is_cut(fds[2][1], 3000), "while the server drains it is cut off after 10 s");
	ok(is_cut(fds[3][1], 3000), "also one that does not read the error");
	ok(!is_cut(fds[1][1], 1200), "after 2 s it is not");
	ok(!is_cut(fds[0][1], 0), "one whose answer is not ready never is");
	ok(send(fds[4][0], block, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || errno == EAGAIN,
	   "nor one that still reads what was sent before");
	for (int i = 0; i < N; i++)
		close_watched(k[i], c[i], fds[i]);
	watch_free(watch);
	lifecycle_free(other.lifecycle);
	watch = first;
}

static void count(void *n)
{
	++*(_Atomic int *)n;
}

/* Milliseconds until the count is `want`; -1: not within a second. */
static int counted_after(const _Atomic int *n, int want)
{
	for (int ms = 0; ms < 1000; ms++, usleep(1000))
		if (atomic_load(n) == want)
			return ms;
	return -1;
}

/* A handshake that needs bytes is suspended at once, and resumed when they come, or when none will come. */
TEST(handshakes)
{
	struct watch *first = watch;
	_Atomic int n = 0; /* calls of suspend and resume, which alternate */
	struct connection *k;
	struct err e = {0};
	char byte;
	int fds[2], others[2];

	check(watch_start(&watch, &server, &e) == 0);
	watch_limit(watch, false, 1000, &(struct networks){0});
	k = open_watched(fds);
	watch_await(watch, k, count, count, &n);
	is_int(atomic_load(&n), 1, "suspended");
	usleep(50000);
	is_int(atomic_load(&n), 1, "and not resumed before bytes come");
	check(write(fds[1], "x", 1) == 1);
	ok(counted_after(&n, 2) >= 0, "but then");
	watch_await(watch, k, count, count, &n);
	ok(counted_after(&n, 4) >= 0, "at once, if they are there already");
	check(read(fds[0], &byte, 1) == 1);
	watch_await(watch, k, count, count, &n);
	check(shutdown(fds[1], SHUT_WR) == 0);
	ok(counted_after(&n, 6) >= 0, "also if the client leaves");
	close_watched(k, NULL, fds);
	/* The kernel watches the socket that the descriptor stood for, so that of the other socket cannot be changed. */
	k = open_watched(fds);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, others) == 0);
	check(dup2(others[0], fds[0]) == fds[0]);
	watch_await(watch, k, count, count, &n);
	ok(atomic_load(&n) == 6 && read(others[1], &byte, 1) == 0,
	   "one that cannot be watched is cut");
	close(others[0]);
	close(others[1]);
	close_watched(k, NULL, fds);
	k = open_watched(fds);
	watch_await(watch, k, count, count, &n);
	watch_close_calls(watch);
	is_int(atomic_load(&n), 8, "and when the server ends");
	watch_await(watch, k, count, count, &n);
	is_int(atomic_load(&n), 8, "after which none is suspended any more");
	close_watched(k, NULL, fds);
	watch_free(watch);
	watch = first;
}

/* Turns of the handshakes of clients, whose connections note that they were resumed. */
struct client {
	struct connection *connection;
	int fds[2];
	_Atomic bool asleep;
};

static void fall_asleep(void *client)
{
	atomic_store(&((struct client *)client)->asleep, true);
}

static void wake_up(void *client)
{
	atomic_store(&((struct client *)client)->asleep, false);
}

static enum watch_turn admit(struct client *c)
{
	return watch_admit(watch, c->connection, fall_asleep, wake_up, c);
}

/* Returns which of the clients is awake within a minute; -1: none. */
static int first_awake(struct client *c, int n)
{
	const uint64_t begin = clock_now_ns();

	while (clock_now_ns() - begin < UINT64_C(60000000000)) {
		for (int i = 0; i < n; i++)
			if (!atomic_load(&c[i].asleep))
				return i;
		usleep(100);
	}
	return -1;
}

TEST(turns)
{
	enum { N = 30 };
	struct watch *first = watch;
	struct client c[N] = {0};
	struct sockaddr_in from = {.sin_family = AF_INET};
	struct err e = {0};
	int woken[3];
	bool held;

	check(watch_start(&watch, &server, &e) == 0);
	watch_limit(watch, false, 1000, &(struct networks){0});
	for (int i = 0; i < N; i++) {
		from.sin_addr.s_addr = htonl(i < N - 1 ? 0x0a000001 : 0x0a000002);
		c[i].connection = open_at(false, (struct sockaddr *)&from, c[i].fds);
	}
	is_int(admit(&c[0]), WATCH_GO, "the first handshake has its turn at once");
	/* The next one costs nothing, and is thought to cost 20 ms. */
	watch_spent(watch, c[0].connection, 20000000);
	do {
		while (admit(&c[1]) == WATCH_HELD)
			check(first_awake(&c[1], 1) == 0);
		held = admit(&c[2]) == WATCH_HELD;
		if (!held) /* the machine was busy for 40 ms */
			watch_spent(watch, c[2].connection, 20000000);
		watch_spent(watch, c[1].connection, 0);
	} while (!held);
	ok(!atomic_load(&c[2].asleep), "one behind it goes on with its end");
	check(admit(&c[2]) == WATCH_GO);
	for (int i = 0; i < 5; i++) /* so that there is no credit for two seconds */
		watch_spent(watch, c[2].connection, 200000000);
	atomic_store(&c[0].asleep, true);
	for (int i = 1; i < N; i++)
		check(admit(&c[i]) == WATCH_HELD && atomic_load(&c[i].asleep));
	ok_all("all wait behind a long one");
	for (int i = 0; i < 3; i++) {
		woken[i] = first_awake(c, N);
		if (woken[i] < 0)
			break;
		check(admit(&c[woken[i]]) == WATCH_GO);
		watch_spent(watch, c[woken[i]].connection, 50000000);
		atomic_store(&c[woken[i]].asleep, true);
	}
	ok_all("those that are resumed have their turn");
	is_int(woken[0], N - 1, "first that of another client, which came last");
	ok(woken[1] == 1 && woken[2] == 2, "then those of the first one, as they came (%d, %d)",
	   woken[1], woken[2]);
	close(c[N - 2].fds[1]);
	for (uint64_t begin = clock_now_ns();
	     atomic_load(&c[N - 2].asleep) && clock_now_ns() - begin < UINT64_C(60000000000);)
		usleep(100);
	ok(!atomic_load(&c[N - 2].asleep), "one whose client leaves is resumed");
	watch_close_calls(watch);
	for (int i = 3; i < N - 1; i++)
		check(!atomic_load(&c[i].asleep) && admit(&c[i]) == WATCH_GONE);
	ok_all("at the end all are, and none goes on");
	for (int i = 0; i < N; i++) {
		watch_close(watch, c[i].connection);
		close(c[i].fds[0]);
		if (i != N - 2)
			close(c[i].fds[1]);
	}
	watch_free(watch);
	watch = first;
}

int main(void)
{
	struct err e = {0};

	log_set_level(LOG_LEVEL_ERROR);
	metrics_init(&server.metrics);
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	server.options = (struct options){.model = "/nowhere",
					  .max_num_seqs = 4,
					  .max_queued_requests = 100,
					  .page_size = 64,
					  .max_batched_tokens = 64,
					  .answer_memory = 1000};
	check(loop_start(&server, &e) == 0);
	check(watch_start(&watch, &server, &e) == 0);
	watch_limit(watch, false, 1000, &(struct networks){0});
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
