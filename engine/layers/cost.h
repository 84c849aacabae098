/* The costs of layers, for the roofline (engine/roofline.h says which bytes and operations count). The costs of
 * weights, their products, KV and states in a step follow from the tables of weights and parts (weights.h, part.h). The
 * types of this file are for other costs, and for the costs of single kernels. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The size of an element, and sums over the rows of a step. */
struct cost_step {
	double element;	    /* bytes of an element of weights and some activations: 2 (bf16) or 4 */
	uint32_t kv_number; /* bytes of a number in KV pages (part.h) */
	double weight;	    /* bytes of a weight of a matrix, on average */
	double tokens, prefill_tokens;
	double rows, resumed; /* resumed: rows with earlier tokens, which read a state */
	double prefill_rows, prefill_resumed;
	double context; /* tokens whose keys and values are read */
	/* pairs of a query and a key that it attends to: of all rows, and of prefill rows */
	double keys, prefill_keys;
	/* the same in a layer with a sliding window */
	double window_context, window_keys, prefill_window_keys;
	struct kernel_tensor tensor;
};

/* FLOP by the peak that limits them. */
struct cost_flops {
	double floats;
	double bf16; /* of bf16 numbers, by the variant's instruction for them */
	double int8;
};

/* The work of one launch. */
struct roofline_work {
	double bytes, flops;
	/* The products run at the device's peak for products of bf16: their operands are bf16 elements, or the kernel
	 * rounds floats to bf16 numbers (kernel_timing.tensor). `kernel` of struct layer_ops sets this member for
	 * elements of either type; roofline_kernel corrects it. */
	bool elements;
	bool int8; /* the operands of its products are int8 */
};
