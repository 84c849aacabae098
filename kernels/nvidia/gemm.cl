/*
 * The matrix products of generic/gemm.cl on tensor cores (tensor.clh; quant_rows.clh if weights are quantised), with the
 * same kernel names, arguments and reference. If elements are floats, the generic file is used.
 *
 * Local size WARPS * 32, or QUANT_WARPS * 32. Global size: groups of panels x groups of ROW_BLOCK rows. A group has WARPS
 * panels where K is one chain (tensor.clh), and otherwise one panel; or the panels of quant_rows. Options: ROW_BLOCK, DUMP.
 */
#if !BF16
#include "generic/gemm.cl"
#elif INT8
#include "quant_rows.clh"

__kernel QUANT_GROUP_LANES void gemm_store(__global const elem_t *restrict A, uint lda,
					   __global const elem_t *restrict W, __global float *C, uint ldc, uint M,
					   uint N, uint K)
{
	LOCAL float sums[HAND_OVER(QUANT_WARPS)] QUADS_ALIGNED;
	LOCAL uint quantised[QUANT_WARPS];
	uint first = get_group_id(1) * ROW_BLOCK;

	quant_rows(A, lda, W, 0, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, K, 0, false, 0, sums, quantised);
}

__kernel QUANT_GROUP_LANES void gemm_add(__global const elem_t *restrict A, uint lda,
					 __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
					 uint K, __global float *dump)
{
	LOCAL float sums[HAND_OVER(QUANT_WARPS)] QUADS_ALIGNED;
	LOCAL uint quantised[QUANT_WARPS];
	uint first = get_group_id(1) * ROW_BLOCK;

	quant_rows(A, lda, W, 0, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, K, 0, true, DUMP ? dump : 0, sums,
		   quantised);
}
#else
#include "tensor.clh"

__kernel TENSOR_GROUP void gemm_store(__global const elem_t *restrict A, uint lda,
				      __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
				      uint K)
{
	uint first = get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, false, 0, false, 0);
}

__kernel TENSOR_GROUP void gemm_add(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
				    uint K, __global float *dump)
{
	uint first = get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, false, 0, true, DUMP ? dump : 0);
}
#endif
