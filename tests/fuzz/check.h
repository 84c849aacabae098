/* Ends a fuzzer's run if a condition does not hold. abort, unlike assert, also works with NDEBUG. */
#pragma once

#include <stdlib.h>

#define CHECK(x)                 \
	do {                     \
		if (!(x))        \
			abort(); \
	} while (0)
