/*
 * The phases of a decode step in one launch (kernels/generic/decode_step.cl), as layers append them to its work list.
 * Pure: numbers in, ints out.
 */
#pragma once

#include <stdint.h>

#include "kernels/step.h"
#include "kernels/kernels.h"

/* The sizes in which the kernels cut their work. */
struct decode_cut {
	uint32_t columns;	 /* columns of a part of a product */
	uint32_t rows;		 /* rows of a part */
	uint32_t router_columns; /* columns of a part of the router */
};

struct phase_list {
	const struct kernel_shape *shape;
	const struct decode_cut *cut;
	uint32_t n_tokens;
	int32_t *phase; /* where the next phase is written */
	uint64_t tickets;
};

/* Appends the phase of an operation on columns x rows parts; a ticket takes `take` neighbouring columns of one row. */
void phase_add(struct phase_list *l, int op, uint32_t layer, uint64_t columns, uint64_t rows,
	       uint64_t take);

/* Appends the phase of a product with N columns, each a sum of K terms, over `rows` row blocks or tasks of experts. */
void phase_add_product(struct phase_list *l, int op, uint32_t layer, uint64_t N, uint64_t K,
		       uint64_t rows);

/* The number of row blocks of a product over n rows. */
uint64_t phase_row_blocks(const struct phase_list *l, uint32_t n);

/* The buffers that an operation reads and writes: bits 1 << AT_* of those that all layers share. PHASE_OWN stands for
 * the parts that its layer keeps; the weights of layers are left out. A test checks work lists with them. */
#define PHASE_OWN (1u << AT_LAYERS)
struct phase_order {
	int op;
	uint32_t reads, writes;
};
