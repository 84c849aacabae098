/*
 * Router logits on a GPU: C[m, n] = sum_k A[m, k] W[n, k] in float, for few columns and any number of rows.
 *
 *     A       [M, lda] float, row-major, zero padded; in
 *     W       [N, K] float, packed in panels of 16 columns, [panel][K][16]; in
 *     C       [M, ldc] float; out
 *     M rows; N columns and K terms, padded to multiples of 16
 *
 * K is cut into parts of ROUTER_PART terms; the last part may be shorter. A part of an element is one chain of fused
 * additions, k ascending, and the element is the sum of its parts, in ascending order. So all kernels give the same
 * bits:
 *
 *     router        for many rows. A group has the 64 columns of four panels and 64 rows (router_tile.clh).
 *     router_tall   for more rows: a group has 128 of them. A lane reads fewer bytes of local memory for an addition.
 *     router_few    for few rows, or few columns: from panel `first` on. A group has the 16 columns of a panel and at
 *                   most ROUTER_FEW_ROWS rows. SIDE parts of a sum are computed side by side: a lane has one part of
 *                   one column, for all rows of the group.
 *
 * Global size: router and router_tall CEIL(panels / 4) x CEIL(M / rows of a group) groups, router_few panels from
 * `first` on x CEIL(M / ROUTER_FEW_ROWS). Options: common.clh, LANES 256. Reference: reference_gemm.
 */
#include "common.clh"
#include "kernels/chains.h"
#include "kernels/groups.h"
#include "quads.clh"

#define STEP_K	32
#define QUADS	(STEP_K / 4)
#define A_LD	(STEP_K + 4) /* rows begin in different banks of local memory */
#define W_LOADS (STEP_K * ROUTER_COLUMNS / 4 / LANES)

#define ROUTER router
#define ROWS   ROUTER_ROWS
#include "router_tile.clh"
#undef ROUTER
#undef ROWS

#define ROUTER router_tall
#define ROWS   (2 * ROUTER_ROWS)
#include "router_tile.clh"
#undef ROUTER
#undef ROWS

#define SIDE (LANES / 16) /* parts side by side */

/* Adds four terms of each of `rows` rows. `rows` is a constant where this function is inlined. */
GROUP_FUNCTION void add_terms(float *part, uint rows, __global const float *A, uint lda, __global const float *w, uint k)
{
	float w0 = w[k * 16], w1 = w[k * 16 + 16], w2 = w[k * 16 + 32], w3 = w[k * 16 + 48];

#pragma unroll
	for (uint i = 0; i < rows; i++) {
		float4 v = GLOBAL_4(A + (ulong)i * lda + k);

		part[i] = fma(v.x, w0, part[i]);
		part[i] = fma(v.y, w1, part[i]);
		part[i] = fma(v.z, w2, part[i]);
		part[i] = fma(v.w, w3, part[i]);
	}
}

/* Computes the part of `rows` rows that begins with term `first`. */
GROUP_FUNCTION void add_part(float *part, uint rows, __global const float *A, uint lda, __global const float *w,
			     uint first, uint K)
{
#pragma unroll
	for (uint i = 0; i < rows; i++)
		part[i] = 0;
	if (first + ROUTER_PART > K) {
		for (uint k = first; k < K; k += 4)
			add_terms(part, rows, A, lda, w, k);
		return;
	}
#pragma unroll 4
	for (uint k = 0; k < ROUTER_PART; k += 4) /* the number of rounds is a constant: the compiler can load ahead */
		add_terms(part, rows, A, lda, w, first + k);
}

__kernel GROUP_SIZE void router_few(__global const float *restrict A, uint lda, __global const float *restrict W,
				    __global float *restrict C, uint ldc, uint M, uint N, uint K, uint first)
{
	__local float parts[ROUTER_FEW_ROWS * SIDE * 16];
	uint row0 = GROUP_Y * ROUTER_FEW_ROWS, rows = MIN_(M - row0, (uint)ROUTER_FEW_ROWS);
	uint panel = first + GROUP_X, column = LANE % 16;
	uint own = LANE / 16; /* the lane's part, and the row whose parts it adds up */
	__global const float *w = W + (ulong)panel * K * 16 + column;
	float part[ROUTER_FEW_ROWS] = {0}, sum = 0;

	A += (ulong)row0 * lda;
	for (uint k0 = 0; k0 < K; k0 += SIDE * ROUTER_PART) {
		uint own_k = k0 + own * ROUTER_PART, n = MIN_(CEIL_(K - k0, ROUTER_PART), (uint)SIDE);

		if (rows == ROUTER_FEW_ROWS)
			add_part(part, ROUTER_FEW_ROWS, A, lda, w, own_k, K);
		else
			for (uint i = 0; i < rows; i++)
				add_part(part + i, 1, A + (ulong)i * lda, lda, w, own_k, K);
		BARRIER();
#pragma unroll
		for (uint i = 0; i < ROUTER_FEW_ROWS; i++)
			parts[(i * SIDE + own) * 16 + column] = part[i];
		BARRIER();
		for (uint p = 0; p < n; p++)
			sum += parts[(own % ROUTER_FEW_ROWS * SIDE + p) * 16 + column];
	}
	if (own < rows)
		C[(ulong)(row0 + own) * ldc + panel * 16 + column] = sum;
}
