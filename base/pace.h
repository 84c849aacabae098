/* A long computation calls pace_gives_up again and again, and ends when the result is not wanted any more. give_up,
 * which the owner of the computation provides, may also wait, so that other threads have the processor. So rooms
 * without a clock and threads need no other means of ending early or of waiting. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pace {
	bool (*give_up)(void *arg); /* true: the computation ends with -ECANCELED */
	void *arg;
};

/* Returns whether the computation has to end; false if p is NULL. */
static inline bool pace_gives_up(const struct pace *p)
{
	return p && p->give_up(p->arg);
}
