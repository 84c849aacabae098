/*
 * Routing: which experts a token takes, with what weight, and the rows sorted by expert.
 *
 * moe_topk: p = softmax(router[t, 0 .. EXPERTS - 1]); the TOPK experts with the largest p, of equal ones the smaller
 * index first; weight = p, with NORM_TOPK over the sum of the TOPK.
 *
 * moe_sort: a stable counting sort of the T * TOPK choices by expert, and behind them the T rows of the shared expert.
 * For a dense MLP (EXPERTS = 0) the shared rows are all. The order is a function of the choices alone.
 *
 *     router    [T, LD(EXPERTS + 1)] float, logits; column EXPERTS is the shared expert's gate; in
 *     experts   [T, TOPK] int; out of moe_topk, into moe_sort
 *     weights   [T, TOPK] float; out
 *     rows      [T * (TOPK + 1)] int: token * (TOPK + 1) + slot, sorted by (expert, token, slot); out
 *     tasks     [TASK_AT(n)] int (kernels/step.h): n, then n tasks of at most TASK_ROWS rows each; out
 *
 * The softmax is in float, lane by lane (common.clh). Global size: moe_topk a group a token, moe_sort one group.
 * Options: EXPERTS, TOPK, NORM_TOPK. Reference: reference_moe_topk, reference_moe_sort.
 */
#include "common.clh"

#if EXPERTS > 0
/*
 * Router logits of token t for the columns of part gx: the same chains over k as a matrix product in float
 * (gemm_core.clh), which is what computes them for many tokens.
 */
#define ROUTER_BLOCKS 4

GROUP_FUNCTION void moe_router_group(uint gx, ulong t, __global const float *h32, __global const float *W,
				     __global float *router)
{
	const uint N = LD(EXPERTS + 1), K = LD(HIDDEN);
	__global const float *a = h32 + t * K, *w[ROUTER_BLOCKS];
	floatv acc[ROUTER_BLOCKS];
	uint first = gx * ROUTER_BLOCKS * WIDTH + LANE * VEC;

#pragma unroll
	for (uint j = 0; j < ROUTER_BLOCKS; j++) {
		uint c = first + j * WIDTH < N ? first + j * WIDTH : N - VEC;

		w[j] = W + (ulong)(c / 16) * K * 16 + c % 16;
		acc[j] = 0;
	}
	for (uint k = 0; k < K; k++) {
		floatv ak = a[k];

#pragma unroll
		for (uint j = 0; j < ROUTER_BLOCKS; j++)
			acc[j] = fma(ak, V_LOAD(w[j] + k * 16), acc[j]);
	}
#pragma unroll
	for (uint j = 0; j < ROUTER_BLOCKS; j++)
		if (first + j * WIDTH < N)
			V_STORE(acc[j], router + t * N + first + j * WIDTH);
}

GROUP_FUNCTION void moe_topk_group(ulong t, __global const float *router, __global int *experts,
				   __global float *weights, LOCAL float *p, LOCAL float *scratch,
				   LOCAL int *ids)
{
	__global const float *in = router + t * LD(EXPERTS + 1);
	float most = -INFINITY, sum = 0, kept = 0;

	FOR_ITEMS (e, EXPERTS)
		most = fmax(most, in[e]);
	most = group_max(most, scratch);
	FOR_ITEMS (e, EXPERTS) {
		p[e] = exp(in[e] - most);
		sum += p[e];
	}
	sum = group_sum(sum, scratch);
	for (uint k = 0; k < TOPK; k++) {
		float best = -1;
		int id = INT_MAX;

		FOR_ITEMS (e, EXPERTS)
			if (p[e] > best) {
				best = p[e];
				id = (int)e;
			}
		GROUP_BEST(best, id, scratch, ids);
		if (id == INT_MAX)
			id = (int)k; /* logits that are not numbers: any expert is as good */
		if (id % LANES == LANE)
			p[id] = -1; /* below every probability: taken */
		kept += best / sum;
		if (LANE == 0) {
			experts[t * TOPK + k] = id;
			weights[t * TOPK + k] = best / sum;
		}
	}
	if (LANE == 0)
		for (uint k = 0; NORM_TOPK && k < TOPK; k++)
			weights[t * TOPK + k] /= kept;
}
#endif

/* next [EXPERTS]: where the next row of an expert goes. */
GROUP_FUNCTION void moe_sort_group(__global const int *experts, uint T, __global int *rows,
				   __global int *tasks, LOCAL uint *next)
{
	uint n_tasks = 0;

#if EXPERTS > 0
	const uint n = T * TOPK;

	FOR_ITEMS (e, EXPERTS) {
		next[e] = 0;
#if LANES > 1 /* each lane counts for its own experts: no atomics, the order stays fixed */
		for (uint i = 0; i < n; i++)
			next[e] += experts[i] == (int)e;
#endif
	}
	BARRIER();
	if (LANE == 0) {
		uint first = 0;

#if LANES == 1
		for (uint i = 0; i < n; i++)
			next[experts[i]]++;
#endif
		for (uint e = 0; e < EXPERTS; e++) {
			uint count = next[e];

			next[e] = first;
			for (uint done = 0; done < count; done += TASK_ROWS) {
				tasks[TASK_AT(n_tasks) + TASK_EXPERT] = (int)e;
				tasks[TASK_AT(n_tasks) + TASK_FIRST] = (int)(first + done);
				tasks[TASK_AT(n_tasks) + TASK_COUNT] = (int)MIN_(count - done, (uint)TASK_ROWS);
				n_tasks++;
			}
			first += count;
		}
	}
	BARRIER();
#if LANES == 1
	for (uint i = 0; i < n; i++)
		rows[next[experts[i]]++] = (int)(i / TOPK * (TOPK + 1) + i % TOPK);
#else
	FOR_ITEMS (e, EXPERTS) {
		uint at = next[e];

		for (uint i = 0; i < n; i++)
			if (experts[i] == (int)e)
				rows[at++] = (int)(i / TOPK * (TOPK + 1) + i % TOPK);
	}
#endif
#endif
	FOR_ITEMS (t, T)
		rows[T * TOPK + t] = (int)(t * (TOPK + 1) + TOPK);
	if (LANE == 0) {
		for (uint done = 0; done < T; done += TASK_ROWS) {
			tasks[TASK_AT(n_tasks) + TASK_EXPERT] = EXPERTS;
			tasks[TASK_AT(n_tasks) + TASK_FIRST] = (int)(T * TOPK + done);
			tasks[TASK_AT(n_tasks) + TASK_COUNT] = (int)MIN_(T - done, (uint)TASK_ROWS);
			n_tasks++;
		}
		tasks[0] = (int)n_tasks;
	}
}

#ifndef STEP
#if EXPERTS > 0
__kernel GROUP_SIZE void moe_topk(__global const float *restrict router, __global int *restrict experts,
				  __global float *restrict weights)
{
	LOCAL float p[EXPERTS];
	GROUP_SCRATCH(scratch);
	GROUP_INT_SCRATCH(ids);

	moe_topk_group(GROUP_X, router, experts, weights, p, scratch, ids);
}
#endif

__kernel GROUP_SIZE void moe_sort(__global const int *restrict experts, uint T,
				  __global int *restrict rows, __global int *restrict tasks)
{
	LOCAL uint next[MAX_(EXPERTS, 1)];

	moe_sort_group(experts, T, rows, tasks, next);
}
#endif
