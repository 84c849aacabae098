/* A long computation calls pace_gives_up again and again, and ends when its caller wants no result any more. The caller
 * may also wait within the call, so that other threads have the processor. For rooms without a clock and threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pace {
	bool (*give_up)(void *arg); /* true: the computation ends with -ECANCELED */
	void *arg;
};

/* Whether the computation has to end. NULL: never. */
static inline bool pace_gives_up(const struct pace *p)
{
	return p && p->give_up(p->arg);
}
