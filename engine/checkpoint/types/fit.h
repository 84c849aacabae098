/* Searches for the scale with which some numbers become whole numbers of few bits and lose least: they minimise the sum
 * of w (x - rounded x)^2, for weights w. They are those of ggml's quantize_row_*_ref (ggml-quants.c; the names there are
 * in parentheses), with the same operations in the same order, so codes and scales have ggml's bits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Rounds to the nearest whole number, ties to even. |x| < 2^22; of other numbers the result has no meaning. */
static inline int fit_nearest(float x)
{
	int bits;

	x += 0x1.8p23f;
	memcpy(&bits, &x, sizeof(bits));
	return (bits & 0x7fffff) - 0x400000;
}

static inline int fit_clamp(int q, int low, int high)
{
	return q < low ? low : q > high ? high : q;
}

/* Each returns the scale s and writes the codes q [n].
 *
 * fit_signed (make_qx_quants): x ~ s (q - top), 0 <= q < 2 top; s may be negative. w NULL: the weights are x^2.
 * fit_steps (make_q3_quants): the same with weights x^2, by changes of single codes.
 * fit_positive (make_qp_quants): x ~ s q, 0 <= q <= top, for x >= 0.
 * fit_minimum (make_qkx3_quants): x ~ s q - m, 0 <= q <= top, m >= 0. n <= 32. It tries the scales with which the range
 * of x is top + first + step i, i = 0 .. tries. absolute: it minimises the sum of w |x - rounded x|. */
float fit_signed(int n, int top, const float *x, const float *w, uint8_t *q);
float fit_steps(int n, int top, const float *x, uint8_t *q);
float fit_positive(int n, int top, const float *x, const float *w, uint8_t *q);

struct fit_search {
	int top;
	float first, step;
	int tries;
	bool absolute;
};
float fit_minimum(int n, const struct fit_search *s, const float *x, const float *w, uint8_t *q,
		  float *m);
