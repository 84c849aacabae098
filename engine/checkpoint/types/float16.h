/* Half precision (IEEE 754 binary16, "f16"): 1 bit of sign, 5 of exponent, 10 of fraction. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Converts any f16 number, exactly: a multiplication corrects the exponent's bias and also turns subnormal numbers into
 * normal ones; infinities and NaN get the largest exponent. */
static inline float float_of_f16(uint16_t bits)
{
	uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, u;
	float f;

	memcpy(&f, &magnitude, sizeof(f));
	f *= 0x1p112f;
	memcpy(&u, &f, sizeof(u));
	u |= magnitude >= 0x0f800000 ? 0x7f800000 : 0;
	u |= (uint32_t)(bits & 0x8000) << 16;
	memcpy(&f, &u, sizeof(f));
	return f;
}

/* Rounds to the nearest f16 number, ties to even; from 65520 on to infinity. NaN becomes a quiet NaN. */
static inline uint16_t f16_of_float(float x)
{
	uint32_t u, sign, tail;

	memcpy(&u, &x, sizeof(u));
	sign = u >> 16 & 0x8000;
	u &= 0x7fffffff;
	if (u > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (u >= 0x47800000) /* 2^16 */
		return (uint16_t)(sign | 0x7c00);
	if (u < 0x38800000) {
		/* Below 2^-14 numbers are multiples of 2^-24, as are the floats from 0.5 on: the addition rounds. */
		float f;

		memcpy(&f, &u, sizeof(f));
		f += 0.5f;
		memcpy(&u, &f, sizeof(u));
		return (uint16_t)(sign | (u - 0x3f000000));
	}
	tail = 0xfff + (u >> 13 & 1);
	return (uint16_t)(sign | (u - 0x38000000 + tail) >> 13);
}

/* Reads an f16 number at any alignment. */
static inline float f16_at(const uint8_t *p)
{
	uint16_t bits;

	memcpy(&bits, p, sizeof(bits));
	return float_of_f16(bits);
}

/* Writes x, rounded to f16, at any alignment. */
static inline void f16_put(uint8_t *p, float x)
{
	uint16_t bits = f16_of_float(x);

	memcpy(p, &bits, sizeof(bits));
}
