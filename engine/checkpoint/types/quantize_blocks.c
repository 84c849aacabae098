/* Quantises floats to ggml's formats with a scale for 32 elements (blocks.c, code_tables.c). */
#include "engine/checkpoint/types/types.h"

#include <math.h>
#include <string.h>

#include "engine/checkpoint/types/fit.h"
#include "engine/checkpoint/types/float16.h"
#include "engine/checkpoint/types/float8.h"

/* Returns the number of the largest magnitude, with its sign. */
static float largest(const float *x)
{
	float found = 0;

	for (int i = 0; i < 32; i++)
		if (fabsf(x[i]) > fabsf(found))
			found = x[i];
	return found;
}

static float inverse_of(float d)
{
	return d != 0 ? 1 / d : 0;
}

static void join_nibbles(const uint8_t q[32], uint8_t *out)
{
	for (int i = 0; i < 16; i++)
		out[i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

void q8_0_from_float(const float *x, size_t n, const float *importance, void *out)
{
	uint8_t *p = out;

	for (; n; n -= 32, x += 32, p += 34) {
		float d = fabsf(largest(x)) / 127, inverse = inverse_of(d);

		f16_put(p, d);
		for (int i = 0; i < 32; i++) {
			/* If d is subnormal its inverse may be infinite. */
			float q = roundf(x[i] * inverse);

			p[2 + i] = (uint8_t)(int8_t)(q > 127 ? 127 : q > -127 ? q : -127);
		}
	}
}

/* Finds the scale and the codes q of 32 numbers, x ~ scale (q - top). The largest number becomes the code 0. */
static float fit_largest(const float *x, int top, uint8_t q[32])
{
	float d = largest(x) / (float)-top, inverse = inverse_of(d), most = (float)(2 * top - 1);

	for (int i = 0; i < 32; i++) {
		float code = x[i] * inverse + ((float)top + 0.5f);

		q[i] = (uint8_t)(code > most ? most : code > 0 ? code : 0);
	}
	return d;
}

/* Quantises a row of n numbers to blocks of `bytes`, whose codes `put` writes behind the scale. */
static void encode_row(const float *x, size_t n, const float *importance, int top, uint8_t *p,
		       size_t bytes, void (*put)(const uint8_t q[32], uint8_t *out))
{
	float square = 0, w[32];
	uint8_t q[32];

	for (size_t i = 0; importance && i < n; i++)
		square += x[i] * x[i];
	square /= (float)n;
	for (size_t at = 0; at < n; at += 32, x += 32, p += bytes) {
		for (int i = 0; importance && i < 32; i++)
			w[i] = importance[at + (size_t)i] * sqrtf(square + x[i] * x[i]);
		f16_put(p, importance ? fit_signed(32, top, x, w, q) : fit_largest(x, top, q));
		put(q, p + 2);
	}
}

void q4_0_from_float(const float *x, size_t n, const float *importance, void *out)
{
	encode_row(x, n, importance, 8, out, 18, join_nibbles);
}

/* The highest bits, and behind them the nibbles. */
static void split_high(const uint8_t q[32], uint8_t *out)
{
	uint8_t low[32];

	memset(out, 0, 4);
	for (int i = 0; i < 32; i++) {
		out[i / 8] |= (uint8_t)((q[i] >> 4) << i % 8);
		low[i] = q[i] & 15;
	}
	join_nibbles(low, out + 4);
}

void q5_0_from_float(const float *x, size_t n, const float *importance, void *out)
{
	encode_row(x, n, importance, 16, out, 22, split_high);
}

/* Returns the code of e2m1 whose number times d is nearest to x; of two the lower code. */
static uint8_t nearest_e2m1(float x, float d)
{
	float least = fabsf((float)e2m1_doubled[0] * d - x);
	uint8_t code = 0;

	for (uint8_t i = 1; i < 16; i++) {
		float error = fabsf((float)e2m1_doubled[i] * d - x);

		if (error < least) {
			least = error;
			code = i;
		}
	}
	return code;
}

/* The scale makes the largest number 4 to 8 (6 is the largest of e2m1). */
void mxfp4_from_float(const float *x, size_t n, const float *importance, void *out)
{
	uint8_t *p = out, q[32];

	for (; n; n -= 32, x += 32, p += 17) {
		float most = fabsf(largest(x));
		int e = most > 0 ? (int)floorf(log2f(most)) - 2 + 127 : 0;

		p[0] = (uint8_t)fit_clamp(e, 0, 254);
		for (int i = 0; i < 32; i++)
			q[i] = nearest_e2m1(x[i], ldexpf(1, p[0] - 128));
		join_nibbles(q, p + 1);
	}
}
