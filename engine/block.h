/* Host memory for copies (engine.h): what a driver moves while the host goes on has to stay where it is. Inside engine/
 * only. */
#ifndef ENGINE_BLOCK_H
#define ENGINE_BLOCK_H

#include "engine/device.h"
#include "engine/engine.h"

int block_new(const struct device *d, uint64_t bytes, struct engine_block **ret,
	      struct err *e) MUST_CHECK;

#endif
