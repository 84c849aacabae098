/*
 * Router logits on a GPU: C[m, n] = sum_k A[m, k] W[n, k] in float, for few columns and any number of rows.
 *
 *     A       [M, lda] float, row-major, zero padded; in
 *     W       [N, K] float, packed in panels of 16 columns, [panel][K][16]; in
 *     C       [M, ldc] float; out
 *     M rows; N columns and K terms, padded to multiples of 16
 *
 * K is cut into parts of PART terms; the last part may be shorter. A part of an element is one chain of fused
 * additions, k ascending, and the element is the sum of its parts, in ascending order. So both kernels give the same
 * bits:
 *
 *     router        for many rows. A group has the 64 columns of four panels and ROWS rows, and a lane four columns and
 *                   LANE_ROWS rows. STEP_K terms at a time go through local memory, and the next ones are loaded
 *                   meanwhile.
 *     router_few    for few rows. A group has the 16 columns of a panel and at most FEW_ROWS rows. SIDE parts of a
 *                   sum are computed side by side: a lane has one part of one column, for all rows of the group.
 *
 * Global size: router CEIL(panels / 4) x CEIL(M / ROWS) groups, router_few panels x CEIL(M / FEW_ROWS). Options:
 * common.clh, LANES 256. Reference: reference_gemm.
 */
#include "common.clh"
#include "quads.clh"

#define PART 128

#define LANE_ROWS 4
#define ROWS	  (LANES / 16 * LANE_ROWS)
#define COLUMNS	  64
#define STEP_K	  32
#define QUADS	  (STEP_K / 4)
#define A_LD	  (STEP_K + 4) /* rows begin in different banks of local memory */
#define A_LOADS	  (ROWS * QUADS / LANES)
#define W_LOADS	  (STEP_K * COLUMNS / 4 / LANES)

__kernel GROUP_SIZE void router(__global const float *restrict A, uint lda, __global const float *restrict W,
				__global float *restrict C, uint ldc, uint M, uint N, uint K)
{
	__local float a[ROWS * A_LD] QUADS_ALIGNED, w[STEP_K * COLUMNS] QUADS_ALIGNED;
	uint row0 = GROUP_Y * ROWS, column0 = GROUP_X * COLUMNS, column = LANE % 16 * 4;
	uint own = LANE / 16 * LANE_ROWS; /* the first of the lane's rows */
	float4 next_a[A_LOADS], next_w[W_LOADS], part[LANE_ROWS], sum[LANE_ROWS];

#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++)
		part[i] = sum[i] = 0;
	for (uint k0 = 0; k0 < K + STEP_K; k0 += STEP_K) {
		BARRIER();
#pragma unroll
		for (uint i = 0; i < A_LOADS && k0; i++) { /* the terms that were loaded in the round before */
			uint at = LANE + i * LANES;

			SET_LOCAL_4(a + at / QUADS * A_LD + at % QUADS * 4, next_a[i]);
		}
#pragma unroll
		for (uint i = 0; i < W_LOADS && k0; i++)
			SET_LOCAL_4(w + (LANE + i * LANES) * 4, next_w[i]);
		BARRIER();
#pragma unroll
		for (uint i = 0; i < A_LOADS; i++) {
			uint at = LANE + i * LANES, r = row0 + at / QUADS, k = k0 + at % QUADS * 4;

			next_a[i] = r < M && k < K ? GLOBAL_4(A + (ulong)r * lda + k) : (float4)0;
		}
#pragma unroll
		for (uint i = 0; i < W_LOADS; i++) {
			uint at = LANE + i * LANES, c = at % 16 * 4, k = k0 + at / 16, n = column0 + c;

			next_w[i] = n < N && k < K ? GLOBAL_4(W + (ulong)(n / 16) * K * 16 + k * 16 + c % 16)
						   : (float4)0;
		}
		if (k0) {
			uint n = MIN_(K - (k0 - STEP_K), (uint)STEP_K);

			for (uint k = 0; k < n; k += 4) {
				float4 v[LANE_ROWS], u[4];

#pragma unroll
				for (uint i = 0; i < LANE_ROWS; i++)
					v[i] = LOCAL_4(a + (own + i) * A_LD + k);
#pragma unroll
				for (uint j = 0; j < 4; j++)
					u[j] = LOCAL_4(w + (k + j) * COLUMNS + column);
#pragma unroll
				for (uint i = 0; i < LANE_ROWS; i++) {
					part[i] = fma((float4)v[i].x, u[0], part[i]);
					part[i] = fma((float4)v[i].y, u[1], part[i]);
					part[i] = fma((float4)v[i].z, u[2], part[i]);
					part[i] = fma((float4)v[i].w, u[3], part[i]);
				}
			}
			if (k0 % PART == 0 || k0 >= K)
#pragma unroll
				for (uint i = 0; i < LANE_ROWS; i++) {
					sum[i] += part[i];
					part[i] = 0;
				}
		}
	}
#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++)
		if (row0 + own + i < M && column0 + column < N)
			*(__global float4 *)(C + (ulong)(row0 + own + i) * ldc + column0 + column) = sum[i];
}

#define FEW_ROWS 4
#define SIDE	 (LANES / 16) /* parts side by side */

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
	if (first + PART > K) {
		for (uint k = first; k < K; k += 4)
			add_terms(part, rows, A, lda, w, k);
		return;
	}
#pragma unroll 4
	for (uint k = 0; k < PART; k += 4) /* the number of rounds is a constant: the compiler can load ahead */
		add_terms(part, rows, A, lda, w, first + k);
}

__kernel GROUP_SIZE void router_few(__global const float *restrict A, uint lda, __global const float *restrict W,
				    __global float *restrict C, uint ldc, uint M, uint N, uint K)
{
	__local float parts[FEW_ROWS * SIDE * 16];
	uint row0 = GROUP_Y * FEW_ROWS, rows = MIN_(M - row0, (uint)FEW_ROWS);
	uint column = LANE % 16, own = LANE / 16; /* own: the lane's part, and the row whose parts it adds up */
	__global const float *w = W + (ulong)GROUP_X * K * 16 + column;
	float part[FEW_ROWS] = {0}, sum = 0;

	A += (ulong)row0 * lda;
	for (uint k0 = 0; k0 < K; k0 += SIDE * PART) {
		uint first = k0 + own * PART, n = MIN_(CEIL_(K - k0, PART), (uint)SIDE);

		if (rows == FEW_ROWS)
			add_part(part, FEW_ROWS, A, lda, w, first, K);
		else
			for (uint i = 0; i < rows; i++)
				add_part(part + i, 1, A + (ulong)i * lda, lda, w, first, K);
		BARRIER();
#pragma unroll
		for (uint i = 0; i < FEW_ROWS; i++)
			parts[(i * SIDE + own) * 16 + column] = part[i];
		BARRIER();
		for (uint p = 0; p < n; p++)
			sum += parts[(own % FEW_ROWS * SIDE + p) * 16 + column];
	}
	if (own < rows)
		C[(ulong)(row0 + own) * ldc + GROUP_X * 16 + column] = sum;
}
