/* The identity: a hash of everything that decides the bits of pages and states (model, device, kernels, page size).
 * engine/cache_identity.h computes it. The store only compares it, and hands out only items that were written under
 * the identity of this process. */
#pragma once

#include <stdint.h>

struct cache_identity {
	uint8_t bytes[32];
};
