#include "daemon/cli/samples.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

int samples_add(struct samples *s, double v)
{
	if (!array_grow(s->v, s->cap, s->n + 1))
		return -ENOMEM;
	s->v[s->n++] = v;
	return 0;
}

void samples_release(struct samples *s)
{
	free(s->v);
	*s = (struct samples){0};
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double sorted_at(struct samples *s, double place)
{
	if (!s->n)
		return 0;
	qsort(s->v, s->n, sizeof(*s->v), by_value);
	return s->v[MIN((size_t)place, s->n - 1)];
}

double samples_percentile(struct samples *s, double p)
{
	return sorted_at(s, (double)s->n * p);
}

double samples_nearest(struct samples *s, double p)
{
	return sorted_at(s, p * ((double)s->n - 1) + 0.5);
}

double median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
