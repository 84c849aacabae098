/*
 * The phases of a decode step in one launch (kernels/generic/decode_step.cl), as layers append them to its work list.
 * Pure: numbers in, ints out.
 */
#pragma once

#include <stdint.h>

#include "kernels/step.h"
#include "kernels/kernels.h"

/* How the kernels cut their work. */
struct decode_cut {
	uint32_t columns;	 /* of a part of a product */
	uint32_t rows;		 /* of a part */
	uint32_t router_columns; /* of the router */
};

struct phase_list {
	const struct kernel_shape *shape;
	const struct decode_cut *cut;
	uint32_t n_tokens;
	int32_t *phase; /* the next one */
	uint64_t tickets;
};

/* An operation on columns x rows parts; a ticket takes `take` neighbouring columns of one row. */
void phase_add(struct phase_list *l, int op, uint32_t layer, uint64_t columns, uint64_t rows,
	       uint64_t take);

/* A product with N columns and K terms, over `rows` row blocks or tasks. */
void phase_add_product(struct phase_list *l, int op, uint32_t layer, uint64_t N, uint64_t K,
		       uint64_t rows);

/* Row blocks of a product over n rows. */
uint64_t phase_row_blocks(const struct phase_list *l, uint32_t n);

/* The buffers of all layers that an operation reads and writes: bits 1 << AT_*. PHASE_OWN stands for the pieces that its
 * layer keeps. A test holds every work list against these. */
#define PHASE_OWN (1u << AT_LAYERS)
struct phase_order {
	int op;
	uint32_t reads, writes;
};
