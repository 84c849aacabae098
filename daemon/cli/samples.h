/* Measured values, and their medians and percentiles. */
#pragma once

#include <stddef.h>

#include "base/macros.h"

/* All zeros: no values. */
struct samples {
	double *v; /* [n] owned */
	size_t n, cap;
};

int samples_add(struct samples *s, double v) MUST_CHECK; /* -ENOMEM */
void samples_release(struct samples *s);

/* Both sort the values; without values they return 0. samples_percentile: the value below which a share p of the values
 * lies. samples_nearest: the value at the place nearest to p, from 0 (the least) to 1 (the greatest). */
double samples_percentile(struct samples *s, double p);
double samples_nearest(struct samples *s, double p);

/* Sorts n > 0 values and returns their median. */
double median(double *v, size_t n);
