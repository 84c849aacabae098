/* The identity: a hash of everything that decides the bits of pages and states (model, device, kernels, page size).
 * engine/cache_identity.h computes it; the store only compares it, and hands out only items that were written under
 * its own identity. */
#pragma once

#include <stdint.h>

struct cache_identity {
	uint8_t bytes[32];
};
