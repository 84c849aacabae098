/*
 * The identity of everything that decides the bits of pages and states: model, device, kernels, page size. The store
 * hands out only what was written under its own identity; it does not know what the bytes stand for. They are computed
 * by engine/cache_identity.h.
 */
#pragma once

#include <stdint.h>

struct cache_identity {
	uint8_t bytes[32];
};
