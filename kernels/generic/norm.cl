/*
 * RMSNorm, and the end of an MLP fused with the norm that follows it.
 *
 *     rms_norm       h[r] = norm(x[t]), t = r, or the r-th of a list of tokens
 *     combine_norm   x[t] += sum_k weights[t, k] y[t, k] + y[t, TOPK] * gate, k ascending; then h[t] = norm(x[t])
 *                    gate = sigmoid(router[t, EXPERTS]) with SHARED_GATE, else 1. A dense MLP has TOPK 0 and gate 1.
 *     norm(x) = x * rsqrt(mean(x^2) + EPS) * w
 *
 * (Zhang and Sennrich 2019, arXiv:1910.07467.)
 *
 *     step      the step table (kernels/step.h); rows_at: where the list of tokens is, -1: there is none; in
 *     x         [T, LD(HIDDEN)] float, the residual stream; in, of combine_norm also out
 *     y         [T, TOPK + 1, LD(HIDDEN)] float, the experts' outputs, the shared one's last; in
 *     weights   [T, TOPK] float; in           router [T, LD(EXPERTS + 1)] float; in
 *     w         [LD(HIDDEN)] float, as it is multiplied: where a model's norm scales by 1 + weight, the sum; in
 *     h         [rows, LD(HIDDEN)] elem_t, the next product's input; h32: the same in float, for the router; out
 *     dump      [T, LD(HIDDEN)] float, the MLP's output; out, with DUMP
 *
 * All sums are in float; the sum of a norm runs lane by lane (common.clh). Global size: one group for each row.
 * Options: HIDDEN, EXPERTS, TOPK, EPS, SHARED_GATE, DUMP. Reference: reference_rms_norm.
 */
#include "common.clh"

/* Loops over this lane's columns of a row. On a GPU they are few, and the number of rounds is a constant: so the loads
 * of all rounds are under way together. */
#if LANES > 1
#define ROW_COLUMNS(c)                                                                             \
	_Pragma("unroll") for (uint i_ = 0, c = LANE * VEC; i_ < CEIL_(LD(HIDDEN), WIDTH); i_++, c += WIDTH) \
		if (LD(HIDDEN) % WIDTH == 0 || c < LD(HIDDEN))
#else
#define ROW_COLUMNS(c) FOR_COLUMNS (c, LD(HIDDEN))
#endif

GROUP_FUNCTION void norm_row(__global const float *x, __global const float *w, __global elem_t *h,
			    __global float *h32, LOCAL float *scratch)
{
	floatv sum = 0;
	float scale;

	ROW_COLUMNS (c) {
		floatv v = V_LOAD(x + c);

		sum = fma(v, v, sum);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(sum), scratch) / HIDDEN + EPS);
	ROW_COLUMNS (c) {
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
	ROW_COLUMNS (c) {
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
