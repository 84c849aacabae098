/*
 * The phases of a decode step in one launch (decode_step.cl of kernels/), as layers append them to its work list.
 * A phase is one operation of one layer (a few operations belong to no layer). Its work is cut into columns x rows of
 * *tiles*. (The kernels call tiles parts; the parts of part.h are something else.) A ticket is the work that a
 * work-group takes at once: some tiles of one row. Pure: numbers in, ints out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/step.h"
#include "kernels/kernels.h"

/* The sizes of the tiles of products, from the kernels' cut. */
struct decode_cut {
	/* the groups are a GPU's, which take no tickets (kernels/step.h); the sizes below do not matter then */
	bool resident;
	uint32_t columns;	 /* columns of a tile of a product */
	uint32_t rows;		 /* rows of a tile of a product */
	uint32_t router_columns; /* columns of a tile of the router */
};

struct phase_list {
	const struct kernel_shape *shape;
	const struct decode_cut *cut;
	uint32_t n_tokens;
	int32_t *phase; /* where the next phase is written */
	uint64_t tickets;
};

/* Appends the phase of an operation of columns x rows tiles; a ticket takes up to `take` neighbouring tiles of one row.
 * Resident groups have one ticket a phase, which stands for all of it. */
void phase_add(struct phase_list *l, int op, uint32_t layer, uint64_t columns, uint64_t rows,
	       uint64_t take);

/* Appends the phase of a product with N columns, each a sum of K terms. rows: the rows of tiles, one for each row block
 * (below) or each task of experts (kernels/generic/moe_route.cl). */
void phase_add_product(struct phase_list *l, int op, uint32_t layer, uint64_t N, uint64_t K,
		       uint64_t rows);

/* Returns the number of row blocks of a product over n rows. A row block has as many rows as a tile; the last may have
 * fewer. */
uint64_t phase_row_blocks(const struct phase_list *l, uint32_t n);

/* The buffers that an operation reads and writes; in a dense MLP it may use fewer. Bit 1 << AT_* stands for a buffer
 * that all layers share, PHASE_OWN for the buffers of the parts (part.h) that the operation's layer keeps. The weights
 * of layers are left out. A test checks work lists with these bits. */
#define PHASE_OWN (1u << AT_LAYERS)
struct phase_order {
	int op;
	uint32_t reads, writes;
};
