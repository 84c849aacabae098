/*
 * Routing: chooses the experts of each token and their weights, and sorts the rows by expert.
 *
 * moe_topk: p = softmax(router[t, 0 .. EXPERTS - 1]). Token t takes the TOPK experts with the largest p, of equal ones
 * the smaller index first. Their weights are p, with NORM_TOPK divided by the sum of the TOPK weights.
 *
 * moe_sort: a choice here is one of the TOPK experts of a token. A stable counting sort orders the T * TOPK choices by
 * expert; the T rows of the shared expert follow, if there is one (SHARED 1). A dense MLP (EXPERTS 0) has the rows of
 * the shared expert alone. The order is a function of the choices alone.
 *
 * On a GPU moe_topk computes the place of each expert, which is the number of experts that come before it. moe_sort has
 * a group for each expert there. The group counts the choices of all experts and sorts the choices of its own expert.
 *
 *     router    [T, LD(EXPERTS + SHARED)] float, logits; column EXPERTS is the shared expert's gate; in
 *     experts   [T, TOPK] int; out of moe_topk, into moe_sort
 *     weights   [T, TOPK] float; out
 *     rows      [T * (TOPK + SHARED)] int: token * (TOPK + SHARED) + slot, sorted by (expert, token, slot); slot is the
 *               number of the choice, TOPK for the shared expert; out
 *     tasks     [TASK_AT(n)] int (kernels/step.h): n, then n tasks of at most TASK_ROWS rows each; out
 *
 * The softmax is in float, lane by lane (common.clh). Global size: moe_topk one group for each token; moe_sort one
 * group, on a GPU one for each expert and one more. Options: HIDDEN, EXPERTS, TOPK, SHARED, NORM_TOPK, WARP_TOPK
 * (1: moe_topk is that of nvidia/moe_route.cl). Reference: reference_moe_topk, reference_moe_sort.
 */
#include "common.clh"
#include "kernels/groups.h"
#include "quads.clh"

#define EXPERT_QUADS CEIL_(EXPERTS, 4)

#if EXPERTS > 0
/* Computes the router logits of token t in ROUTER_BLOCKS * WIDTH columns, which are part gx of OP_ROUTER
 * (kernels/step.h). The sums are the same chains over k as in a matrix product in float (gemm_core.clh), which computes
 * them for prompts. */
GROUP_FUNCTION void moe_router_group(uint gx, ulong t, __global const float *h32, __global const float *W,
				     __global float *router)
{
	const uint N = LD(EXPERTS + SHARED), K = LD(HIDDEN);
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
				   __global float *weights, LOCAL float *p, LOCAL float *scratch)
{
	__global const float *in = router + t * LD(EXPERTS + SHARED);
	float most = -INFINITY, sum = 0, kept = 0;

	FOR_ITEMS (e, EXPERTS)
		most = fmax(most, in[e]);
	most = group_max(most, scratch);
	FOR_ITEMS (e, EXPERTS) {
		p[e] = exp(in[e] - most);
		sum += p[e];
	}
	sum = group_sum(sum, scratch);
#if LANES == 1
	for (uint k = 0; k < TOPK; k++) {
		float best = -1;
		int id = INT_MAX;

		for (uint e = 0; e < EXPERTS; e++)
			if (p[e] > best) {
				best = p[e];
				id = (int)e;
			}
		if (id == INT_MAX)
			id = (int)k; /* logits that are not numbers: any expert will do */
		p[id] = -1;	     /* below every probability: the expert is taken */
		kept += best / sum;
		experts[t * TOPK + k] = id;
		weights[t * TOPK + k] = best / sum;
	}
	for (uint k = 0; NORM_TOPK && k < TOPK; k++)
		weights[t * TOPK + k] /= kept;
#else
	FOR_ITEMS (e, EXPERT_QUADS * 4) /* NaN, and places past the experts, come after all probabilities */
		p[e] = e >= EXPERTS ? -2.0f : isnan(p[e]) ? -1.0f : p[e];
	BARRIER();
	FOR_ITEMS (e, EXPERTS) {
		float own = p[e];
		uint place = 0;

#pragma unroll 8
		for (uint i = 0; i < EXPERT_QUADS * 4; i += 4) {
			float4 v = LOCAL_4(p + i);

			place += v.x > own || (v.x == own && i < e);
			place += v.y > own || (v.y == own && i + 1 < e);
			place += v.z > own || (v.z == own && i + 2 < e);
			place += v.w > own || (v.w == own && i + 3 < e);
		}
		if (place < TOPK) {
			experts[t * TOPK + place] = (int)e;
			scratch[place] = own / sum;
		}
	}
	BARRIER();
	for (uint k = 0; k < TOPK; k++)
		kept += scratch[k];
	FOR_ITEMS (k, TOPK)
		weights[t * TOPK + k] = NORM_TOPK ? scratch[k] / kept : scratch[k];
#endif
}
#endif

/* Writes the tasks for `count` rows of an expert, from row `first` on, after n_tasks other tasks. Returns the number of
 * all tasks. */
static inline uint moe_tasks(uint expert, uint first, uint count, uint n_tasks, __global int *tasks)
{
	for (uint done = 0; done < count; done += TASK_ROWS, n_tasks++) {
		tasks[TASK_AT(n_tasks) + TASK_EXPERT] = (int)expert;
		tasks[TASK_AT(n_tasks) + TASK_FIRST] = (int)(first + done);
		tasks[TASK_AT(n_tasks) + TASK_COUNT] = (int)MIN_(count - done, (uint)TASK_ROWS);
	}
	return n_tasks;
}

#define CHOICE_ROW(i) ((int)((i) / TOPK * (TOPK + SHARED) + (i) % TOPK))

#if LANES == 1
/* Sorts all rows and writes all tasks. next [EXPERTS]: work space, the place of each expert's next row. */
GROUP_FUNCTION void moe_sort_group(__global const int *experts, uint T, __global int *rows, __global int *tasks, uint *next)
{
	uint n_tasks = 0;

#if EXPERTS > 0
	const uint n = T * TOPK;
	uint first = 0;

	for (uint e = 0; e < EXPERTS; e++)
		next[e] = 0;
	for (uint i = 0; i < n; i++)
		next[experts[i]]++;
	for (uint e = 0; e < EXPERTS; e++) {
		uint count = next[e];

		next[e] = first;
		n_tasks = moe_tasks(e, first, count, n_tasks, tasks);
		first += count;
	}
	for (uint i = 0; i < n; i++)
		rows[next[experts[i]]++] = CHOICE_ROW(i);
#endif
#if SHARED
	for (uint t = 0; t < T; t++)
		rows[T * TOPK + t] = (int)(t * (TOPK + 1) + TOPK);
	n_tasks = moe_tasks(EXPERTS, T * TOPK, T, n_tasks, tasks);
#endif
	tasks[0] = (int)n_tasks;
}
#else
/* Returns the sum of x over the lanes before this one. *ret_all is the sum over all lanes. */
GROUP_FUNCTION uint sum_before(uint x, LOCAL uint *scratch, uint *ret_all)
{
	uint sum = x;

	scratch[LANE] = sum;
	BARRIER();
	for (uint s = 1; s < LANES; s *= 2) {
		uint more = LANE >= s ? scratch[LANE - s] : 0;

		BARRIER();
		sum += more;
		scratch[LANE] = sum;
		BARRIER();
	}
	*ret_all = scratch[LANES - 1];
	BARRIER();
	return sum - x;
}

#define GLOBAL_INTS_4(p, q) (((__global const int4 *)(p))[q])

/* Returns which of the choices 4 q to 4 q + 3 of n are of expert `own`: bit i for the i-th. */
static inline uint choices_of(__global const int *experts, uint q, uint n, uint own)
{
	int4 e;
	uint bits = 0;

	if (q * 4 + 4 <= n) {
		e = GLOBAL_INTS_4(experts, q);
		return (e.x == (int)own) | (uint)(e.y == (int)own) << 1 | (uint)(e.z == (int)own) << 2 |
		       (uint)(e.w == (int)own) << 3;
	}
	for (uint i = q * 4; i < n; i++)
		bits |= (uint)(experts[i] == (int)own) << (i - q * 4);
	return bits;
}

/* Sorts the rows of expert `own` (EXPERTS: the shared one) and writes its tasks. The group of number EXPERTS writes the
 * number of all tasks, tasks[0], too, whether there is a shared expert or not. Work space: count [EXPERTS], scratch
 * [LANES]. */
GROUP_FUNCTION void moe_sort_group(uint own, __global const int *experts, uint T, __global int *rows, __global int *tasks,
				   volatile LOCAL uint *count, LOCAL uint *scratch)
{
	const uint n = T * TOPK;
	uint before = 0, tasks_before = 0, first, n_tasks;

	FOR_ITEMS (e, EXPERTS)
		count[e] = 0;
	BARRIER();
	FOR_ITEMS (i, n / 4) {
		int4 e = GLOBAL_INTS_4(experts, i);

		atomic_inc(&count[e.x]);
		atomic_inc(&count[e.y]);
		atomic_inc(&count[e.z]);
		atomic_inc(&count[e.w]);
	}
	FOR_ITEMS (i, n % 4)
		atomic_inc(&count[experts[n / 4 * 4 + i]]);
	BARRIER();
	FOR_ITEMS (e, own) {
		before += count[e];
		tasks_before += CEIL_(count[e], TASK_ROWS);
	}
	sum_before(before, scratch, &first);
	sum_before(tasks_before, scratch, &n_tasks);
	if (own == EXPERTS) {
#if SHARED
		FOR_ITEMS (t, T)
			rows[n + t] = (int)(t * (TOPK + 1) + TOPK);
#endif
		if (LANE == 0)
			tasks[0] = (int)moe_tasks(EXPERTS, n, SHARED ? T : 0, n_tasks, tasks);
		return;
	}
#if EXPERTS > 0
	if (LANE == 0)
		moe_tasks(own, first, count[own], n_tasks, tasks);
	if (count[own]) {
		uint quads = CEIL_(n, LANES * 4), q0 = LANE * quads, mine = 0, all;

		for (uint q = q0; q < q0 + quads && q * 4 < n; q++)
			mine += popcount(choices_of(experts, q, n, own));
		first += sum_before(mine, scratch, &all);
		for (uint q = q0; q < q0 + quads && q * 4 < n; q++)
			for (uint bits = choices_of(experts, q, n, own), i = q * 4; bits; bits >>= 1, i++)
				if (bits & 1)
					rows[first++] = CHOICE_ROW(i);
	}
#endif
}
#endif

#ifndef STEP
#if EXPERTS > 0 && !WARP_TOPK
__kernel GROUP_SIZE void moe_topk(__global const float *restrict router, __global int *restrict experts,
				  __global float *restrict weights)
{
	LOCAL float p[EXPERT_QUADS * 4] QUADS_ALIGNED;
	GROUP_SCRATCH(scratch);

	moe_topk_group(GROUP_X, router, experts, weights, p, scratch);
}
#endif

__kernel GROUP_SIZE void moe_sort(__global const int *restrict experts, uint T,
				  __global int *restrict rows, __global int *restrict tasks)
{
#if LANES == 1
	uint next[MAX_(EXPERTS, 1)];

	moe_sort_group(experts, T, rows, tasks, next);
#else
	__local uint count[MAX_(EXPERTS, 1)], scratch[LANES];

	moe_sort_group(GROUP_X, experts, T, rows, tasks, count, scratch);
#endif
}
#endif
