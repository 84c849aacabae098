/*
 * One recurrent step of Gated DeltaNet, everything between its two projections in one launch: convolution, silu, l2
 * norm, gates, delta rule, gated norm.
 *
 *     q = x rsqrt(sum x^2 + 1e-6) DK^-1/2;  k = x rsqrt(sum x^2 + 1e-6);  v = x;  x = silu(conv(proj)) (delta.clh)
 *     u = beta (v - e^g S^T k);  S <- e^g S + k u^T;  o = S^T q;  out = gated norm of o
 *
 * (Yang et al. 2024, arXiv:2412.06464.) S is the state of a value head. It is read twice, a block of columns at a time.
 * A block is small, so that the second reading finds it in a cache.
 *
 *     step      the step table (kernels/step.h): rows first_row, first_row + 1, ... at rows_at, of one token each; in
 *     proj      [T, DELTA_LD] float (delta.clh); in
 *     conv_w    [CONV, CHANNELS] float, taps; in
 *     neg_a     [HV] float, -exp(A_log); in       dt_bias [HV] float; in       norm_w [DV] float; in
 *     ring      [slots, CONV, CHANNELS] float, inputs of the convolution (delta.clh); in and out
 *     state     [slots, HV, DK, DV] float, read in slot ROW_STATE_SRC (zeros if that is ROW_STATE_ZERO), written in
 *               slot ROW_STATE_DST
 *     out       [T, HV * DV] elem_t; out
 *
 * All sums are in float. Those of S^T k and S^T q are chains over the DK dimensions of a key; those of the norms run
 * lane by lane (common.clh). Global size: rows x HV groups. Options: delta.clh. Reference: reference_delta_step,
 * reference_conv, reference_l2_norm, reference_delta_gate, reference_gated_norm.
 */
#include "delta.clh"

#define DV_STEPS  CEIL_(DV, WIDTH)
#define DV_UNROLL MIN_(DV_STEPS, 4)

GROUP_FUNCTION void l2_norm(LOCAL float *v, float factor, LOCAL float *scratch)
{
	floatv sum = 0;
	float scale;

	FOR_COLUMNS (c, DK) {
		floatv x = V_LOAD(v + c);

		sum = fma(x, x, sum);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(sum), scratch) + 1e-6f) * factor;
	FOR_COLUMNS (c, DK)
		V_STORE(V_LOAD(v + c) * scale, v + c);
}

#define DELTA_DECODE_FLOATS (2 * DK + 2 * DV)

/* Computes value head h of row first_row + index. memory [DELTA_DECODE_FLOATS]: work space. */
GROUP_FUNCTION void delta_decode_group(uint index, uint h, __global const int *step, int rows_at, int first_row,
				       __global const float *proj, __global const float *conv_w,
				       __global const float *neg_a, __global const float *dt_bias,
				       __global const float *norm_w, __global float *ring,
				       __global float *state, __global elem_t *out, LOCAL float *memory,
				       LOCAL float *scratch)
{
	__global const int *row = step + rows_at + (first_row + (int)index) * ROW_INTS;
	uint kh = KEY_HEAD(h);
	uint t = (uint)row[ROW_TOKEN], start = (uint)row[ROW_START];
	int src = row[ROW_STATE_SRC], dst = row[ROW_STATE_DST];
	__global const float *in = proj + (ulong)t * DELTA_LD;
	__global const float *S0 = state + ((ulong)MAX_(src, 0) * HV + h) * DK * DV;
	__global float *S1 = state + ((ulong)dst * HV + h) * DK * DV;
	LOCAL float *q = memory, *k = q + DK, *v = k + DK, *o = v + DV;
	float beta = delta_beta(in, h);
	float decay = exp(delta_gate(in, neg_a, dt_bias, h));

	FOR_COLUMNS (c, DK) {
		uint cq = Q_AT + kh * DK + c, ck = K_AT + kh * DK + c;

		V_STORE(conv_silu(proj, conv_w, ring, src, t, t, start, cq), q + c);
		V_STORE(conv_silu(proj, conv_w, ring, src, t, t, start, ck), k + c);
		if (FIRST_OF_KEY(h)) {
			conv_carry(proj, ring, src, dst, t, start, 1, cq);
			conv_carry(proj, ring, src, dst, t, start, 1, ck);
		}
	}
	FOR_COLUMNS (c, DV) {
		uint cv = V_AT + h * DV + c;

		V_STORE(conv_silu(proj, conv_w, ring, src, t, t, start, cv), v + c);
		conv_carry(proj, ring, src, dst, t, start, 1, cv);
	}
	l2_norm(q, 1.0f / sqrt((float)DK), scratch);
	l2_norm(k, 1.0f, scratch);
	BARRIER();
	for (uint s0 = 0; s0 < DV_STEPS; s0 += DV_UNROLL) {
		floatv kv[DV_UNROLL], u[DV_UNROLL], sum[DV_UNROLL];

#pragma unroll
		for (uint s = 0; s < DV_UNROLL; s++)
			kv[s] = sum[s] = 0;
		if (src != ROW_STATE_ZERO)
			for (uint d = 0; d < DK; d++)
#pragma unroll
				for (uint s = 0; s < DV_UNROLL; s++) {
					uint c = (s0 + s) * WIDTH + LANE * VEC;

					if (c < DV)
						kv[s] = fma((floatv)k[d], V_LOAD(S0 + d * DV + c), kv[s]);
				}
#pragma unroll
		for (uint s = 0; s < DV_UNROLL; s++) {
			uint c = (s0 + s) * WIDTH + LANE * VEC;

			u[s] = c < DV ? beta * (V_LOAD(v + c) - decay * kv[s]) : (floatv)0;
		}
		for (uint d = 0; d < DK; d++)
#pragma unroll
			for (uint s = 0; s < DV_UNROLL; s++) {
				uint c = (s0 + s) * WIDTH + LANE * VEC;
				floatv x = 0;

				if (c >= DV)
					continue;
				if (src != ROW_STATE_ZERO)
					x = decay * V_LOAD(S0 + d * DV + c);
				x = fma((floatv)k[d], u[s], x);
				sum[s] = fma((floatv)q[d], x, sum[s]);
				V_STORE(x, S1 + d * DV + c);
			}
#pragma unroll
		for (uint s = 0; s < DV_UNROLL; s++) {
			uint c = (s0 + s) * WIDTH + LANE * VEC;

			if (c < DV)
				V_STORE(sum[s], o + c);
		}
	}
	GATED_NORM(o, in, h, norm_w, IN_ROW(out, t, HV * DV), scratch);
}

#ifndef STEP
__kernel GROUP_SIZE void delta_decode(__global const int *restrict step, int rows_at, int first_row,
				      __global const float *restrict proj,
				      __global const float *restrict conv_w,
				      __global const float *restrict neg_a,
				      __global const float *restrict dt_bias,
				      __global const float *restrict norm_w, __global float *ring,
				      __global float *state, __global elem_t *restrict out)
{
	LOCAL float memory[DELTA_DECODE_FLOATS];
	GROUP_SCRATCH(scratch);

	delta_decode_group(GROUP_X, GROUP_Y, step, rows_at, first_row, proj, conv_w, neg_a, dt_bias, norm_w, ring,
			   state, out, memory, scratch);
}
#endif
