/* daemon/http/handshakes.c: the time that handshakes of TLS may take. */
#include "daemon/http/handshakes.h"

#include "tests/random.h"
#include "tests/tap.h"

#define MS UINT64_C(1000000)

static struct handshakes h;

/* A turn that begins now and costs so much. Returns when it has ended. */
static uint64_t turn(size_t share, uint64_t now, uint64_t cost)
{
	const uint64_t begun = handshakes_begin(&h, share);

	handshakes_end(&h, share, begun, cost);
	return now + cost;
}

TEST(credit)
{
	uint64_t now = 1000 * MS, wait;
	int n = 0;

	handshakes_init(&h, now);
	while (!handshakes_wait(&h, now) && n < 100) {
		(void)turn(1, now, MS);
		n++;
	}
	is_int(n, 20, "after a pause twenty of 1 ms are served at once");
	wait = handshakes_wait(&h, now);
	ok(wait > 0 && wait <= 2 * MS, "the next one waits for %llu ns", (unsigned long long)wait);
	ok(handshakes_wait(&h, now + wait - 2) && !handshakes_wait(&h, now + wait), "no longer");
	now += wait;
	(void)turn(1, now, 50 * MS);
	wait = handshakes_wait(&h, now);
	ok(wait >= 98 * MS && wait <= 102 * MS, "one of 50 ms is paid back by 100 ms (%llu)",
	   (unsigned long long)wait);
	now += 3600 * 1000 * MS;
	for (n = 0; !handshakes_wait(&h, now) && n < 100; n++)
		(void)turn(1, now, MS);
	is_int(n, 20, "an hour leaves no more credit than that");
}

/* Whatever turns cost, and whatever was thought that they would, all of them have half of the time. */
TEST(half)
{
	static const uint64_t most[] = {MS / 10, MS, 14 * MS, 190 * MS};

	for (size_t i = 0; i < ARRAY_SIZE(most); i++) {
		uint64_t begin = 5000 * MS, now = begin, took = 0, wait, largest = 0;

		handshakes_init(&h, now);
		for (int k = 0; k < 20000; k++) {
			const uint64_t cost = random_below(most[i]);

			wait = handshakes_wait(&h, now);
			check(wait < 3 * most[i] + 100 * MS);
			now += wait;
			check(handshakes_wait(&h, now) == 0);
			now = turn(random_below(10), now, cost);
			took += cost;
			largest = MAX(largest, cost);
		}
		check(took <= (now - begin) / 2 + 20 * MS + largest);
		ok_all("turns of up to %.1f ms take half of the time", (double)most[i] / 1e6);
		ok(took > (now - begin) * 2 / 5, "and not much less (%.0f %%)",
		   100 * (double)took / (double)(now - begin));
	}
}

/* Of several turns that are given at once none has ended yet. */
TEST(under_way)
{
	uint64_t now = 9000 * MS, begun[100];
	int n = 0;

	handshakes_init(&h, now);
	now = turn(1, now, 10 * MS) + 1000 * MS;
	while (!handshakes_wait(&h, now) && n < 100)
		begun[n++] = handshakes_begin(&h, 1);
	is_int(n, 2, "two of 10 ms are begun, as far as the credit goes");
	while (n)
		handshakes_end(&h, 1, begun[--n], 0);
	ok(!handshakes_wait(&h, now), "those that cost nothing take nothing");
	(void)turn(1, now, 100000 * MS);
	ok(handshakes_wait(&h, now) <= 400 * MS, "a process that stood still pays for 200 ms");
	now += 100000 * MS;
	check(!handshakes_wait(&h, now));
	begun[0] = handshakes_begin(&h, 1);
	ok(handshakes_wait(&h, now) > 0, "and has one turn at once");
	handshakes_end(&h, 1, begun[0], MS);
	ok(!handshakes_wait(&h, now), "which takes no more than it costs");
}

TEST(shares)
{
	handshakes_init(&h, 0);
	(void)turn(3, 0, 7 * MS);
	(void)turn(3, 0, 5 * MS);
	(void)turn(4, 0, MS);
	is_int((long long)h.had_ns[3], (long long)(12 * MS), "what a client has had is counted");
	is_int((long long)h.had_ns[4], (long long)MS, "for each");
	handshakes_forget(&h);
	is_int((long long)h.had_ns[3], (long long)(6 * MS), "and counts less with time");
	handshakes_end(&h, 4, MS, 0);
	is_int((long long)h.had_ns[4], 0, "never below nothing");
}

TEST_MAIN()
