/*
 * The costs of layers, for the roofline (engine/roofline.h says what counts). Weights, their products, KV and states follow
 * from the tables of weights and pieces; these types are for the rest.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What the rows of a step sum up to. */
struct cost_step {
	double element; /* bytes */
	double tokens, prefill_tokens;
	double rows, resumed; /* resumed: rows that read a state */
	double prefill_rows, prefill_resumed;
	double context; /* tokens whose KV is read */
	double keys;	/* pairs of a query and a key it sees */
};

/* The work of one launch. */
struct roofline_work {
	double bytes, flops;
	bool elements; /* the products are of elements: bf16 instructions can do them */
	bool int8;     /* they are of int8; their scales do not count as bytes */
};
