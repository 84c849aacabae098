/* Numbers of 8 and 4 bits. All of them are floats exactly.
 *
 *     e4m3   1 bit of sign, 4 of exponent (bias 7), 3 of fraction; 0x7f and 0xff are NaN, and there are no infinities
 *     e8m0   a power of two, 2^(code - 127); 0xff is NaN
 *     e2m1   1 bit of sign, 2 of exponent, 1 of fraction: 0 0.5 1 1.5 2 3 4 6, from code 8 on the same, negative
 *
 * Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Has no branch, so that compilers make vectors of it, and multiplies no subnormal floats, which would take long. */
static inline float float_of_e4m3(uint8_t code)
{
	float subnormal = (float)(code & 7) * 0x1p-9f, f;
	uint32_t normal = ((uint32_t)(code & 0x7f) << 20) + (120u << 23), u;
	uint32_t is_normal = (code & 0x78) != 0;

	memcpy(&u, &subnormal, sizeof(u));
	u = (u & ~-is_normal) | (normal & -is_normal);
	u |= 0x7fc00000 & -(uint32_t)((code & 0x7f) == 0x7f);
	u |= (uint32_t)(code & 0x80) << 24;
	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline float float_of_e8m0(uint8_t code)
{
	return code == 0xff ? NAN : ldexpf(1, code - 127);
}

/* The numbers of e2m1, doubled. */
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
