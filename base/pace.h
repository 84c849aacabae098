/* By this a long work asks its caller, again and again, whether to go on. The caller may also let it wait, so that others
 * have the processor meanwhile. For rooms that know neither a clock nor threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pace {
	bool (*give_up)(void *arg); /* true: the work ends with -ECANCELED */
	void *arg;
};

/* Whether the work has to end. NULL: never. */
static inline bool pace_gives_up(const struct pace *p)
{
	return p && p->give_up(p->arg);
}
