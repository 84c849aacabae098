/*
 * The work of Gated DeltaNet on a prompt before its chunks are computed and after that, on a GPU.
 *
 * delta_conv: as in delta_conv.cl. delta_norm: out = gated norm (delta.clh) of o, the output of the chunks.
 *
 * A group takes TOKENS neighbouring tokens of a head, and a lane the same columns of all of them: so an input of the
 * convolution is read once for CONV tokens, and the sums over lanes of all tokens run side by side.
 *
 *     step, proj, conv_w, neg_a, dt_bias, ring, qs, ks, vs, gates   as in delta_conv.cl
 *     norm_w    [DV] float; in
 *     o         [T, HV * DV] float; in
 *     out       [T, HV * DV] elem_t; out
 *     n_tokens  T
 *
 * All sums are in float; those of the norms have the order of group_sum (common.clh), whatever the tokens of the group.
 * Global size: one group for each TOKENS tokens and head unit (delta_conv: HK of q, HK of k, HV of v; delta_norm: HV).
 * Options: delta.clh. Reference: reference_conv, reference_l2_norm, reference_delta_gate, reference_gated_norm.
 */
#include "delta.clh"
#include "kernels/groups.h"

#define CONV_UNITS (2 * HK + HV)
#define TOKENS	   CONV_TOKENS
#define COLUMNS	   CEIL_(MAX_(DK, DV), LANES) /* columns of a lane */

#define FOR_TOKENS(j) _Pragma("unroll") for (uint j = 0; j < TOKENS; j++)
/* Loops over the lane's columns of a head of `dims` dimensions: c is the column, i its number among the lane's. */
#define FOR_HEAD(i, c, dims)                                                                       \
	_Pragma("unroll") for (uint i = 0, c = LANE; i < COLUMNS; i++, c += LANES) if (c < (dims))

/* Replaces each x[j] by its sum over the lanes, as group_sum (common.clh) adds them. */
GROUP_FUNCTION void group_sums(float x[TOKENS], LOCAL float *scratch)
{
	FOR_TOKENS (j)
		scratch[j * LANES + LANE] = x[j];
	barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
	for (uint s = LANES / 2; s; s >>= 1) {
		FOR_ITEMS (i, s * TOKENS) {
			LOCAL float *p = scratch + i / s * LANES + i % s;

			p[0] += p[s];
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	FOR_TOKENS (j)
		x[j] = scratch[j * LANES];
}

/* Computes x[i][j] = silu(conv(proj)) of token first + j, j < n, and the lane's columns of the head that begins at
 * channel `channel` and has `dims` dimensions. The tokens may be of several rows. */
static inline void conv_tokens(float x[COLUMNS][TOKENS], __global const int *step, int rows_at, int token_rows_at,
			       __global const float *proj, __global const float *weights, __global const float *ring,
			       uint first, uint n, uint channel, uint dims)
{
	__global const int *row_of = step + token_rows_at + first;

	for (uint from = 0, to; from < n; from = to) { /* tokens from .. to - 1 are of one row */
		__global const int *row = step + rows_at + row_of[from] * ROW_INTS;
		const uint t0 = (uint)row[ROW_TOKEN], start = (uint)row[ROW_START];
		const int src = row[ROW_STATE_SRC];
		float in[COLUMNS][TOKENS + CONV - 1];

		for (to = n; row_of[to - 1] != row_of[from];)
			to--;
		/* in[i][j] is the input of token first + j - (CONV - 1). Inputs before the row come from the ring of
		 * slot src, or are zero where the sequence begins. */
#pragma unroll
		for (uint j = 0; j < TOKENS + CONV - 1; j++) {
			const uint at = first + j;

			FOR_HEAD (i, c, dims) {
				in[i][j] = 0;
				if (at >= t0 + CONV - 1)
					in[i][j] = proj[(ulong)MIN_(at - (CONV - 1), first + n - 1) * DELTA_LD + channel + c];
				else if (src != ROW_STATE_ZERO && at >= t0)
					in[i][j] = ring[((ulong)src * CONV + (start + at - t0 + 1) % CONV) * CHANNELS +
							channel + c];
			}
		}
		FOR_HEAD (i, c, dims) {
			float w[CONV];

#pragma unroll
			for (uint k = 0; k < CONV; k++)
				w[k] = weights[k * CHANNELS + channel + c];
			FOR_TOKENS (j) {
				float sum = 0;

				if (j < from || j >= to)
					continue;
#pragma unroll
				for (uint k = 0; k < CONV; k++)
					sum = fma(in[i][j + k], w[k], sum);
				x[i][j] = silu_v(sum);
			}
		}
	}
}

__kernel GROUP_SIZE void delta_conv(__global const int *restrict step, int rows_at, int token_rows_at,
				    __global const float *restrict proj, __global const float *restrict conv_w,
				    __global const float *restrict neg_a, __global const float *restrict dt_bias,
				    __global const float *restrict ring, __global float *restrict qs,
				    __global float *restrict ks, __global float *restrict vs,
				    __global float *restrict gates, uint n_tokens)
{
	__local float scratch[TOKENS * LANES];
	/* Neighbouring groups have neighbouring head units of the same tokens, so that memory is read in its order. */
	const uint first = GROUP_X / CONV_UNITS * TOKENS, unit = GROUP_X % CONV_UNITS;
	const uint n = MIN_(n_tokens - first, (uint)TOKENS);
	const bool is_v = unit >= 2 * HK, query = unit < HK; /* v has no norm */
	const uint h = unit - (is_v ? 2 * HK : query ? 0 : HK), heads = is_v ? HV : HK, dims = is_v ? DV : DK;
	__global float *out = (is_v ? vs : query ? qs : ks) + ((ulong)first * heads + h) * dims;
	float x[COLUMNS][TOKENS] = {{0}}, sum[TOKENS] = {0};

	conv_tokens(x, step, rows_at, token_rows_at, proj, conv_w, ring, first, n, is_v ? V_AT + h * DV : unit * DK,
		    dims);
	FOR_HEAD (i, c, dims)
		FOR_TOKENS (j)
			sum[j] = fma(x[i][j], x[i][j], sum[j]);
	group_sums(sum, scratch); /* the groups of v call it too, so that all groups run the same barriers */
	FOR_TOKENS (j) {
		sum[j] = is_v ? 1.0f : 1.0f / sqrt(sum[j] + 1e-6f);
		if (query)
			sum[j] *= 1.0f / sqrt((float)DK);
	}
	FOR_HEAD (i, c, dims)
		FOR_TOKENS (j)
			if (j < n)
				out[j * heads * dims + c] = x[i][j] * sum[j];
	if (is_v && LANE < n) /* the gates of this value head */
		put_gates(gates, proj, neg_a, dt_bias, first + LANE, h);
}

__kernel GROUP_SIZE void delta_norm(__global const float *restrict proj, __global const float *restrict o,
				    __global const float *restrict norm_w, __global elem_t *restrict out, uint n_tokens)
{
	__local float scratch[TOKENS * LANES];
	const uint first = GROUP_X / HV * TOKENS, h = GROUP_X % HV, n = MIN_(n_tokens - first, (uint)TOKENS);
	float x[COLUMNS][TOKENS], z[COLUMNS][TOKENS], sum[TOKENS] = {0};

	FOR_TOKENS (j) {
		const ulong t = first + MIN_(j, n - 1);

		FOR_HEAD (i, c, DV) {
			x[i][j] = o[(t * HV + h) * DV + c];
			z[i][j] = proj[t * DELTA_LD + Z_AT + h * DV + c];
			sum[j] = fma(x[i][j], x[i][j], sum[j]);
		}
	}
	group_sums(sum, scratch);
	FOR_TOKENS (j)
		sum[j] = 1.0f / sqrt(sum[j] / DV + EPS);
	FOR_HEAD (i, c, DV)
		FOR_TOKENS (j)
			if (j < n)
				E_STORE(x[i][j] * sum[j] * norm_w[c] * silu_v(z[i][j]),
					IN_ROW(out, first + j, HV * DV) + h * DV + c);
	for (uint j = 0; j < n; j++)
		in_quantise(IN_ROW(out, first + j, HV * DV), HV * DV, h * DV, (h + 1) * DV);
}
