#include "engine/layers/phases.h"

#include <string.h>

#include "base/macros.h"

/* The most bytes of weights that a ticket of a product reads, unless a single tile reads more. With so many bytes,
 * handing out tickets costs about a hundredth of the step's time. */
enum { TICKET_BYTES = 64 << 10 };

void phase_add(struct phase_list *l, int op, uint32_t layer, uint64_t columns, uint64_t rows,
	       uint64_t take)
{
	const bool one = l->cut->resident;
	const int32_t phase[PHASE_INTS] = {
		[PHASE_OP] = op,
		[PHASE_LAYER] = (int32_t)layer,
		[PHASE_FIRST] = (int32_t)l->tickets,
		[PHASE_COLUMNS] = one ? 1 : (int32_t)columns,
		[PHASE_TAKE] = one ? 1 : (int32_t)take,
	};

	memcpy(l->phase, phase, sizeof(phase));
	l->phase += PHASE_INTS;
	l->tickets += one ? 1 : CEIL_DIV(columns, take) * rows;
}

void phase_add_product(struct phase_list *l, int op, uint32_t layer, uint64_t N, uint64_t K,
		       uint64_t rows)
{
	uint64_t bytes = l->cut->columns * K * (l->shape->bf16 ? 2 : 4);

	phase_add(l, op, layer, CEIL_DIV(N, l->cut->columns), rows,
		  MAX(TICKET_BYTES / MAX(bytes, (uint64_t)1), (uint64_t)1));
}

uint64_t phase_row_blocks(const struct phase_list *l, uint32_t n)
{
	return CEIL_DIV(n, l->cut->rows);
}
