/*
 * Router logits on a GPU: C[m, n] = sum_k A[m, k] W[n, k] in float, for few columns and any number of rows.
 *
 *     A       [M, lda] float, row-major, zero padded; in
 *     W       [N, K] float, packed in panels of 16 columns, [panel][K][16]; in
 *     C       [M, ldc] float; out
 *     M rows; N columns and K terms, padded to multiples of 16
 *
 * A group has the 16 columns of a panel and ROWS rows; a lane has one column and LANE_ROWS rows. STEP_K terms at a time
 * go through local memory, and the next STEP_K terms are loaded meanwhile. Each element is one chain of fused
 * additions, k ascending, as in gemm_core.clh: the bits are those of gemm_store in float.
 *
 * Global size: panels x groups of ROWS rows. Options: common.clh, LANES 256. Reference: reference_gemm.
 */
#include "common.clh"
#include "quads.clh"

#define LANE_ROWS 4
#define ROWS (LANES / 16 * LANE_ROWS)
#define STEP_K	  64
#define QUADS	  (STEP_K / 4)
#define A_LD	  (STEP_K + 4) /* rows begin in different banks of local memory */
#define A_LOADS	  (ROWS * QUADS / LANES)

__kernel GROUP_SIZE void router(__global const float *restrict A, uint lda, __global const float *restrict W,
				__global float *restrict C, uint ldc, uint M, uint N, uint K)
{
	__local float a[ROWS * A_LD] QUADS_ALIGNED, w[STEP_K * 16] QUADS_ALIGNED;
	uint panel = GROUP_X, row0 = GROUP_Y * ROWS, rows = MIN_(M - row0, (uint)ROWS);
	uint column = LANE % 16, own = LANE / 16 * LANE_ROWS; /* the first of the lane's rows */
	__global const float *from = W + (ulong)panel * K * 16 + LANE * 4;
	float acc[LANE_ROWS];
	float4 next_a[A_LOADS], next_w = 0;

#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++)
		acc[i] = 0;
	for (uint k0 = 0; k0 < K + STEP_K; k0 += STEP_K) {
		if (k0) { /* puts the terms that were loaded in the round before into local memory */
			BARRIER();
#pragma unroll
			for (uint i = 0; i < A_LOADS; i++)
				SET_LOCAL_4(a + (LANE + i * LANES) / QUADS * A_LD + LANE % QUADS * 4, next_a[i]);
			if (LANE < STEP_K * 4)
				SET_LOCAL_4(w + LANE * 4, next_w);
			BARRIER();
		}
		if (k0 < K) {
#pragma unroll
			for (uint i = 0; i < A_LOADS; i++) {
				uint r = (LANE + i * LANES) / QUADS, k = k0 + LANE % QUADS * 4;

				next_a[i] = r < rows && k < K ? GLOBAL_4(A + (ulong)(row0 + r) * lda + k)
							     : (float4)0;
			}
			if (LANE < STEP_K * 4 && k0 + LANE / 4 < K)
				next_w = GLOBAL_4(from + (ulong)k0 * 16);
		}
		if (k0 && own < rows) {
			uint n = MIN_(K - (k0 - STEP_K), (uint)STEP_K);

			for (uint k = 0; k < n; k += 4) {
				float wk[4];

#pragma unroll
				for (uint j = 0; j < 4; j++)
					wk[j] = w[(k + j) * 16 + column];
#pragma unroll
				for (uint i = 0; i < LANE_ROWS; i++) {
					float4 v = LOCAL_4(a + (own + i) * A_LD + k);

					acc[i] = fma(v.x, wk[0], acc[i]);
					acc[i] = fma(v.y, wk[1], acc[i]);
					acc[i] = fma(v.z, wk[2], acc[i]);
					acc[i] = fma(v.w, wk[3], acc[i]);
				}
			}
		}
	}
#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++)
		if (own + i < rows)
			C[(ulong)(row0 + own + i) * ldc + panel * 16 + column] = acc[i];
}
