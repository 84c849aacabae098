/* Quantises floats to ggml's K formats (k_blocks.c): first each sub-block is fitted for itself, then the scales (and
 * minimums) are quantised, and then the codes are computed again with the scales that the block has. */
#include "engine/checkpoint/types/types.h"

#include <math.h>

#include "engine/checkpoint/types/blocks_internal.h"
#include "engine/checkpoint/types/fit.h"
#include "engine/checkpoint/types/float16.h"

/* ---- scales and minimums: Q2_K, Q4_K and Q5_K ---- */

static float sum(const float *x, int n)
{
	float s = 0;

	for (int i = 0; i < n; i++)
		s += x[i];
	return s;
}

static float sum_squares(const float *x, int n)
{
	float s = 0;

	for (int i = 0; i < n; i++)
		s += x[i] * x[i];
	return s;
}

/* Quantises n scales or minimums to 0 .. top; returns the number by which they are multiplied. Without weights the largest
 * becomes top. */
static float encode_scales(int n, int top, const float *x, const float *w, uint8_t *q)
{
	float largest = 0, inverse;

	if (w)
		return fit_positive(n, top, x, w, q);
	for (int j = 0; j < n; j++)
		largest = x[j] > largest ? x[j] : largest;
	inverse = largest > 0 ? (float)top / largest : 0;
	for (int j = 0; j < n; j++)
		q[j] = (uint8_t)fit_clamp(fit_nearest(inverse * x[j]), 0, top);
	return largest / (float)top;
}

/* Writes the first 16 bytes of a block (d, dmin, scales), and its codes. `plain` is the search without importance. */
static void encode_minimum(const float *x, const float *importance, const struct fit_search *plain,
			   uint8_t *p, uint8_t q[256])
{
	const struct fit_search weighted = {plain->top, -0.9f, 0.05f, 36, false};
	float scales[8], minimums[8], w[32], sums[8];
	float square = 2 * sum_squares(x, 256) / 256, d, dmin;
	uint8_t s[8], m[8];

	for (int j = 0; j < 8; j++) {
		const float *y = x + 32 * j;
		float mean = sqrtf(sum_squares(y, 32) / 32);

		for (int i = 0; i < 32; i++)
			w[i] = importance ? importance[32 * j + i] * sqrtf(square + y[i] * y[i])
					  : mean + fabsf(y[i]);
		sums[j] = sum(w, 32);
		scales[j] = fit_minimum(32, importance ? &weighted : plain, y, w, q + 32 * j,
					&minimums[j]);
	}
	f16_put(p, encode_scales(8, 63, scales, importance ? sums : NULL, s));
	f16_put(p + 2, encode_scales(8, 63, minimums, importance ? sums : NULL, m));
	k_scales_put(p + 4, s, m);
	d = f16_at(p);
	dmin = f16_at(p + 2);
	for (int i = 0; i < 256; i++) {
		float scale = d * (float)s[i / 32], minimum = dmin * (float)m[i / 32];

		if (scale != 0)
			q[i] = (uint8_t)fit_clamp(fit_nearest((x[i] + minimum) / scale), 0,
						  plain->top);
	}
}

static void put_nibbles(const uint8_t q[256], uint8_t *p)
{
	for (int h = 0; h < 4; h++, q += 64, p += 32)
		for (int l = 0; l < 32; l++)
			p[l] = (uint8_t)((q[l] & 15) | q[32 + l] << 4);
}

void q4_k_from_float(const float *x, size_t n, const float *importance, void *out)
{
	static const struct fit_search plain = {15, -1, 0.1f, 20, false};
	uint8_t *p = out, q[256];

	for (; n; n -= 256, x += 256, p += 144) {
		encode_minimum(x, importance, &plain, p, q);
		put_nibbles(q, p + 16);
		importance = importance ? importance + 256 : NULL;
	}
}

void q5_k_from_float(const float *x, size_t n, const float *importance, void *out)
{
	static const struct fit_search plain = {31, -0.5f, 0.1f, 15, false};
	uint8_t *p = out, q[256];

	for (; n; n -= 256, x += 256, p += 176) {
		encode_minimum(x, importance, &plain, p, q);
		memset(p + 16, 0, 32);
		for (int i = 0; i < 256; i++)
			p[16 + i % 32] |= (uint8_t)(q[i] >> 4 << i / 32);
		put_nibbles(q, p + 48);
		importance = importance ? importance + 256 : NULL;
	}
}

static void put_quarters(const uint8_t q[256], uint8_t *p)
{
	memset(p, 0, 64);
	for (int i = 0; i < 256; i++)
		p[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << i % 128 / 32 * 2);
}

static void encode_q2_k(const float *x, const float *importance, uint8_t *p)
{
	static const struct fit_search plain = {3, -0.5f, 0.1f, 15, true};
	static const struct fit_search weighted = {3, -0.9f, 0.05f, 36, false};
	float scales[16], minimums[16], w[16], sums[16], square = sum_squares(x, 256) / 256;
	uint8_t q[256], s[16], m[16];

	for (int j = 0; j < 16; j++) {
		const float *y = x + 16 * j;

		for (int i = 0; i < 16; i++)
			w[i] = importance ? importance[16 * j + i] * sqrtf(square + y[i] * y[i])
					  : fabsf(y[i]);
		sums[j] = sum(w, 16);
		scales[j] = fit_minimum(16, importance ? &weighted : &plain, y, w, q + 16 * j,
					&minimums[j]);
	}
	f16_put(p + 80, encode_scales(16, 15, scales, importance ? sums : NULL, s));
	f16_put(p + 82, encode_scales(16, 15, minimums, importance ? sums : NULL, m));
	for (int j = 0; j < 16; j++)
		p[j] = (uint8_t)(s[j] | m[j] << 4);
	for (int i = 0; i < 256; i++) {
		float d = f16_at(p + 80) * (float)s[i / 16];
		float minimum = f16_at(p + 82) * (float)m[i / 16];

		if (d != 0)
			q[i] = (uint8_t)fit_clamp(fit_nearest((x[i] + minimum) / d), 0, 3);
	}
	put_quarters(q, p + 16);
}

void q2_k_from_float(const float *x, size_t n, const float *importance, void *out)
{
	uint8_t *p = out;

	for (; n; n -= 256, x += 256, p += 84) {
		encode_q2_k(x, importance, p);
		importance = importance ? importance + 256 : NULL;
	}
}

/* ---- scales alone: Q3_K and Q6_K ---- */

/* Quantises 16 scales to 6 bits, as fit_signed has them; returns the number by which they are multiplied. Without weights
 * that of the largest magnitude becomes -32. */
static float encode_signed_scales(const float x[16], const float *w, uint8_t q[16])
{
	float largest = 0, inverse;

	if (w)
		return fit_signed(16, 32, x, w, q);
	for (int j = 0; j < 16; j++)
		if (fabsf(x[j]) > fabsf(largest))
			largest = x[j];
	memset(q, 0, 16);
	if (largest == 0)
		return 0;
	inverse = -32 / largest;
	for (int j = 0; j < 16; j++)
		q[j] = (uint8_t)(fit_clamp(fit_nearest(inverse * x[j]), -32, 31) + 32);
	return 1 / inverse;
}

static void encode_q3_k(const float *x, const float *importance, uint8_t *p)
{
	float scales[16], w[16], sums[16], square = 2 * sum_squares(x, 256) / 256;
	uint8_t q[256], s[16];

	for (int j = 0; j < 16; j++) {
		const float *y = x + 16 * j;

		for (int i = 0; importance && i < 16; i++)
			w[i] = importance[16 * j + i] * sqrtf(square + y[i] * y[i]);
		sums[j] = importance ? sum(w, 16) : 0;
		scales[j] = importance ? fit_signed(16, 4, y, w, q + 16 * j)
				       : fit_steps(16, 4, y, q + 16 * j);
	}
	memset(p, 0, 110);
	f16_put(p + 108, encode_signed_scales(scales, importance ? sums : NULL, s));
	for (int j = 0; j < 16; j++) {
		p[96 + j % 8] |= (uint8_t)((s[j] & 15) << j / 8 * 4);
		p[104 + j % 4] |= (uint8_t)(s[j] >> 4 << j / 4 * 2);
	}
	for (int i = 0; i < 256; i++) {
		float d = f16_at(p + 108) * (float)(s[i / 16] - 32);

		if (d != 0)
			q[i] = (uint8_t)(fit_clamp(fit_nearest(x[i] / d), -4, 3) + 4);
		p[i % 32] |= (uint8_t)(q[i] >> 2 << i / 32);
	}
	put_quarters(q, p + 32);
}

void q3_k_from_float(const float *x, size_t n, const float *importance, void *out)
{
	uint8_t *p = out;

	for (; n; n -= 256, x += 256, p += 110) {
		encode_q3_k(x, importance, p);
		importance = importance ? importance + 256 : NULL;
	}
}

static void put_q6_k(const uint8_t q[256], uint8_t *nibbles, uint8_t *quarters)
{
	memset(quarters, 0, 64);
	for (int i = 0; i < 256; i++)
		quarters[i / 128 * 32 + i % 32] |= (uint8_t)(q[i] >> 4 << i % 128 / 32 * 2);
	for (int h = 0; h < 2; h++, q += 128, nibbles += 64)
		for (int l = 0; l < 64; l++)
			nibbles[l] = (uint8_t)((q[l] & 15) | q[64 + l] << 4);
}

/* The scale of the largest magnitude becomes -128. */
static void encode_q6_k(const float *x, const float *importance, uint8_t *p)
{
	float scales[16], largest = 0, inverse;
	uint8_t q[256], *stored = p + 192;

	for (int j = 0; j < 16; j++) {
		scales[j] = fit_signed(16, 32, x + 16 * j, importance ? importance + 16 * j : NULL,
				       q + 16 * j);
		if (fabsf(scales[j]) > fabsf(largest))
			largest = scales[j];
	}
	memset(p, 0, 210);
	if (fabsf(largest) < 1e-15f)
		return;
	inverse = -128 / largest;
	f16_put(p + 208, 1 / inverse);
	for (int j = 0; j < 16; j++)
		stored[j] = (uint8_t)fit_clamp(fit_nearest(inverse * scales[j]), -128, 127);
	for (int i = 0; i < 256; i++) {
		float d = f16_at(p + 208) * (float)(int8_t)stored[i / 16];

		if (d != 0)
			q[i] = (uint8_t)(fit_clamp(fit_nearest(x[i] / d), -32, 31) + 32);
	}
	put_q6_k(q, p, p + 128);
}

void q6_k_from_float(const float *x, size_t n, const float *importance, void *out)
{
	uint8_t *p = out;

	for (; n; n -= 256, x += 256, p += 210) {
		encode_q6_k(x, importance, p);
		importance = importance ? importance + 256 : NULL;
	}
}
