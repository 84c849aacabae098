/* Makes synthetic weights in device memory (synthetic.clh has the function and its reasons).
 *
 *     synthesize        fills a packed matrix, or every stride-th panel of one; [rows, cols] are the filled rows before
 *                       packing, 16 of them for each panel (the last panel may have fewer)
 *     synthesize_rows   fills a row-major table
 *
 *     W            panels of 16 x LD(cols) elem_t, from panel first_panel on, packed as PACKING says (a value of enum
 *                  kernel_packing, kernels.h; CODED: as PAIRS, which the host codes afterwards); padding is zero; out
 *     table        [rows, LD(cols)] elem_t; out
 *     key, scale, offset   of the weight (synthetic.clh)
 *
 * Global size: one group for each panel that is filled, or for each row of the table. Options: PACKING. Reference:
 * weights_row, element by element. */
#include "common.clh"
#include "synthetic.clh"

static inline elem_t element(ulong key, float scale, float offset, ulong row, ulong col, ulong rows,
			     ulong cols)
{
	uint bits = 0;

	if (row < rows && col < cols)
		bits = synthetic_bf16(key, scale, offset, row * cols + col);
#if BF16
	return (ushort)bits;
#else
	return bf16_widen((ushort)bits);
#endif
}

__kernel GROUP_SIZE void synthesize(__global elem_t *restrict W, ulong first_panel, uint stride,
				    ulong rows, ulong cols, ulong key, float scale, float offset)
{
	ulong p = get_group_id(0), K = LD(cols);
	__global elem_t *out = W + (first_panel + p * stride) * K * 16;

	FOR_ITEMS (i, K * 16) {
#if PACKING == 0
		uint row = i % 16, col = i / 16;
#elif PACKING == 1 || PACKING == 3 /* 3: the host codes the pairs afterwards */
		uint row = i % 32 / 2, col = i / 32 * 2 + i % 2;
#else
		uint lane = i % 256 / 8, e = i % 8;
		uint row = lane / 4 + e / 2 % 2 * 8, col = i / 256 * 16 + lane % 4 * 2 + e % 2 + e / 4 * 8;
#endif
		out[i] = element(key, scale, offset, p * 16 + row, col, rows, cols);
	}
}

__kernel GROUP_SIZE void synthesize_rows(__global elem_t *restrict table, ulong rows, ulong cols, ulong key,
					 float scale, float offset)
{
	ulong row = get_group_id(0);

	FOR_ITEMS (c, LD(cols))
		table[row * LD(cols) + c] = element(key, scale, offset, row, c, rows, cols);
}
