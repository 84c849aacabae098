/*
 * What a step has to move and to compute at least, by the config alone: the roofline that a measured time is set
 * beside (Williams, Waterman and Patterson 2009, "Roofline"). Pure arithmetic, in double: no product of a config's
 * sizes is too large for it.
 *
 * Weights, KV and states count once a step however often a kernel reads them; activations count only where one
 * kernel is looked at (roofline_kernel), since a kernel that keeps them in registers need not move them. Sizes are
 * those of the model, without the padding of its layout.
 *
 * FLOP: two for each multiply-add of a product; attention is q k^T and p v up to the query's own position; Gated
 * DeltaNet is what its recurrence takes for a token and value head, 7 dk dv (decay, S^T k, k u^T, S^T q). The form in
 * chunks computes more, which does not count: a share never flatters.
 */
#ifndef ENGINE_ROOFLINE_H
#define ENGINE_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/cost.h"

struct roofline_row {
	uint32_t start, n_tokens; /* as of struct plan_row */
};

struct roofline_step {
	const struct roofline_row *rows; /* [n_rows] prefill rows first */
	uint32_t n_rows, n_prefill_rows, n_logits;
	double experts; /* different experts that a sparse layer touches, on the average of its layers */
};

struct roofline {
	double weight_bytes, kv_bytes, state_bytes;
	double product_flops, other_flops; /* other: attention and recurrences */
};

/* Different experts that n_tokens touch when every choice is as likely: E (1 - (1 - k/E)^n). */
double roofline_experts(const struct model_config *c, uint32_t n_tokens);

/* Adds a step to *sum. bf16: two bytes an element, else four. */
void roofline_add(struct roofline *sum, const struct model_config *c, bool bf16,
		  const struct roofline_step *s);

double roofline_bytes(const struct roofline *r);
double roofline_flops(const struct roofline *r);

/* Seconds at peaks of `read` bytes/s, `dot` FLOP/s for products of elements, `flops` for the rest: the longer one of
 * moving and computing; *ret_by_bytes says which. */
double roofline_seconds(const struct roofline *r, double read, double dot, double flops,
			bool *ret_by_bytes);

/* False: nothing is known of a kernel of this name. */
bool roofline_kernel(const struct model_config *c, bool bf16, const struct roofline_step *s,
		     const struct roofline_launch *l, struct roofline_work *ret);

#endif
