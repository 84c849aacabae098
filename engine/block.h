/* Blocks of host memory, for copies (engine.h) and for step tables and results (runner.c). A driver copies the bytes of
 * a block while the host goes on, so the system must not page the block out. Internal to engine/. */
#pragma once

#include "engine/device.h"
#include "engine/engine.h"

/* Makes a block for the device, in memory that the device accesses directly. *ret is new. -ENOMEM. Does the work of
 * engine_block_new (engine.h). */
int block_new(const struct device *d, uint64_t bytes, struct engine_block **ret,
	      struct err *e) MUST_CHECK;
