/* A float as its bits, and back. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline float bits_float(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}
