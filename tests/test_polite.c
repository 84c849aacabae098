/* daemon/request/polite.c: long work beside a thread that wants the same processor all the time. */
#include "daemon/request/polite.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/tap.h"

enum { WALL_MS = 1000 };

static _Atomic bool over;

static void *spin(void *arg)
{
	while (!atomic_load(&over))
		;
	return NULL;
}

/* Works for WALL_MS, or a pause more: *ret_wall_ns. Returns how long this thread ran on the processor within that. */
static uint64_t work(uint64_t *ret_wall_ns)
{
	uint64_t begin = clock_now_ns(), end = begin + WALL_MS * 1000000ull;
	uint64_t before = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	struct polite p = {0};

	polite_begin(&p);
	while (clock_now_ns() < end)
		polite_pause(&p);
	*ret_wall_ns = clock_now_ns() - begin;
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - before;
}

TEST(shared_processor)
{
	pthread_t thread;
	uint64_t worked, wall;
	cpu_set_t set;
	int first = 0;

	check(sched_getaffinity(0, sizeof(set), &set) == 0);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	check(sched_setaffinity(0, sizeof(set), &set) == 0);
	check(pthread_create(&thread, NULL, spin, NULL) == 0);
	worked = work(&wall);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	/* A third of the other thread's time, if no further program wants this processor. Those that do make no difference
	 * to the work, but leave less for the other thread. */
	ok(worked * 4 < wall,
	   "work beside another thread on one processor has a small share (%.0f of %.0f ms)",
	   (double)worked / 1e6, (double)wall / 1e6);
	ok(worked > 0, "but it goes on");
}

TEST_MAIN()
