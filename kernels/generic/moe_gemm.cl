/*
 * The matrix products of an MLP, over rows that are sorted by expert (moe_route.cl).
 *
 *     moe_gate_up   act = f(h G) * (h U), f of activation.clh. Rows are gathered from h; the panels of gate G and up U
 *                   alternate
 *     moe_down      y = act D. Rows are scattered to their token's slots
 *
 * A task is (expert, first row, count); expert EXPERTS is the shared one, which every token takes. A token has TOPK +
 * SHARED slots, one for each expert that it takes, the last for the shared one, if there is one (SHARED 1). A row is a
 * token and a slot, as a number in `rows`: token * (TOPK + SHARED) + slot.
 *
 *     h         [T, IN_LD(HIDDEN)] elem_t (input.clh); in
 *     experts   [EXPERTS] matrices of weights, shared: one; packed as in gemm.cl: gate_up [2 LD(EXPERT_SIZE), HIDDEN],
 *               down [HIDDEN, EXPERT_SIZE], the shared expert's with SHARED_SIZE; in
 *     tasks     [TASK_AT(n)] int, rows [T * (TOPK + SHARED)] int (kernels/step.h, moe_route.cl); in
 *     act       [T * (TOPK + SHARED), ACT_LD] elem_t, inputs of EXPERT_SIZE and SHARED_SIZE columns; out of
 *               moe_gate_up, into moe_down
 *     y         [T * (TOPK + SHARED), LD(HIDDEN)] float; out
 *
 * Each sum is one chain of fused additions in float (two chains with some cuts of the x86 variant), in the order of
 * gemm_core.clh. Global size: groups of NPG * LANES * VEC columns x the largest number of tasks possible; groups past
 * the last task return.
 * Options: gemm.clh, activation.clh, EXPERTS, TOPK, SHARED, HIDDEN, EXPERT_SIZE, SHARED_SIZE, ACT_LD. Reference:
 * reference_gate_up, reference_gemm.
 */
#include "activation.clh"
#include "gemm.clh"

/* Reads task i of the list that moe_sort wrote. Past the list's end *count becomes 0. */
static inline void moe_task(__global const int *tasks, uint i, uint *expert, uint *first, uint *count)
{
	*count = 0;
	if (i >= (uint)tasks[0])
		return;
	*expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT];
	*first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	*count = (uint)tasks[TASK_AT(i) + TASK_COUNT];
}

GROUP_FUNCTION void moe_gate_up_group(uint gx, uint gy, __global const elem_t *h, __global const elem_t *experts,
				      __global const elem_t *shared, __global const int *tasks,
				      __global const int *rows, __global elem_t *act)
{
	const uint K = LD(HIDDEN);
	uint expert, first, count, N, first_panel;
	__global const elem_t *W;

	moe_task(tasks, gy, &expert, &first, &count);
	if (!count)
		return;
	N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	W = expert < EXPERTS ? experts : shared;
	first_panel = expert < EXPERTS ? expert * 2 * (LD(EXPERT_SIZE) / 16) : 0;
	if (COLUMN(0) - LANE * VEC >= N)
		return;
#define A_GATHER(r)   IN_ROW(h, rows[r] / (TOPK + SHARED), K)
#define W_GATE_UP(j)  panel(W, first_panel, COLUMN((j) / 2), N, K, 2, (j)&1)
#define STORE_ACT(r, j, acc)                                                                       \
	if (((j)&1) == 0 && COLUMN((j) / 2) < N)                                                   \
	EV_STORE(activation_v((acc)[0]) * (acc)[1], act + (ulong)(r)*ACT_LD + COLUMN((j) / 2))
	ALL_ROWS(first, first + count, 2 * BLOCKS(N), A_GATHER, W_GATE_UP, STORE_ACT)
	for (uint r = first; INT8 && r < first + count; r++)
		in_quantise(act + (ulong)r * ACT_LD, N, gx * NPG * WIDTH, MIN_(N, (gx + 1) * NPG * WIDTH));
}

GROUP_FUNCTION void moe_down_group(uint gx, uint gy, __global const elem_t *act, __global const elem_t *experts,
				   __global const elem_t *shared, __global const int *tasks,
				   __global const int *rows, __global float *y)
{
	const uint N = LD(HIDDEN);
	uint expert, first, count, K, first_panel;
	__global const elem_t *W;

	moe_task(tasks, gy, &expert, &first, &count);
	if (!count)
		return;
	K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	W = expert < EXPERTS ? experts : shared;
	first_panel = expert < EXPERTS ? expert * (LD(HIDDEN) / 16) : 0;
#define W_DOWN(j)     panel(W, first_panel, COLUMN(j), N, K, 1, 0)
#define A_ACT(r)      (act + (ulong)(r)*ACT_LD)
#define STORE_SLOT(r, j, acc)                                                                      \
	if (COLUMN(j) < N)                                                                         \
	V_STORE((acc)[0], y + (ulong)rows[r] * LD(HIDDEN) + COLUMN(j))
	ALL_ROWS(first, first + count, BLOCKS(N), A_ACT, W_DOWN, STORE_SLOT)
}

#ifndef STEP
__kernel GROUP_SIZE void moe_gate_up(__global const elem_t *restrict h,
				     __global const elem_t *restrict experts,
				     __global const elem_t *restrict shared,
				     __global const int *restrict tasks,
				     __global const int *restrict rows, __global elem_t *restrict act)
{
	moe_gate_up_group(GROUP_X, GROUP_Y, h, experts, shared, tasks, rows, act);
}

__kernel GROUP_SIZE void moe_down(__global const elem_t *restrict act,
				  __global const elem_t *restrict experts,
				  __global const elem_t *restrict shared,
				  __global const int *restrict tasks,
				  __global const int *restrict rows, __global float *restrict y)
{
	moe_down_group(GROUP_X, GROUP_Y, act, experts, shared, tasks, rows, y);
}
#endif
