#include "daemon/request/polite.h"

#include "base/clock.h"
#include "base/macros.h"

#define MS UINT64_C(1000000)

static const uint64_t look_ns = MS; /* from one look at both clocks to the next, at least */
/* after a sign that others want the processor, they are thought to want it for so long */
static const uint64_t wanted_ns = 100 * MS;
static const uint64_t longest_ns = 200 * MS; /* the longest pause */

enum { SHARE = 9 }; /* a pause is so many times as long as the work before it */

/* Begins an interval: reads both clocks. The system often takes the processor from a thread at the end of a system
 * call, such as the one that reads the thread's clock. That clock is read last, so the time until the thread has the
 * processor again counts in the interval that begins here. */
static void begin_interval(struct polite *p)
{
	p->wall_ns = clock_now_ns();
	p->cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

void polite_begin(struct polite *p)
{
	begin_interval(p);
}

void polite_pause(struct polite *p)
{
	uint64_t now, cpu, wall, used;
	struct timespec pause;

	if (clock_now_ns() - p->wall_ns < look_ns)
		return;
	/* Here the thread's clock is read first, so that such a time counts in the interval that ends here. */
	cpu = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	now = clock_now_ns();
	wall = now - p->wall_ns;
	used = cpu - p->cpu_ns;
	p->wall_ns = now;
	p->cpu_ns = cpu;
	/* The thread did not sleep in this interval. So for the time in which it did not run it waited for a processor,
	 * and other threads used the processors. */
	if (wall > used + used / 4)
		p->until_ns = now + wanted_ns;
	if (now >= p->until_ns)
		return;
	pause = clock_timespec(MIN(SHARE * used, longest_ns));
	nanosleep(&pause, NULL);
	begin_interval(p);
}
