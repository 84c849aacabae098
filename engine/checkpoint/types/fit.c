#include "engine/checkpoint/types/fit.h"

#include <math.h>

/* Numbers that are all smaller get the scale 0. */
#define SMALLEST 1e-15f

/* The sums of w x q and w q^2, of which the best scale for the codes q is the quotient. */
struct sums {
	float xq, qq;
};

/* ---- fit_signed ---- */

static float weight_of(const float *w, const float *x, int i)
{
	return w ? w[i] : x[i] * x[i];
}

static struct sums sum_signed(int n, int top, const float *x, const float *w, float inverse)
{
	struct sums s = {0};

	for (int i = 0; i < n; i++) {
		float l = (float)fit_clamp(fit_nearest(inverse * x[i]), -top, top - 1);

		s.xq += weight_of(w, x, i) * x[i] * l;
		s.qq += weight_of(w, x, i) * l * l;
	}
	return s;
}

static void encode_signed(int n, int top, const float *x, float inverse, uint8_t *q)
{
	for (int i = 0; i < n; i++)
		q[i] = (uint8_t)(top + fit_clamp(fit_nearest(inverse * x[i]), -top, top - 1));
}

/* Returns the number of the largest magnitude, with its sign. */
static float largest_of(int n, const float *x)
{
	float largest = 0;

	for (int i = 0; i < n; i++)
		if (fabsf(x[i]) > fabsf(largest))
			largest = x[i];
	return largest;
}

float fit_signed(int n, int top, const float *x, const float *w, uint8_t *q)
{
	float largest = largest_of(n, x), inverse, scale, best;
	struct sums s;

	if (fabsf(largest) < SMALLEST) {
		memset(q, 0, (size_t)n);
		return 0;
	}
	inverse = (float)-top / largest;
	s = sum_signed(n, top, x, w, inverse);
	encode_signed(n, top, x, inverse, q);
	scale = s.qq != 0 ? s.xq / s.qq : 0;
	best = scale * s.xq;
	for (int i = -9; i <= 9; i++) {
		if (!i)
			continue;
		inverse = -((float)top + 0.1f * (float)i) / largest;
		s = sum_signed(n, top, x, w, inverse);
		if (s.qq > 0 && s.xq * s.xq > best * s.qq) {
			encode_signed(n, top, x, inverse, q);
			scale = s.xq / s.qq;
			best = scale * s.xq;
		}
	}
	return scale;
}

/* ---- fit_steps ---- */

/* Changes single codes as long as that makes the error less, in at most five rounds. s has the sums of q. */
static void improve_signed(int n, int top, const float *x, uint8_t *q, struct sums *s)
{
	bool changed = true;

	for (int round = 0; round < 5 && changed; round++) {
		changed = false;
		for (int i = 0; i < n; i++) {
			float w = x[i] * x[i], old = (float)(q[i] - top), next;
			struct sums t = {s->xq - w * x[i] * old, s->qq - w * old * old};

			if (!(t.xq > 0))
				continue;
			next = (float)fit_clamp(fit_nearest(x[i] * t.qq / t.xq), -top, top - 1);
			t.xq += w * x[i] * next;
			t.qq += w * next * next;
			if (next != old && t.qq > 0 && t.xq * t.xq * s->qq > s->xq * s->xq * t.qq) {
				q[i] = (uint8_t)((int)next + top);
				*s = t;
				changed = true;
			}
		}
	}
}

float fit_steps(int n, int top, const float *x, uint8_t *q)
{
	float largest = largest_of(n, x), inverse;
	struct sums s;

	if (fabsf(largest) < SMALLEST) {
		memset(q, 0, (size_t)n);
		return 0;
	}
	inverse = (float)-top / largest;
	s = sum_signed(n, top, x, NULL, inverse);
	encode_signed(n, top, x, inverse, q);
	improve_signed(n, top, x, q, &s);
	return s.qq > 0 ? s.xq / s.qq : 0;
}

/* ---- fit_positive ---- */

static float error_positive(int n, int top, const float *x, const float *w, float inverse)
{
	float scale = 1 / inverse, error = 0;

	for (int i = 0; i < n; i++) {
		float difference =
			x[i] - scale * (float)fit_clamp(fit_nearest(inverse * x[i]), 0, top);

		error += w[i] * difference * difference;
	}
	return error;
}

/* Changes single codes as long as that makes the error less, in at most five rounds. s has the sums of q. */
static void improve_positive(int n, int top, const float *x, const float *w, uint8_t *q,
			     struct sums *s)
{
	bool changed = true;

	for (int round = 0; round < 5 && changed; round++) {
		changed = false;
		for (int i = 0; i < n; i++) {
			float old = (float)q[i], next;
			struct sums t = {s->xq - w[i] * x[i] * old, s->qq - w[i] * old * old};

			if (t.xq <= 0 || t.qq <= 0)
				continue;
			next = (float)fit_clamp(fit_nearest(x[i] * t.qq / t.xq), 0, top);
			t.xq += w[i] * x[i] * next;
			t.qq += w[i] * next * next;
			if (next != old && t.xq * t.xq * s->qq > s->xq * s->xq * t.qq) {
				q[i] = (uint8_t)next;
				*s = t;
				changed = true;
			}
		}
	}
}

float fit_positive(int n, int top, const float *x, const float *w, uint8_t *q)
{
	float largest = 0, inverse, best;
	struct sums s = {0};

	for (int i = 0; i < n; i++)
		largest = x[i] > largest ? x[i] : largest;
	if (largest < SMALLEST) {
		memset(q, 0, (size_t)n);
		return 0;
	}
	inverse = (float)top / largest;
	best = error_positive(n, top, x, w, inverse);
	for (int i = -4; i <= 4; i++) {
		float other = (0.1f * (float)i + (float)top) / largest, error;

		if (!i)
			continue;
		error = error_positive(n, top, x, w, other);
		if (error < best) {
			best = error;
			inverse = other;
		}
	}
	for (int i = 0; i < n; i++) {
		float l = (float)fit_clamp(fit_nearest(inverse * x[i]), 0, top);

		q[i] = (uint8_t)l;
		s.xq += w[i] * x[i] * l;
		s.qq += w[i] * l * l;
	}
	improve_positive(n, top, x, w, q, &s);
	return s.qq > 0 ? s.xq / s.qq : 0;
}

/* ---- fit_minimum ---- */

/* Returns the error of x ~ scale q + low. */
static float error_minimum(int n, bool absolute, const float *x, const float *w, const uint8_t *q,
			   float scale, float low)
{
	float error = 0;

	for (int i = 0; i < n; i++) {
		float difference = scale * (float)q[i] + low - x[i];

		error += w[i] * (absolute ? fabsf(difference) : difference * difference);
	}
	return error;
}

/* Computes the scale and the least number (at most 0) with which the codes q fit best. False: all codes are equal. */
static bool solve_minimum(int n, const float *x, const float *w, const uint8_t *q, float sum_w,
			  float sum_x, float *scale, float *low)
{
	float sum_q = 0, sum_qq = 0, sum_xq = 0, determinant;

	for (int i = 0; i < n; i++) {
		float l = (float)q[i];

		sum_q += w[i] * l;
		sum_qq += w[i] * l * l;
		sum_xq += w[i] * l * x[i];
	}
	determinant = sum_w * sum_qq - sum_q * sum_q;
	if (!(determinant > 0))
		return false;
	*scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
	*low = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
	if (*low > 0) {
		*low = 0;
		*scale = sum_xq / sum_qq;
	}
	return true;
}

static void encode_minimum(int n, int top, const float *x, float inverse, float low, uint8_t *q)
{
	for (int i = 0; i < n; i++)
		q[i] = (uint8_t)fit_clamp(fit_nearest(inverse * (x[i] - low)), 0, top);
}

float fit_minimum(int n, const struct fit_search *s, const float *x, const float *w, uint8_t *q,
		  float *m)
{
	float least = x[0], most = x[0], sum_w = w[0], sum_x = sum_w * x[0], inverse, scale, best,
	      low;
	uint8_t other[32];

	for (int i = 1; i < n; i++) {
		least = x[i] < least ? x[i] : least;
		most = x[i] > most ? x[i] : most;
		sum_w += w[i];
		sum_x += w[i] * x[i];
	}
	least = least > 0 ? 0 : least;
	*m = -least;
	if (most <= least) {
		memset(q, 0, (size_t)n);
		return 0;
	}
	low = least;
	inverse = (float)s->top / (most - least);
	scale = 1 / inverse;
	encode_minimum(n, s->top, x, inverse, low, q);
	best = error_minimum(n, s->absolute, x, w, q, scale, low);
	for (int i = 0; i <= s->tries; i++) {
		float other_scale, other_low, error;

		inverse = (s->first + s->step * (float)i + (float)s->top) / (most - low);
		encode_minimum(n, s->top, x, inverse, low, other);
		if (!solve_minimum(n, x, w, other, sum_w, sum_x, &other_scale, &other_low))
			continue;
		error = error_minimum(n, s->absolute, x, w, other, other_scale, other_low);
		if (error < best) {
			memcpy(q, other, (size_t)n);
			best = error;
			scale = other_scale;
			low = other_low;
		}
	}
	*m = -low;
	return scale;
}
