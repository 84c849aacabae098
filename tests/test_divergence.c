/* Divergences of two lists of logits beside the definition, in long double and with no trick, and the means and quantiles
 * that a report has of them. */
#include <math.h>
#include <string.h>

#include "daemon/cli/eval/tally.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { VOCAB = 300, CASES = 200 };

static long double naive_kl(const float *p, const float *q, size_t n)
{
	long double sum_p = 0, sum_q = 0, kl = 0;

	for (size_t i = 0; i < n; i++) {
		sum_p += expl(p[i]);
		sum_q += expl(q[i]);
	}
	for (size_t i = 0; i < n; i++)
		kl += expl(q[i]) / sum_q * logl(expl(q[i]) / sum_q / (expl(p[i]) / sum_p));
	return kl;
}

static float logit(float scale)
{
	return ((float)random_below(20001) / 10000 - 1) * scale;
}

static void test_random(void)
{
	random_state = 5;
	float p[VOCAB], q[VOCAB];
	size_t decided = 0, different = 0;

	for (int k = 0; k < CASES; k++) {
		float noise = powf(10, (float)(k % 5) - 4);
		struct divergence d;
		float best[2] = {-INFINITY, -INFINITY}, apart = 0;
		size_t best_p = 0, best_q = 0;

		for (size_t i = 0; i < VOCAB; i++) {
			q[i] = logit(12);
			p[i] = q[i] + logit(noise);
			apart = fmaxf(apart, fabsf(p[i] - q[i]));
			best_p = p[i] > p[best_p] ? i : best_p;
			best_q = q[i] > q[best_q] ? i : best_q;
		}
		for (size_t i = 0; i < VOCAB; i++) {
			if (i == best_q)
				best[0] = q[i];
			else
				best[1] = fmaxf(best[1], q[i]);
		}
		divergence_of(p, q, VOCAB, &d);
		check(fabsl((long double)d.kl - naive_kl(p, q, VOCAB)) <=
		      1e-14L + 1e-9L * naive_kl(p, q, VOCAB));
		check(d.kl > -1e-14 && d.difference == (double)apart);
		check(d.margin == (double)best[0] - (double)best[1] &&
		      d.same == (best_p == best_q));
		check(d.same || d.margin <= 2 * d.difference);
		decided += d.margin > 2 * d.difference;
		different += !d.same;
	}
	check(decided > CASES / 4 && different > CASES / 20);
	ok_all("%d pairs: %zu decided by their margin, %zu with another choice", CASES, decided,
	       different);
}

static void test_edges(void)
{
	static const float two[2] = {1, 0}, other[2] = {0, 1}, far[3] = {900, -900, 0},
			   ties[3] = {2, 5, 5};
	struct divergence d;

	divergence_of(far, far, 3, &d);
	ok(d.kl == 0 && d.difference == 0 && d.margin == 900 && d.same,
	   "equal logits, of which exp overflows");
	divergence_of(two, other, 2, &d);
	/* p = (e, 1) / (1 + e), q = (1, e) / (1 + e): the sum of q (log q - log p) is (e - 1) / (e + 1) */
	ok(fabs(d.kl - tanh(0.5)) < 1e-15 && d.difference == 1 && d.margin == 1 && !d.same,
	   "two tokens, by hand");
	divergence_of(two, ties, 2, &d);
	check(!d.same);
	divergence_of(ties, ties, 3, &d);
	check(d.same && d.margin == 0);
	ok_all("of equal logits the first is the best");
}

static void test_tally(void)
{
	static const double x[4] = {1, 2, 4, 5};
	struct mean m = {0};
	struct comparison c = {0};

	mean_add(&m, 3);
	ok(mean_of(&m) == 3 && mean_error(&m) == 0, "one number has no error");
	m = (struct mean){0};
	for (size_t i = 0; i < 4; i++)
		mean_add(&m, x[i]);
	/* The variance of the four, with n - 1, is 10 / 3; of their mean a quarter of that. */
	ok(mean_of(&m) == 3 && fabs(mean_error(&m) - sqrt(10.0 / 12)) < 1e-15 &&
		   fabs(perplexity_of(&m) - exp(3)) < 1e-12 &&
		   fabs(perplexity_error(&m) - exp(3) * sqrt(10.0 / 12)) < 1e-12,
	   "a mean, a perplexity and their errors");
	for (int i = 0; i < 101; i++) {
		const struct divergence d = {.kl = (i * 37) % 101,
					     .difference = 1,
					     .margin = i,
					     .same = i % 2};

		check(comparison_add(&c, &d, 0.5, i ? 0.5 : 0.25) == 0);
	}
	check(c.n == 101 && c.same == 50 && c.decided == 98 && c.difference == 1);
	check(samples_nearest(&c.all_kl, .5) == 50 && samples_nearest(&c.all_kl, .99) == 99);
	check(fabs(mean_of(&c.probability) - 0.0625 / 101) < 1e-15);
	ok_all("a comparison counts and sorts");
	comparison_release(&c);
}

int main(void)
{
	test_random();
	test_edges();
	test_tally();
	return done();
}
