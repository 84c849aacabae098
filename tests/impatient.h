/* A pace (base/pace.h) that gives up. */
#pragma once

#include "base/pace.h"

/* Takes one from *arg, an int: the questions that are answered with "go on". Gives up when none is left. */
static bool impatient(void *arg)
{
	int *left = arg;

	return !(*left)--;
}
