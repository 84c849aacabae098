/*
 * The products of rows that generate with their mixer's projections, on tensor cores: C = A W, or C += A W, with the
 * chains cut into parts (tensor.clh).
 *
 * Arguments: as in generic/gemm.cl; `first`: the rows from there on are computed, M is the number of all rows. Local
 * size, global size (for M - first rows) and options as in nvidia/gemm.cl. Reference: reference_gemm.
 */
#include "tensor.clh"

__kernel TENSOR_GROUP void gemm_store_parts(__global const elem_t *restrict A, uint lda,
					    __global const elem_t *restrict W, __global float *C, uint ldc, uint first,
					    uint M, uint N, uint K)
{
	uint r = first + get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, 0, C, ldc, r, MIN_(M, r + ROW_BLOCK), N, K, true, 0, false, 0);
}

__kernel TENSOR_GROUP void gemm_add_parts(__global const elem_t *restrict A, uint lda,
					  __global const elem_t *restrict W, __global float *C, uint ldc, uint first,
					  uint M, uint N, uint K, __global float *dump)
{
	uint r = first + get_group_id(1) * ROW_BLOCK;

	tensor_rows(A, lda, W, 0, C, ldc, r, MIN_(M, r + ROW_BLOCK), N, K, true, 0, true, DUMP ? dump : 0);
}
