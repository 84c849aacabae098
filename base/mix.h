/*
 * Mixing numbers: for hash tables, for hashes of plans, for repeatable random sequences. A client that chooses the
 * numbers can choose collisions; where the input may be hostile, mix a random key in first.
 */
#pragma once

#include <stdint.h>

#define MIX_GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 divided by the golden ratio, odd */

/* A permutation of the 64-bit numbers. Changing any bit of v changes about half the bits of the result. Source: the
 * last step of SplitMix64 (Steele, Lea and Flood 2014). */
static inline uint64_t mix64(uint64_t v)
{
	v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
	return v ^ v >> 31;
}

/* The next number of a random sequence with this state: SplitMix64. */
static inline uint64_t mix_next(uint64_t *state)
{
	return mix64(*state += MIX_GOLDEN);
}

/* Returns the lower half of the 128-bit product, xored with the upper half. Source: wyhash (Wang Yi, public domain). */
static inline uint64_t mix_product(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Returns the hash of a list of numbers that ends with v. h is the hash of the list without v. */
static inline uint64_t mix_add(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 32;
}
