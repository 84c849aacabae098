/* The sums of an evaluation so far. A model's sum says how likely it found the text's tokens. Those of two models say how
 * much their predictions differ. */
#pragma once

#include <stdint.h>

#include "daemon/cli/eval/divergence.h"
#include "daemon/cli/samples.h"

/* The mean of numbers, and the standard error of the mean. All zeros: no numbers. */
struct mean {
	double sum, squares;
	uint64_t n;
};

void mean_add(struct mean *m, double x);
double mean_of(const struct mean *m);
double mean_error(const struct mean *m); /* 0 for fewer than two numbers */

/* The perplexity of a text, exp of the mean of minus log-probabilities, and its standard error, by the first derivative.
 * Both are as llama.cpp's perplexity prints them. */
double perplexity_of(const struct mean *surprise);
double perplexity_error(const struct mean *surprise);

/* How a model differs from a reference. All zeros: nothing was compared. */
struct comparison {
	struct mean kl;
	struct samples all_kl;
	struct mean probability; /* squares of differences of a text's token's probability */
	uint64_t n, same, decided;
	double difference; /* the largest of all logits */
};

/* Adds the divergence at a position, and the probabilities that model and reference give to the text's token there.
 * -ENOMEM. */
int comparison_add(struct comparison *c, const struct divergence *d, double p, double q) MUST_CHECK;
void comparison_release(struct comparison *c);
