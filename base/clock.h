/* Clocks, in nanoseconds. The rooms scheduler, prefix_cache and protocol may not include this file: if a function there
 * needs the time, the time is a parameter. In these rooms only strftime_now of chat templates reads a clock itself. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(struct timespec t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

static inline uint64_t clock_read_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return clock_ns(t);
}

/* The monotonic clock. */
static inline uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}
