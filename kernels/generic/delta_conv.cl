/*
 * The work of Gated DeltaNet on a prompt before its chunks are computed, on a CPU (delta_conv_gpu.cl is for GPUs): the
 * causal convolution with silu, the l2 norm of q and k, and the gates. With s = DK^-1/2 for q, 1 for k:
 *
 *     q, k = s x / sqrt(sum x^2 + 1e-6),  v = x,  x = silu(conv(proj))      (conv: delta.clh)
 *     gates = beta, g                                                        (delta.clh)
 *
 *     step      the step table (kernels/step.h): rows at rows_at, token rows at token_rows_at; in
 *     proj      [T, DELTA_LD] float (delta.clh); in
 *     conv_w    [CONV, CHANNELS] float, taps; in
 *     neg_a     [HV] float, -exp(A_log); in       dt_bias [HV] float; in
 *     ring      [slots, CONV, CHANNELS] float, inputs of the convolution (delta.clh); in
 *     qs, ks    [T, HK * DK] float; vs [T, HV * DV] float; gates [T, HV, 2] float; out
 *
 * All sums are in float; those of the norms run lane by lane (common.clh). Global size: one group for each token and
 * head unit (HK of q, HK of k, HV of v). Options: delta.clh. Reference: reference_conv, reference_l2_norm,
 * reference_delta_gate.
 */
#include "delta.clh"

#define CONV_UNITS (2 * HK + HV)

__kernel GROUP_SIZE void delta_conv(__global const int *restrict step, int rows_at, int token_rows_at,
				    __global const float *restrict proj,
				    __global const float *restrict conv_w,
				    __global const float *restrict neg_a,
				    __global const float *restrict dt_bias,
				    __global const float *restrict ring, __global float *restrict qs,
				    __global float *restrict ks, __global float *restrict vs,
				    __global float *restrict gates)
{
	/* Neighbouring groups have neighbouring head units of a token, so that memory is read in its order. */
	uint t = get_group_id(0) / CONV_UNITS, unit = get_group_id(0) % CONV_UNITS;
	__global const int *row = step + rows_at + step[token_rows_at + t] * ROW_INTS;
	uint t0 = (uint)row[ROW_TOKEN], start = (uint)row[ROW_START];
	int src = row[ROW_STATE_SRC];
	GROUP_SCRATCH(scratch);

	if (unit >= 2 * HK) { /* v, which has no norm, and the gates of this value head */
		uint h = unit - 2 * HK;

		FOR_COLUMNS (c, DV)
			V_STORE(conv_silu(proj, conv_w, ring, src, t, t0, start, V_AT + h * DV + c),
				vs + ((ulong)t * HV + h) * DV + c);
		if (LANE == 0)
			put_gates(gates, proj, neg_a, dt_bias, t, h);
		return;
	}
	bool query = unit < HK;
	uint kh = query ? unit : unit - HK;
	__global float *out = (query ? qs : ks) + ((ulong)t * HK + kh) * DK;
	floatv sum = 0;
	float scale;

	FOR_COLUMNS (c, DK) {
		floatv x = conv_silu(proj, conv_w, ring, src, t, t0, start, unit * DK + c);

		V_STORE(x, out + c);
		sum = fma(x, x, sum);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(sum), scratch) + 1e-6f);
	if (query)
		scale *= 1.0f / sqrt((float)DK);
	FOR_COLUMNS (c, DK)
		V_STORE(V_LOAD(out + c) * scale, out + c);
}
