/* The matrix products of generic/moe_gemm.cl on tensor cores (tensor.clh). The kernels have the names, the arguments
 * and the reference of those in the generic file. If elements are floats, the generic file is used.
 *
 * Local size WARPS * 32. Global size: groups of panels (tensor.clh) x the largest number of tasks possible. A group of
 * moe_gate_up has 16 columns: their gate panel belongs to the first warp, their up panel to the second. */
#if !BF16
#include "generic/moe_gemm.cl"
#else
#include "activation.clh"
#include "tensor.clh"

/* The number of the group's task. The last tasks begin first: they are the shared expert's, which has a row for every
 * token. */
#define LAST_FIRST(tasks) ((uint)(tasks)[0] - 1 - (uint)get_group_id(1))

/* Computes one tile of moe_gate_up: rows r .. r + n - 1. A sum of moe_gate_up is one chain (tensor.clh), whatever K is,
 * because the activation needs the whole sum. */
#define GATE_UP_TILE(chain, NT, r, n)                                                              \
	{                                                                                          \
		uint a_[NT];                                                                       \
		float acc_[NT][4];                                                                 \
                                                                                                   \
		_Pragma("unroll") for (uint t_ = 0; t_ < NT; t_++)                                 \
			a_[t_] = (uint)rows[(r) + MIN_(t_ * 8 + lane / 4, (n)-1)] / (TOPK + SHARED) * K; \
		chain(acc_, h, a_, w, K);                                                           \
		if (THREAD >= 32)                                                                  \
			_Pragma("unroll") for (uint i_ = 0; i_ < NT * 4; i_++)                     \
				up[i_ * 32 + lane] = acc_[i_ / 4][i_ % 4];                         \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		if (THREAD < 32)                                                                   \
			_Pragma("unroll") for (uint i_ = 0; i_ < NT * 4; i_++)                     \
			{                                                                          \
				uint row_ = i_ / 4 * 8 + lane % 4 * 2 + i_ % 2;                    \
                                                                                                   \
				if (row_ < (n))                                                    \
					E_STORE(activation_v(acc_[i_ / 4][i_ % 4]) * up[i_ * 32 + lane], \
						act + (ulong)((r) + row_) * ACT_LD + c0 + lane / 4 + i_ % 4 / 2 * 8); \
			}                                                                          \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
	}

__kernel TENSOR_GROUP void moe_gate_up(__global const elem_t *restrict h,
				       __global const elem_t *restrict experts,
				       __global const elem_t *restrict shared,
				       __global const int *restrict tasks,
				       __global const int *restrict rows, __global elem_t *restrict act)
{
	const uint K = LD(HIDDEN), lane = THREAD % 32;
	uint c0 = get_group_id(0) * 16;
	__local float up[64 * 16];

	if (get_group_id(1) >= (uint)tasks[0])
		return;
	uint i = LAST_FIRST(tasks);
	uint expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT], first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	uint end = first + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	uint N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);

	if (c0 >= N)
		return;
	/* Gate and up panels alternate. */
	const uint panel = c0 / 16 * 2 + THREAD / 32;
	panel_t w = expert < EXPERTS ? PANEL_OF(experts, expert * 2 * (LD(EXPERT_SIZE) / 16) + panel, K) :
				       PANEL_OF(shared, panel, K);
	for (uint r = first; r < end;) {
		uint n = MIN_(end - r, 64u);

		if (n <= 8)
			GATE_UP_TILE(chain_8, 1, r, n)
		else
			GATE_UP_TILE(chain_64, 8, r, n)
		r += n;
	}
}

__kernel TENSOR_GROUP void moe_down(__global const elem_t *restrict act,
				    __global const elem_t *restrict experts,
				    __global const elem_t *restrict shared,
				    __global const int *restrict tasks, __global const int *restrict rows,
				    __global float *y)
{
	const uint N = LD(HIDDEN);

	if (get_group_id(1) >= (uint)tasks[0])
		return;
	uint i = LAST_FIRST(tasks);
	uint expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT], first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	uint K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);

	tensor_rows(act, ACT_LD, expert < EXPERTS ? experts : shared, expert < EXPERTS ? expert * (LD(HIDDEN) / 16) : 0, y,
		    LD(HIDDEN), first, first + (uint)tasks[TASK_AT(i) + TASK_COUNT], N, K, false, rows, false, 0);
}
#endif
