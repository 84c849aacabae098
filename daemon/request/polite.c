#include "daemon/request/polite.h"

#include "base/clock.h"
#include "base/macros.h"

#define MS UINT64_C(1000000)

static const uint64_t look_ns = MS; /* from one look at the clocks to the next */
static const uint64_t wanted_ns =
	100 * MS; /* for so long others are thought to want the processor */
static const uint64_t longest_ns = 200 * MS; /* of a pause */

enum { SHARE = 9 }; /* a pause is so many times as long as the work before it */

static void look(struct polite *p)
{
	p->wall_ns = clock_now_ns();
	p->cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

void polite_begin(struct polite *p)
{
	*p = (struct polite){0};
	look(p);
}

void polite_pause(struct polite *p)
{
	uint64_t now = clock_now_ns(), wall = now - p->wall_ns, used;
	struct timespec pause;

	if (wall < look_ns)
		return;
	used = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - p->cpu_ns;
	/* The thread was ready to run all the time. So it had to wait for a processor, which others use. */
	if (wall > used + used / 4)
		p->until_ns = now + wanted_ns;
	if (now < p->until_ns) {
		pause = clock_timespec(MIN(SHARE * used, longest_ns));
		nanosleep(&pause, NULL);
	}
	look(p);
}
