/* Long work that leaves the processor to other threads when they want it.
 *
 * A lower priority (nice) would not do. A thread often holds a lock of the system for a moment, such as that of the address
 * space when it uses new memory. With a low priority it may be kept from the processor just then, and every thread that
 * needs this lock waits for it: streams stood still for 200 ms. So the work pauses by itself, while it holds nothing. */
#pragma once

#include <stdint.h>

/* Of one thread, in nanoseconds. */
struct polite {
	/* the time, and the thread's time on processors, when this interval of its work began */
	uint64_t wall_ns, cpu_ns;
	/* until this time others are thought to want the processor */
	uint64_t until_ns;
};

/* To be called before the work. */
void polite_begin(struct polite *p);

/* To be called often within the work, better than every millisecond. If other threads wait for a processor, sleeps until
 * they had nine times as much of it as this thread. */
void polite_pause(struct polite *p);
