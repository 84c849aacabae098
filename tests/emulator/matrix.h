/* Matrices and inputs of products, for the tests of the emulator. Memory stays until the end of the process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/quant.h"

typedef uint16_t elem_t; /* bf16 */

/* Return a number of bf16 between -2 and 2, and n such numbers. */
float random_element(void);
float *random_elements(size_t n);

elem_t element_of(float x);
float float_of(elem_t v);

/* A matrix of panels of stages (kernels/quant_stages.h) of random types, and plain ones among them. With PLAIN a matrix
 * of fragments (kernels/kernels.h), and `decoded` is the same. */
struct matrix {
	unsigned rows, K;
	float *weights; /* [rows, K] numbers of bf16, those of quantised panels decoded (nvidia/panel.clh) */
	float *exact;	       /* the same before they were rounded to bf16 */
	const bool *quantised; /* [rows / 16] whether each panel is */
	const elem_t *packed;  /* the matrix as kernels read it */
	const elem_t *decoded; /* the same numbers in plain panels alone */
};

/* Makes a matrix of `rows` (a multiple of 16) rows of K weights. */
struct matrix make_matrix(unsigned rows, unsigned K);

/* Returns what an embedding's rows are read from: m.packed, or with PLAIN its rows as elements. */
const elem_t *embedding_of(const struct matrix *m);

/* Returns inputs [n, K] of x [n, K]. */
elem_t *make_inputs(const float *x, unsigned n, unsigned K);
