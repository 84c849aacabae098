/* The share of a device's memory that a test's engine may take, so that several tests run on one GPU at a time. */
#pragma once

#include <stdlib.h>

/* Returns TIGON_TEST_MEMORY_SHARE as a number; 0 (the engine's own default) if it is not set. */
static inline double test_memory_share(void)
{
	const char *share = getenv("TIGON_TEST_MEMORY_SHARE");

	return share ? strtod(share, NULL) : 0;
}
