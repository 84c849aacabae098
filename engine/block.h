/* Host memory for copies (engine.h) and for step tables and results (runner.c). A driver copies its bytes while the
 * host goes on, so the system must not page it out. Inside engine/ only. */
#pragma once

#include "engine/device.h"
#include "engine/engine.h"

/* Does the work of engine_block_new. */
int block_new(const struct device *d, uint64_t bytes, struct engine_block **ret,
	      struct err *e) MUST_CHECK;
