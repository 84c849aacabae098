/* The matrix products of generic/moe_gemm.cl on tensor cores (tensor.clh): same kernels, same arguments, same options
 * and reference. In float the generic file is used.
 *
 * Local size WARPS * 32; global size groups of PANELS * 16 columns (gate_up: of 16, whose gate and up panels are the
 * group's) x the largest number of tasks possible. */
#if !BF16
#include "generic/moe_gemm.cl"
#else
#include "tensor.clh"

#define ACT_ROW(r) (act + (ulong)(r)*ACT_LD)

__kernel TENSOR_GROUP void moe_gate_up(__global const elem_t *restrict h,
				       __global const elem_t *restrict experts,
				       __global const elem_t *restrict shared,
				       __global const int *restrict tasks,
				       __global const int *restrict rows, __global elem_t *restrict act)
{
	const uint K = LD(HIDDEN);
	uint i = get_group_id(1), c0 = get_group_id(0) * 16;
	TENSOR_LOCALS;

	if (i >= (uint)tasks[0])
		return;
	uint expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT], first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	uint end = first + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	uint N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	__global const elem_t *W =
		expert < EXPERTS ? experts + (ulong)expert * 2 * LD(EXPERT_SIZE) * K : shared;

	if (c0 >= N)
		return;
	/* Gate and up panels alternate: the group's two are those of one block of columns. */
	__global const elem_t *w[PANELS] = {W + (ulong)(c0 / 16 * 2) * K * 16,
					    W + (ulong)(c0 / 16 * 2 + 1) * K * 16};

#define A_GATHER(r) (h + (ulong)(rows[r] / (TOPK + 1)) * K)
#define STORE_ACT(r, c, gate, up) E_STORE(silu_v(gate) * (up), ACT_ROW(r) + c0 + (c))
	TENSOR_ROWS(first, end, 16, A_GATHER, STORE_ACT)
}

__kernel TENSOR_GROUP void moe_down(__global const elem_t *restrict act,
				    __global const elem_t *restrict experts,
				    __global const elem_t *restrict shared,
				    __global const int *restrict tasks,
				    __global const int *restrict rows, __global float *restrict y)
{
	const uint N = LD(HIDDEN);
	uint i = get_group_id(1), c0 = get_group_id(0) * PANELS * 16;
	uint columns = MIN_(N - c0, (uint)(PANELS * 16));
	TENSOR_LOCALS;

	if (i >= (uint)tasks[0])
		return;
	uint expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT], first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	uint end = first + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	uint K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	__global const elem_t *W =
		expert < EXPERTS ? experts + (ulong)expert * LD(HIDDEN) * K : shared;
	PLAIN_PANELS(w, W, c0, N, K);

#define STORE_SLOT(r, c, value, next) y[(ulong)rows[r] * LD(HIDDEN) + c0 + (c)] = (value)
	TENSOR_ROWS(first, end, columns, ACT_ROW, STORE_SLOT)
}
#endif
