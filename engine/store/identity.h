/* The identity: a hash of everything that decides the bits of pages and states (model, device, kernels, page size).
 * engine/cache_identity.h computes it. For the store it is a number: its first 8 bytes name a directory (dir.h), and a
 * file with another identity than that of this process is never handed out. */
#pragma once

#include <stdint.h>

struct cache_identity {
	uint8_t bytes[32];
};
