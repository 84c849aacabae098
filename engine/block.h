/* Blocks of host memory, for copies (engine.h) and for step tables and results (runner.c). A driver copies the bytes of
 * a block while the host goes on, so the system must not page the block out. Inside engine/ only. */
#pragma once

#include "engine/device.h"
#include "engine/engine.h"

/* Makes a block for the device, in memory that the device accesses directly. -ENOMEM. engine_block_new (engine.h) calls
 * it. */
int block_new(const struct device *d, uint64_t bytes, struct engine_block **ret,
	      struct err *e) MUST_CHECK;
