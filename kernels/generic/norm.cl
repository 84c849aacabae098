/*
 * RMSNorm, and the end of an MLP fused with the norm that follows it.
 *
 *     rms_norm       h[r] = norm(x[t]), t = r, or the r-th of a list of tokens
 *     combine_norm   x[t] += sum_k weights[t, k] y[t, k] + y[t, TOPK] * gate, k ascending; then h[t] = norm(x[t])
 *                    gate = sigmoid(router[t, EXPERTS]) with SHARED_GATE, else 1. A dense MLP has TOPK 0 and gate 1.
 *                    Without a shared expert (SHARED 0) the last summand is left out.
 *     add_norm       x[t] += norm(y[t]) with the weights out_w, y of a mixer; then h[t] = norm(x[t])
 *
 * With OUT_NORMS the outputs of mixers and MLPs are normed before they are added: combine_norm norms the sum with the
 * weights out_w. Only then is there add_norm.
 *
 *     norm(x) = x * rsqrt(mean(x^2) + EPS) * w
 *
 * (Zhang and Sennrich 2019, arXiv:1910.07467.)
 *
 *     step      the step table (kernels/step.h); rows_at: where the list of tokens is, -1: there is none; in
 *     x         [T, LD(HIDDEN)] float, the residual stream; in, of combine_norm also out
 *     y         [T, TOPK + SHARED, LD(HIDDEN)] float, the experts' outputs, the shared one's last; in. Of add_norm
 *               [T, LD(HIDDEN)]
 *     out_w     [LD(HIDDEN)] float; in, with OUT_NORMS
 *     weights   [T, TOPK] float; in           router [T, LD(EXPERTS + SHARED)] float; in
 *     w         [LD(HIDDEN)] float, as it is multiplied: where a model's norm scales by 1 + weight, the sum; in
 *     h         [rows, IN_LD(HIDDEN)] elem_t (input.clh), the next product's input; out
 *     h32       [rows, LD(HIDDEN)] float, the same for the router; out
 *     dump      [T, LD(HIDDEN)] float, the output that is added; out, with DUMP
 *
 * All sums are in float; the sum of a norm runs lane by lane (common.clh). Global size: one group for each row.
 * Options: HIDDEN, EXPERTS, TOPK, EPS, SHARED, OUT_NORMS (0 or 1 each), SHARED_GATE,
 * DUMP. Reference: reference_rms_norm.
 */
#include "input.clh"

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
	in_quantise(h, LD(HIDDEN), 0, LD(HIDDEN));
}

GROUP_FUNCTION void rms_norm_group(ulong r, __global const int *step, int rows_at, __global const float *x,
				   __global const float *w, __global elem_t *h, __global float *h32,
				   LOCAL float *scratch)
{
	ulong t = rows_at >= 0 ? (ulong)step[rows_at + r] : r;

	norm_row(x + t * LD(HIDDEN), w, IN_ROW(h, r, HIDDEN), h32 + r * LD(HIDDEN), scratch);
}

#if DUMP
#define KEEP_OUTPUT(v, c) V_STORE(v, dump + t * LD(HIDDEN) + (c))
#else
#define KEEP_OUTPUT(v, c)
#endif

/* Returns the sum of a token's experts in the lane's columns from c on. */
static inline floatv experts_sum(__global const float *y, __global const float *weights, float shared, uint c)
{
	floatv sum = 0;

	for (uint k = 0; k < TOPK; k++)
		sum = fma((floatv)weights[k], V_LOAD(y + k * LD(HIDDEN) + c), sum);
#if SHARED
	sum = fma((floatv)shared, V_LOAD(y + TOPK * LD(HIDDEN) + c), sum);
#endif
	return sum;
}

GROUP_FUNCTION void combine_norm_group(ulong t, __global float *x, __global const float *y,
				       __global const float *weights, __global const float *router,
				       __global const float *out_w, __global const float *w, __global elem_t *h,
				       __global float *h32, __global float *dump, LOCAL float *scratch)
{
	__global float *row = x + t * LD(HIDDEN);
	__global const float *in = y + t * (TOPK + SHARED) * LD(HIDDEN);
	float shared = 1.0f;

#if SHARED_GATE
	shared = 1.0f / (1.0f + exp(-router[t * LD(EXPERTS + SHARED) + EXPERTS]));
#endif
#if OUT_NORMS
	floatv squares = 0;
	float scale;

	ROW_COLUMNS (c) {
		floatv sum = experts_sum(in, weights + t * TOPK, shared, c);

		squares = fma(sum, sum, squares);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(squares), scratch) / HIDDEN + EPS);
#endif
	ROW_COLUMNS (c) {
		floatv sum = experts_sum(in, weights + t * TOPK, shared, c);

#if OUT_NORMS
		sum = sum * scale * V_LOAD(out_w + c);
#endif
		KEEP_OUTPUT(sum, c);
		V_STORE(V_LOAD(row + c) + sum, row + c);
	}
	norm_row(row, w, IN_ROW(h, t, HIDDEN), h32 + t * LD(HIDDEN), scratch);
}

#if OUT_NORMS
GROUP_FUNCTION void add_norm_group(ulong t, __global float *x, __global const float *y, __global const float *out_w,
				   __global const float *w, __global elem_t *h, __global float *h32,
				   __global float *dump, LOCAL float *scratch)
{
	__global float *row = x + t * LD(HIDDEN);
	__global const float *in = y + t * LD(HIDDEN);
	floatv squares = 0;
	float scale;

	ROW_COLUMNS (c) {
		floatv v = V_LOAD(in + c);

		squares = fma(v, v, squares);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(squares), scratch) / HIDDEN + EPS);
	ROW_COLUMNS (c) {
		floatv v = V_LOAD(in + c) * scale * V_LOAD(out_w + c);

		KEEP_OUTPUT(v, c);
		V_STORE(V_LOAD(row + c) + v, row + c);
	}
	norm_row(row, w, IN_ROW(h, t, HIDDEN), h32 + t * LD(HIDDEN), scratch);
}
#endif

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
				      __global const float *restrict out_w,
				      __global const float *restrict w, __global elem_t *restrict h,
				      __global float *restrict h32, __global float *restrict dump)
{
	GROUP_SCRATCH(scratch);

	combine_norm_group(GROUP_X, x, y, weights, router, out_w, w, h, h32, dump, scratch);
}

#if OUT_NORMS
__kernel GROUP_SIZE void add_norm(__global float *restrict x, __global const float *restrict y,
				  __global const float *restrict out_w, __global const float *restrict w,
				  __global elem_t *restrict h, __global float *restrict h32,
				  __global float *restrict dump)
{
	GROUP_SCRATCH(scratch);

	add_norm_group(GROUP_X, x, y, out_w, w, h, h32, dump, scratch);
}
#endif
#endif
