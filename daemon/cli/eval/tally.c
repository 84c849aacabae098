#include "daemon/cli/eval/tally.h"

#include <math.h>

void mean_add(struct mean *m, double x)
{
	m->sum += x;
	m->squares += x * x;
	m->n++;
}

double mean_of(const struct mean *m)
{
	return m->n ? m->sum / (double)m->n : 0;
}

double mean_error(const struct mean *m)
{
	double mean = mean_of(m), variance;

	if (m->n < 2)
		return 0;
	variance = m->squares / (double)m->n - mean * mean;
	return sqrt(MAX(variance, 0) / (double)(m->n - 1));
}

double perplexity_of(const struct mean *surprise)
{
	return exp(mean_of(surprise));
}

double perplexity_error(const struct mean *surprise)
{
	return perplexity_of(surprise) * mean_error(surprise);
}

int comparison_add(struct comparison *c, const struct divergence *d, double p, double q)
{
	mean_add(&c->kl, d->kl);
	mean_add(&c->probability, (p - q) * (p - q));
	c->n++;
	c->same += d->same;
	c->decided += d->margin > 2 * d->difference;
	c->difference = MAX(c->difference, d->difference);
	return samples_add(&c->all_kl, d->kl);
}

void comparison_release(struct comparison *c)
{
	samples_release(&c->all_kl);
	*c = (struct comparison){0};
}
