/* Long work that leaves the processor to other threads when they want it.
 *
 * A lower priority (nice) would not do. A thread often holds a lock of the system for a moment: that of the address
 * space, for example, when it uses new memory. A thread of low priority may be kept from the processor just then, and
 * every other thread that needs the lock waits for it: streams stood still for 200 ms. So the work pauses by itself,
 * at places where it holds no lock. */
#pragma once

#include <stdint.h>

/* The state of one thread. Times are in nanoseconds. */
struct polite {
	/* when the present interval of work began: the time, and the time that the thread had spent on processors */
	uint64_t wall_ns, cpu_ns;
	/* until this time others are thought to want the processor */
	uint64_t until_ns;
};

/* To be called before each piece of work of the thread; p is zeros before the first. Signs that others want the
 * processor hold on from one piece to the next. */
void polite_begin(struct polite *p);

/* To be called often within the work, more than once a millisecond. If other threads seem to want the processor, sleeps
 * nine times as long as this thread has used it since the last look at both clocks, but at most 200 ms. */
void polite_pause(struct polite *p);
