/* How two distributions over a vocabulary differ. Pure arithmetic, in double. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* p: the distribution of the model; q: that of the reference, to which it is compared. Each is the softmax of its
 * logits. */
struct divergence {
	double kl;	   /* the sum of q (log q - log p), in nats; at least 0 but for rounding */
	double difference; /* of two logits of one token, the largest */
	/* q's best logit less its second best one. If it is more than twice `difference`, p has the same best token. */
	double margin;
	bool same; /* the best token is the same; of equal logits the first one is the best */
};

/* Compares logits p [n] and q [n], n >= 2, which are finite. */
void divergence_of(const float *p, const float *q, size_t n, struct divergence *ret);
