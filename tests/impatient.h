/* A pace (base/pace.h) that gives up. */
#pragma once

#include "base/pace.h"

/* *arg is an int: how many further questions are answered with "go on". Counts it down; gives up when it is 0. */
static bool impatient(void *arg)
{
	int *left = arg;

	return !(*left)--;
}
