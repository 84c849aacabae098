/* A pace (base/pace.h) that gives up. */
#pragma once

#include "base/pace.h"

/* *arg is an int: how many further questions get the answer "go on". Counts *arg down, and gives up when it is 0. */
static inline bool impatient(void *arg)
{
	int *left = arg;

	return !(*left)--;
}
