/*
 * The matrix products of generic/gemm.cl on tensor cores (tensor.clh): same kernels, same arguments, same options and
 * reference. In float (and for the router) the generic file is used.
 *
 * Local size WARPS * 32; global size groups of PANELS * 16 columns x groups of ROW_BLOCK rows.
 */
#if !BF16
#include "generic/gemm.cl"
#else
#include "tensor.clh"

#define A_PLAIN(r) (A + (ulong)(r) * lda)

__kernel TENSOR_GROUP void gemm_store(__global const elem_t *restrict A, uint lda,
				      __global const elem_t *restrict W, __global float *restrict C,
				      uint ldc, uint M, uint N, uint K)
{
	uint c0 = get_group_id(0) * PANELS * 16, columns = MIN_(N - c0, (uint)(PANELS * 16));
	uint first = get_group_id(1) * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);
	TENSOR_LOCALS;
	PLAIN_PANELS(w, W, c0, N, K);

#define STORE_C(r, c, value, next) C[(ulong)(r) * ldc + c0 + (c)] = (value)
	TENSOR_ROWS(first, end, columns, A_PLAIN, STORE_C)
}

__kernel TENSOR_GROUP void gemm_add(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *restrict C,
				    uint ldc, uint M, uint N, uint K, __global float *restrict dump)
{
	uint c0 = get_group_id(0) * PANELS * 16, columns = MIN_(N - c0, (uint)(PANELS * 16));
	uint first = get_group_id(1) * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);
	TENSOR_LOCALS;
	PLAIN_PANELS(w, W, c0, N, K);

#if DUMP
#define KEEP(v, at) (dump[at] = (v))
#else
#define KEEP(v, at)
#endif
#define ADD_C(r, c, value, next)                                                                   \
	ulong at_ = (ulong)(r)*ldc + c0 + (c);                                                     \
	float v_ = (value);                                                                        \
	KEEP(v_, at_);                                                                             \
	C[at_] += v_
	TENSOR_ROWS(first, end, columns, A_PLAIN, ADD_C)
}
#endif
