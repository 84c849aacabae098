/*
 * Synthetic weights, made where they are used (synthetic.clh has the function and its reasons).
 *
 * synthesize: a packed matrix, or every stride-th panel of one. One group a panel of 16 rows of the logical
 *     matrix [rows, cols]; padding is zero. Packed [panel][K][16], or [panel][K/2][16][2] with PAIRS.
 * synthesize_rows: a row-major table [rows, LD(cols)], one group a row.
 *
 * Options: PAIRS. Tested against weights_row, element by element.
 */
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
#if PAIRS
		ulong col = i / 32 * 2 + i % 2, row = p * 16 + i % 32 / 2;
#else
		ulong col = i / 16, row = p * 16 + i % 16;
#endif
		out[i] = element(key, scale, offset, row, col, rows, cols);
	}
}

__kernel GROUP_SIZE void synthesize_rows(__global elem_t *restrict table, ulong rows, ulong cols, ulong key,
					 float scale, float offset)
{
	ulong row = get_group_id(0);

	FOR_ITEMS (c, LD(cols))
		table[row * LD(cols) + c] = element(key, scale, offset, row, c, rows, cols);
}
