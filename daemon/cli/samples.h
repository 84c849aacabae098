/* Measured values, of which medians and percentiles are wanted. */
#pragma once

#include <stddef.h>

#include "base/macros.h"

/* All zeros: none. */
struct samples {
	double *v; /* [n] owned */
	size_t n, cap;
};

int samples_add(struct samples *s, double v) MUST_CHECK; /* -ENOMEM */
void samples_release(struct samples *s);

/* Both sort; 0 without samples. The value below which a share p of the samples lies; the one at the place that is nearest
 * to p between the least and the greatest. */
double samples_percentile(struct samples *s, double p);
double samples_nearest(struct samples *s, double p);

/* The median of n > 0 values, which get sorted. */
double median(double *v, size_t n);
