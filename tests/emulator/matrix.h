/* Matrices and inputs of products with quantised weights, for the tests of the emulator. Memory is that of the process. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/quant.h"

typedef uint16_t elem_t; /* bf16 */

/* Return a number of bf16 between -2 and 2, and n such numbers. */
float random_element(void);
float *random_elements(size_t n);

elem_t element_of(float x);
float float_of(elem_t v);

/* A matrix of panels (kernels/quant.h) of random types, and plain ones among them. */
struct matrix {
	unsigned rows, K;
	const struct quant_type **types; /* of each panel; NULL: plain */
	const uint8_t **panels;
	float *plain; /* [rows, K] */
	const elem_t *packed;
};

/* Makes a matrix of `rows` (a multiple of 16) rows of K weights. */
struct matrix make_matrix(unsigned rows, unsigned K);

/* Returns the row stride, in elements, of inputs of K columns (generic/input.clh). */
unsigned input_ld(unsigned K);

/* Returns inputs [n][input_ld(K)] of x [n, K]. */
elem_t *make_inputs(const float *x, unsigned n, unsigned K);
