/* daemon/request/polite.c: long work beside a thread that wants the same processor all the time. */
#include "daemon/request/polite.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/tap.h"

enum { WALL_MS = 1000 };

static _Atomic bool over;
static _Atomic uint64_t spun_ns;

static void *spin(void *arg)
{
	while (!atomic_load(&over))
		;
	atomic_store(&spun_ns, clock_read_ns(CLOCK_THREAD_CPUTIME_ID));
	return NULL;
}

/* Works for WALL_MS. Returns how long this thread ran on the processor within that, in ns. */
static uint64_t work(void)
{
	uint64_t end = clock_now_ns() + WALL_MS * 1000000ull;
	uint64_t before = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	struct polite p;

	polite_begin(&p);
	while (clock_now_ns() < end)
		polite_pause(&p);
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - before;
}

TEST(shared_processor)
{
	pthread_t thread;
	uint64_t worked;
	cpu_set_t set;
	int first = 0;

	check(sched_getaffinity(0, sizeof(set), &set) == 0);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	check(sched_setaffinity(0, sizeof(set), &set) == 0);
	check(pthread_create(&thread, NULL, spin, NULL) == 0);
	worked = work();
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	ok(worked * 3 < spun_ns,
	   "work beside another thread on one processor has a small share (%.0f ms, the other %.0f)",
	   (double)worked / 1e6, (double)spun_ns / 1e6);
	ok(worked > 0, "but it goes on");
}

TEST_MAIN()
