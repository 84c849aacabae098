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

/* samples_percentile and samples_nearest sort the values and return one of them, or 0 without values. p goes from 0 to
 * 1. samples_percentile returns the value with floor(n p) values before it (for p = 1, the greatest). samples_nearest
 * returns the value whose place is nearest to p; the least value has place 0, the greatest 1. */
double samples_percentile(struct samples *s, double p);
double samples_nearest(struct samples *s, double p);

/* Sorts n > 0 values and returns their median. */
double median(double *v, size_t n);
