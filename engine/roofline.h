/* The least that a step must move and compute, from the config and the step's rows. A measured time is compared with
 * this roofline (Williams, Waterman and Patterson 2009, "Roofline"). Pure arithmetic, in double: no product of a
 * config's sizes is too large for it.
 *
 * However often kernels read them, weights count once a step. Of the experts only those count that the step uses, and
 * of the embedding only the rows of its tokens. The head counts only if the step needs logits. Coded weights
 * (kernels/coded.h) count as if they were not coded. The KV of all tokens of a row so far, and the state from which it
 * continues, count as read once. The KV that the step adds and the states that it leaves count as written once.
 * Activations count only for a single kernel (roofline_kernel), because fused kernels need not move them. The sizes are
 * those of the configuration, without the padding that arrays have on the device.
 *
 * FLOP are two for each multiply-add of a product with weights, and those of attention and recurrences (`flops` of
 * struct layer_ops). FLOP that a kernel computes beyond the plain formula, such as those of Gated DeltaNet in chunks,
 * do not count. So they do not raise the share of the roofline that the kernel reaches.
 *
 * Each kind of FLOP takes the time that it has at its own peak, and these times add up: products of elements are bf16
 * or, with inputs of int8, int8; the router's are float; attention and recurrences are float unless the kernels compute
 * them on tensor cores (struct kernel_tensor). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/checkpoint/model_config.h"
#include "engine/layers/cost.h"
#include "kernels/peak.h"
#include "kernels/profile.h"

struct roofline_row {
	uint32_t start, n_tokens; /* as in struct plan_row */
};

struct roofline_step {
	const struct roofline_row *rows; /* [n_rows] prefill rows first */
	uint32_t n_rows, n_prefill_rows, n_logits;
	double experts; /* different experts that a layer with experts uses, on average */
	/* bytes of a weight of a matrix, on average, if weights are quantised (kernels/quant.h); 0: it is an element */
	double weight;
	bool int8;	    /* products with quantised weights take inputs as int8 */
	uint32_t kv_number; /* bytes of a number in KV pages (layers/part.h); 0: it is an element */
	struct kernel_tensor tensor; /* of the kernels that run the step */
};

struct roofline {
	double weight_bytes, kv_bytes, state_bytes;
	struct cost_flops flops;
};

/* Adds a step to *sum. bf16: two bytes an element, else four. */
void roofline_add(struct roofline *sum, const struct model_config *c, bool bf16,
		  const struct roofline_step *s);

double roofline_bytes(const struct roofline *r);
double roofline_flops(const struct roofline *r);

/* Returns the least seconds on a device with these peaks. The result is the time of moving or that of computing,
 * whichever is longer; *ret_by_bytes: moving takes at least as long. */
double roofline_seconds(const struct roofline *r, const struct peak *p, bool *ret_by_bytes);

/* Computes the work of one launch l of the step: of a launch that has only a part of its layer's work (kernel_timing),
 * of that part. False: the work of a kernel of this name is not known. */
bool roofline_kernel(const struct model_config *c, bool bf16, const struct roofline_step *s,
		     const struct kernel_timing *l, struct roofline_work *ret);
