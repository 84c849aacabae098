/*
 * The matrix products of generic/gemm.cl on tensor cores (tensor.clh). The kernels have the names, the arguments and
 * the reference of those in the generic file. If elements are floats, the generic file is used.
 *
 * Local size WARPS * 32; global size groups of panels (tensor.clh) x groups of ROW_BLOCK rows.
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

	tensor_rows(A, lda, W, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, 0, false, 0);
}

__kernel TENSOR_GROUP void gemm_add(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
				    uint K, __global float *dump)
{
	uint first = get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, C, ldc, first, MIN_(M, first + ROW_BLOCK), N, K, 0, true, DUMP ? dump : 0);
}
#endif
