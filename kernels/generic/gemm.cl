/*
 * Matrix products C[m, n] = sum_k A[m, k] W[n, k].
 *
 *     gemm_store    C = A W
 *     gemm_add      C += A W, where C is the residual stream. With the option DUMP the product A W goes to dump as
 *                   well.
 *
 *     A       [M, lda] elem_t, row-major, zero padded; in
 *     W       [N, K] elem_t, packed in panels of 16 columns of the product (kernels.h, enum kernel_packing); in
 *     C       [M, ldc] float; out, or in and out
 *     dump    [M, ldc] float; out, with DUMP
 *     M rows of A and C; N columns of C and K terms of a sum, padded to multiples of 16
 *
 * Each element is one chain of fused additions in float (two chains with some cuts of the x86 variant), in the order of
 * gemm_core.clh. Global size: groups of NPG * LANES * VEC columns x groups of ROW_BLOCK rows.
 * Options: gemm.clh, ROW_BLOCK, DUMP. Reference: reference_gemm.
 */
#include "gemm.clh"

#define A_PLAIN(r) (A + (ulong)(r) * lda)
#define W_PLAIN(j) panel(W, 0, COLUMN(j), N, K, 1, 0)

GROUP_FUNCTION void gemm_store_group(uint gx, uint gy, __global const elem_t *A, uint lda,
				     __global const elem_t *W, __global float *C, uint ldc, uint M, uint N, uint K)
{
	uint first = gy * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);

#define STORE_C(r, j, acc)                                                                         \
	if (COLUMN(j) < N)                                                                         \
	V_STORE((acc)[0], C + (ulong)(r) * ldc + COLUMN(j))
	ALL_ROWS(first, end, BLOCKS(N), A_PLAIN, W_PLAIN, STORE_C)
}

GROUP_FUNCTION void gemm_add_group(uint gx, uint gy, __global const elem_t *A, uint lda,
				   __global const elem_t *W, __global float *C, uint ldc, uint M, uint N, uint K,
				   __global float *dump)
{
	uint first = gy * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);

#if DUMP
#define KEEP(v, at) V_STORE(v, dump + (at))
#else
#define KEEP(v, at)
#endif
#define ADD_C(r, j, acc)                                                                           \
	if (COLUMN(j) < N) {                                                                       \
		ulong at_ = (ulong)(r) * ldc + COLUMN(j);                                          \
                                                                                                   \
		KEEP((acc)[0], at_);                                                               \
		V_STORE(V_LOAD(C + at_) + (acc)[0], C + at_);                                      \
	}
	ALL_ROWS(first, end, BLOCKS(N), A_PLAIN, W_PLAIN, ADD_C)
}

#ifndef STEP
__kernel GROUP_SIZE void gemm_store(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *restrict C,
				    uint ldc, uint M, uint N, uint K)
{
	gemm_store_group(GROUP_X, GROUP_Y, A, lda, W, C, ldc, M, N, K);
}

__kernel GROUP_SIZE void gemm_add(__global const elem_t *restrict A, uint lda,
				  __global const elem_t *restrict W, __global float *restrict C,
				  uint ldc, uint M, uint N, uint K, __global float *restrict dump)
{
	gemm_add_group(GROUP_X, GROUP_Y, A, lda, W, C, ldc, M, N, K, dump);
}
#endif
