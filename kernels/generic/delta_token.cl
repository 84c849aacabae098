/*
 * delta_decode on a GPU (delta_decode.cl has the formulas). A group computes one value head of a row of the step. It
 * reads the head's state once, into registers, and writes it once.
 *
 * COLUMN_QUADS neighbouring lanes are a part; there are D_PARTS parts. A lane has 4 neighbouring columns of the state.
 * Part p has the state's rows p, p + D_PARTS, p + 2 D_PARTS ... So an element of S^T k or S^T q is a sum of D_PARTS
 * chains, one for each part, added up in the order of the parts.
 *
 * Arguments as in delta_decode.cl. All sums are in float; those of the norms run lane by lane (common.clh). Global
 * size: rows x HV groups. Options: delta.clh; LANES 256. Reference: reference_delta_step, reference_conv,
 * reference_l2_norm, reference_delta_gate, reference_gated_norm.
 */
#include "delta.clh"
#include "quads.clh"

#define COLUMN_QUADS (DV / 4)
#define D_PARTS	     (LANES / COLUMN_QUADS)
#define LANE_ROWS    CEIL_(DK, D_PARTS)
#define CONV_ITEMS   CEIL_(2 * DK + DV, LANES) /* channels of a lane in the convolution */

/* The channel (delta.clh: a column of proj) of element i of q (DK) | k (DK) | v (DV) for value head h; q and k are
 * those of its key head. */
#define CHANNEL(i, h)                                                                              \
	((i) < DK ? Q_AT + KEY_HEAD(h) * DK + (i)                                                 \
		  : (i) < 2 * DK ? K_AT + KEY_HEAD(h) * DK + (i) - DK : V_AT + (h) * DV + (i) - 2 * DK)

/* Adds up, for each column, the numbers of all parts, in the order of the parts, into sum [DV]. x: the numbers of the
 * lane's 4 columns; parts [D_PARTS][DV]: work space. */
GROUP_FUNCTION void add_parts(float4 x, LOCAL float *parts, LOCAL float *sum)
{
	if (LANE < D_PARTS * COLUMN_QUADS)
		SET_LOCAL_4(parts + LANE * 4, x);
	BARRIER();
	FOR_ITEMS (c, DV) {
		float s = 0;

		for (uint p = 0; p < D_PARTS; p++)
			s += parts[p * DV + c];
		sum[c] = s;
	}
	BARRIER();
}

/* Loads the lane's share of the state of slot src in value head h. */
GROUP_FUNCTION void load_state(int src, uint h, __global const float *state, float4 S[LANE_ROWS])
{
	uint column = LANE % COLUMN_QUADS * 4, part = LANE / COLUMN_QUADS;
	__global const float *S0 = state + ((ulong)MAX_(src, 0) * HV + h) * DK * DV + column;

#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++) {
		uint d = part + i * D_PARTS;

		S[i] = part < D_PARTS && d < DK && src != ROW_STATE_ZERO ? GLOBAL_4(S0 + d * DV) : (float4)0;
	}
}

/* The inputs of the convolution for a channel of token t, at position start: taps[i] is that of position start - CONV +
 * 1 + i (conv_silu). No load depends on a condition, so that all are under way together: without a state, numbers are
 * loaded from `weights`, which are as many, and not used. */
static inline void conv_taps(__global const float *in, __global const float *ring, __global const float *weights, int src,
			     uint start, uint c, float taps[CONV])
{
	__global const float *from = src != ROW_STATE_ZERO ? ring + (ulong)src * CONV * CHANNELS : weights;

#pragma unroll
	for (uint i = 0; i + 1 < CONV; i++) {
		float x = from[(start + 1 + i) % CONV * CHANNELS + c];

		taps[i] = src != ROW_STATE_ZERO ? x : 0.0f;
	}
	taps[CONV - 1] = in[c];
}

/* Writes the taps of a channel to the ring of slot dst. If dst is src, all but the last are there already. */
static inline void keep_taps(__global float *ring, int src, int dst, uint start, uint c, const float taps[CONV])
{
	__global float *to = ring + (ulong)dst * CONV * CHANNELS + c;

#pragma unroll
	for (uint i = 1; i < CONV; i++)
		if (i + 1 == CONV || src != dst)
			to[(start + 1 + i) % CONV * CHANNELS] = taps[i];
}

/* Floats of work space for delta_token_group: q, k and v | parts | sum | scratch. */
#define TOKEN_PARTS_AT	 (2 * DK + DV)
#define TOKEN_SUM_AT	 (TOKEN_PARTS_AT + D_PARTS * DV)
#define TOKEN_SCRATCH_AT (TOKEN_SUM_AT + DV)
#define TOKEN_FLOATS	 (TOKEN_SCRATCH_AT + LANES)

/* Computes value head h of a row: token t of the step, at position start, which goes from state src to state dst. S:
 * the lane's share of state src, from load_state. x: work space. */
GROUP_FUNCTION void delta_token_group(uint t, uint start, int src, int dst, uint h, __global const float *proj,
				      __global const float *conv_w, __global const float *neg_a,
				      __global const float *dt_bias, __global const float *norm_w, __global float *ring,
				      __global float *state, __global elem_t *out, float4 S[LANE_ROWS], LOCAL float *x)
{
	LOCAL float *q = x, *k = x + DK, *v = x + 2 * DK;
	LOCAL float *parts = x + TOKEN_PARTS_AT, *sum = x + TOKEN_SUM_AT, *scratch = x + TOKEN_SCRATCH_AT;
	uint column = LANE % COLUMN_QUADS * 4, part = LANE / COLUMN_QUADS;
	__global const float *in = proj + (ulong)t * DELTA_LD;
	__global float *S1 = state + ((ulong)dst * HV + h) * DK * DV + column;
	float taps[CONV_ITEMS][CONV], weights[CONV_ITEMS][CONV], beta, decay;
	float q2 = 0, k2 = 0, q_scale, k_scale;
	float4 y = 0, u;

#pragma unroll
	for (uint n = 0; n < CONV_ITEMS; n++) {
		uint c = CHANNEL(MIN_(LANE + n * LANES, 2 * DK + DV - 1u), h);

		conv_taps(in, ring, conv_w, src, start, c, taps[n]);
#pragma unroll
		for (uint i = 0; i < CONV; i++)
			weights[n][i] = conv_w[i * CHANNELS + c];
	}
	beta = delta_beta(in, h);
	decay = exp(delta_gate(in, neg_a, dt_bias, h));
#pragma unroll
	for (uint n = 0; n < CONV_ITEMS; n++) {
		uint item = LANE + n * LANES;
		float total = 0;

		if (item >= 2 * DK + DV)
			continue;
#pragma unroll
		for (uint i = 0; i < CONV; i++)
			total = fma(taps[n][i], weights[n][i], total);
		x[item] = silu_v(total);
		if (item >= 2 * DK || FIRST_OF_KEY(h))
			keep_taps(ring, src, dst, start, CHANNEL(item, h), taps[n]);
	}
	BARRIER();
	FOR_ITEMS (d, DK) {
		q2 = fma(q[d], q[d], q2);
		k2 = fma(k[d], k[d], k2);
	}
	q_scale = 1.0f / sqrt(group_sum(q2, scratch) + 1e-6f) * (1.0f / sqrt((float)DK));
	k_scale = 1.0f / sqrt(group_sum(k2, scratch) + 1e-6f);
	FOR_ITEMS (d, DK) {
		q[d] *= q_scale;
		k[d] *= k_scale;
	}
	BARRIER();
#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++)
		if (part + i * D_PARTS < DK)
			y = fma((float4)k[part + i * D_PARTS], S[i], y);
	add_parts(y, parts, sum);
	u = beta * (LOCAL_4(v + column) - decay * LOCAL_4(sum + column));
	y = 0;
#pragma unroll
	for (uint i = 0; i < LANE_ROWS; i++) {
		uint d = part + i * D_PARTS;

		if (part < D_PARTS && d < DK) {
			S[i] = fma((float4)k[d], u, decay * S[i]);
			y = fma((float4)q[d], S[i], y);
			*(__global float4 *)(S1 + d * DV) = S[i];
		}
	}
	BARRIER(); /* sum has been read */
	add_parts(y, parts, sum);
	GATED_NORM(sum, in, h, norm_w, IN_ROW(out, t, HV * DV), scratch);
}

#ifndef STEP
__kernel GROUP_SIZE void delta_decode(__global const int *restrict step, int rows_at, int first_row,
				      __global const float *restrict proj, __global const float *restrict conv_w,
				      __global const float *restrict neg_a, __global const float *restrict dt_bias,
				      __global const float *restrict norm_w, __global float *ring, __global float *state,
				      __global elem_t *restrict out)
{
	__local float x[TOKEN_FLOATS] QUADS_ALIGNED;
	__global const int *row = step + rows_at + (first_row + (int)GROUP_X) * ROW_INTS;
	float4 S[LANE_ROWS];

	/* The loads of the state are on their way while q, k and v are computed. */
	load_state(row[ROW_STATE_SRC], GROUP_Y, state, S);
	delta_token_group((uint)row[ROW_TOKEN], (uint)row[ROW_START], row[ROW_STATE_SRC], row[ROW_STATE_DST],
			  GROUP_Y, proj, conv_w, neg_a, dt_bias, norm_w, ring, state, out, S, x);
}
#endif
