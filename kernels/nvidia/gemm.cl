/*
 * The matrix products of generic/gemm.cl on tensor cores (tensor.clh), with the same kernel names,
 * arguments and reference. If elements are floats, the generic file is used.
 *
 * Local size WARPS * 32. Global size: groups of panels x groups of ROW_BLOCK rows. A group has WARPS panels where K is
 * one chain (tensor.clh), and otherwise one panel. Options: ROW_BLOCK, DUMP.
 */
#if !BF16
#include "generic/gemm.cl"
#else
#include "tensor.clh"

__kernel TENSOR_GROUP void gemm_store(__global const elem_t *restrict A, uint lda,
				      __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
				      uint K)
{
	uint first = get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, 0, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, false, 0, false, 0);
}

__kernel TENSOR_GROUP void gemm_add(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
				    uint K, __global float *dump)
{
	uint first = get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, 0, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, false, 0, true, DUMP ? dump : 0);
}
#endif
