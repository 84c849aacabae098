#include "daemon/cli/eval/divergence.h"

#include <math.h>

#include "base/macros.h"

/* The two best of a list of logits. */
struct best {
	size_t at; /* of the best */
	double first, second;
};

static struct best best_of(const float *x, size_t n)
{
	struct best b = {.first = -INFINITY, .second = -INFINITY};

	for (size_t i = 0; i < n; i++) {
		if (x[i] > b.first) {
			b = (struct best){i, x[i], b.first};
		} else if (x[i] > b.second) {
			b.second = x[i];
		}
	}
	return b;
}

void divergence_of(const float *p, const float *q, size_t n, struct divergence *ret)
{
	struct best of_p = best_of(p, n), of_q = best_of(q, n);
	double sum_p = 0, sum_q = 0, weighted = 0, difference = 0;

	for (size_t i = 0; i < n; i++) {
		double x = p[i] - of_p.first, y = q[i] - of_q.first, w = exp(y);

		sum_p += exp(x);
		sum_q += w;
		weighted += w * (y - x);
		difference = MAX(difference, fabs((double)p[i] - (double)q[i]));
	}
	*ret = (struct divergence){
		.kl = weighted / sum_q - log(sum_q) + log(sum_p),
		.difference = difference,
		.margin = of_q.first - of_q.second,
		.same = of_p.at == of_q.at,
	};
}
