/*
 * RMSNorm, and the end of an MLP fused with the norm that follows it. One group a row, all in float.
 *
 *     h = x * rsqrt(mean(x^2) + eps) * w         w holds 1 + weight, folded in at load
 *
 * rms_norm:      h[r] = norm(x[rows ? rows[r] : r]); written as GEMM input (elem_t) and, for the
 *                router, as float.
 * combine_norm:  x[t] += sum_k weight[t,k] y[t,k] + y[t,K] * sigmoid(shared gate), k ascending;
 *                then h = norm(x) with the next layer's weight. Dense MLP: K = 0, gate 1.
 *
 * Shapes: x, h32 [T, LD(HIDDEN)] float; h [T, LD(HIDDEN)] elem_t; y [T, TOPK + 1, LD(HIDDEN)] float;
 * weights [T, TOPK] float; router [T, LD(EXPERTS + 1)] float, column EXPERTS is the shared expert's gate.
 * Options: HIDDEN, EXPERTS, TOPK, EPS, SHARED_GATE (1: sigmoid gate, 0: dense), DUMP (keep the MLP's output).
 * Reference: reference_rms_norm.
 */
#include "common.clh"

GROUP_FUNCTION void norm_row(__global const float *x, __global const float *w, __global elem_t *h,
			    __global float *h32, LOCAL float *scratch)
{
	floatv sum = 0;
	float scale;

	FOR_COLUMNS (c, LD(HIDDEN)) {
		floatv v = V_LOAD(x + c);

		sum = fma(v, v, sum);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(sum), scratch) / HIDDEN + EPS);
	FOR_COLUMNS (c, LD(HIDDEN)) {
		floatv v = V_LOAD(x + c) * scale * V_LOAD(w + c);

		EV_STORE(v, h + c);
		V_STORE(v, h32 + c);
	}
}

GROUP_FUNCTION void rms_norm_group(ulong r, __global const int *step, int rows_at, __global const float *x,
				   __global const float *w, __global elem_t *h, __global float *h32,
				   LOCAL float *scratch)
{
	ulong t = rows_at >= 0 ? (ulong)step[rows_at + r] : r;

	norm_row(x + t * LD(HIDDEN), w, h + r * LD(HIDDEN), h32 + r * LD(HIDDEN), scratch);
}

GROUP_FUNCTION void combine_norm_group(ulong t, __global float *x, __global const float *y,
				       __global const float *weights, __global const float *router,
				       __global const float *w, __global elem_t *h, __global float *h32,
				       __global float *dump, LOCAL float *scratch)
{
	__global float *row = x + t * LD(HIDDEN);
	__global const float *in = y + t * (TOPK + 1) * LD(HIDDEN);
	float shared = 1.0f;

#if SHARED_GATE
	shared = 1.0f / (1.0f + exp(-router[t * LD(EXPERTS + 1) + EXPERTS]));
#endif
	FOR_COLUMNS (c, LD(HIDDEN)) {
		floatv sum = 0;

		for (uint k = 0; k < TOPK; k++)
			sum = fma((floatv)weights[t * TOPK + k], V_LOAD(in + k * LD(HIDDEN) + c), sum);
		sum = fma((floatv)shared, V_LOAD(in + TOPK * LD(HIDDEN) + c), sum);
#if DUMP
		V_STORE(sum, dump + t * LD(HIDDEN) + c);
#endif
		V_STORE(V_LOAD(row + c) + sum, row + c);
	}
	norm_row(row, w, h + t * LD(HIDDEN), h32 + t * LD(HIDDEN), scratch);
}

#ifndef STEP
__kernel GROUP_SIZE void rms_norm(__global const int *restrict step, int rows_at,
				  __global const float *restrict x, __global const float *restrict w,
				  __global elem_t *restrict h, __global float *restrict h32)
{
	GROUP_SCRATCH(scratch);

	rms_norm_group(GROUP_X, step, rows_at, x, w, h, h32, scratch);
}

__kernel GROUP_SIZE void combine_norm(__global float *restrict x, __global const float *restrict y,
				      __global const float *restrict weights,
				      __global const float *restrict router,
				      __global const float *restrict w, __global elem_t *restrict h,
				      __global float *restrict h32, __global float *restrict dump)
{
	GROUP_SCRATCH(scratch);

	combine_norm_group(GROUP_X, x, y, weights, router, w, h, h32, dump, scratch);
}
#endif
