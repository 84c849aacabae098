/*
 * delta_prefill on a GPU (delta_prefill.cl has the formulas). The values that do not depend on the state are computed
 * for all chunks at once. The columns of a state do not depend on each other, so groups share them out.
 *
 *     delta_chunk   for each chunk and value head: G, P and the inverse T of I + A
 *     delta_scan    for each row, value head and block of BLOCK columns of the state, chunk after chunk:
 *
 *                       R_i = beta_i (v_i - e^G_i (k_i S)),  V' = T R,  O_i = e^G_i (q_i S) + sum_j P_ij V'_j
 *                       S <- e^G_C S + sum_i e^(G_C - G_i) k_i V'_i^T
 *
 *                   O takes the place of v. The state of a row and the states of its snapshots go to their slots.
 *
 * The gated norm follows as delta_norm (delta_conv_gpu.cl).
 *
 *     step, proj, qs, ks, gates   as in delta_prefill.cl; in
 *     ring, state   as in delta_prefill.cl; in and out
 *     vs        [T, HV * DV] float: v is read, O is written; in and out
 *     work      [chunks, HV, WORK] float: T [C][C] | P [C][C] | G [C]; chunks are numbered through all rows; out of
 *               delta_chunk, into delta_scan
 *     first_row, n_rows   rows of the step table: first_row, first_row + 1, ...
 *
 * All sums are in float, over ascending tokens or dimensions, whatever the row and the step.
 * Global size: delta_chunk n x HV groups, where n is at least the number of chunks; delta_scan rows * HV *
 * CEIL(DV / BLOCK) groups.
 * Options: delta.clh; LANES 256. Reference: reference_delta_step.
 */
#include "delta_chunk.clh"

#define SLICE	 32	 /* dimensions of q and k that delta_scan has in local memory together */
#define SLICE_LD (SLICE + 4)
#define HALF_SLICE 16 /* dimensions of q and k that delta_chunk has in local memory at a time */
#define HALF_LD	 (HALF_SLICE + 4)
#define BLOCK	 DELTA_BLOCK
#define ROWS	 4 /* rows of a lane, of the C rows of a chunk; in delta_chunk also columns of a lane */
#define WORK	 DELTA_CHUNK_FLOATS
#define LOCAL_2  (2 * C * SLICE_LD) /* two slices, or one [C][C] */

/* Copies C rows of x, `stride` apart: `width` columns from c0 on. x has n rows and `columns` columns; the rows and
 * columns that it lacks become zeros. */
GROUP_FUNCTION void load_slice(LOCAL float *to, uint to_ld, __global const float *x, uint stride, uint n, uint c0,
			       uint width, uint columns)
{
	uint quads = width / 4;

	FOR_ITEMS (i, C * quads) {
		uint r = i / quads, c = i % quads * 4;
		float4 v = r < n && c0 + c < columns ? GLOBAL_4(x + r * stride + c0 + c) : (float4)0;

		SET_LOCAL_4(to + r * to_ld + c, v);
	}
}

__kernel GROUP_SIZE void delta_chunk(__global const int *restrict step, int rows_at, int first_row, int n_rows,
				     __global const float *restrict qs, __global const float *restrict ks,
				     __global const float *restrict gates, __global float *restrict work)
{
	__local float A[C * C_LD] QUADS_ALIGNED, slices[2 * C * HALF_LD] QUADS_ALIGNED, G[C], beta[C];
	LOCAL float *k_slice = slices, *q_slice = slices + C * HALF_LD;
	__global const int *rows = step + rows_at + first_row * ROW_INTS;
	uint h = GROUP_Y, kh = KEY_HEAD(h), chunk = GROUP_X;
	uint r = row_of_chunk(rows, (uint)n_rows, &chunk), n;
	uint r0 = LANE / 16 * ROWS, c0 = LANE % 16 * ROWS;
	__global float *T = work + ((ulong)GROUP_X * HV + h) * WORK, *P = T + C * C;
	__global const float *q, *k;
	float kk[ROWS][ROWS], qk[ROWS][ROWS];
	ulong t;

	/* A group without a chunk computes a chunk of no tokens: PoCL 3.1 fails where some groups return before a
	 * barrier. */
	rows += MIN_(r, (uint)n_rows - 1) * ROW_INTS;
	t = r < (uint)n_rows ? (uint)rows[ROW_TOKEN] + chunk * C : 0;
	n = r < (uint)n_rows ? MIN_((uint)rows[ROW_COUNT] - chunk * C, (uint)C) : 0;
	q = qs + (t * HK + kh) * DK;
	k = ks + (t * HK + kh) * DK;
	chunk_gates(gates + (t * HV + h) * 2, n, G, beta);
#pragma unroll
	for (uint i = 0; i < ROWS; i++)
#pragma unroll
		for (uint j = 0; j < ROWS; j++)
			kk[i][j] = qk[i][j] = 0;
	for (uint d0 = 0; d0 < DK; d0 += HALF_SLICE) {
		BARRIER(); /* every lane has used the slices before */
		load_slice(k_slice, HALF_LD, k, HK * DK, n, d0, HALF_SLICE, DK);
		load_slice(q_slice, HALF_LD, q, HK * DK, n, d0, HALF_SLICE, DK);
		BARRIER();
		for (uint d = 0; d < HALF_SLICE; d++) {
			float b[ROWS];

#pragma unroll
			for (uint j = 0; j < ROWS; j++)
				b[j] = k_slice[(c0 + j) * HALF_LD + d];
#pragma unroll
			for (uint i = 0; i < ROWS; i++) {
				float ki = k_slice[(r0 + i) * HALF_LD + d], qi = q_slice[(r0 + i) * HALF_LD + d];

#pragma unroll
				for (uint j = 0; j < ROWS; j++) {
					kk[i][j] = fma(ki, b[j], kk[i][j]);
					qk[i][j] = fma(qi, b[j], qk[i][j]);
				}
			}
		}
	}
#pragma unroll
	for (uint i = 0; i < ROWS; i++)
#pragma unroll
		for (uint j = 0; j < ROWS; j++) {
			uint row = r0 + i, column = c0 + j;
			float gamma = exp(G[row] - G[column]);

			if (row >= C)
				continue;
			A[row * C_LD + column] = column < row ? beta[row] * kk[i][j] * gamma : 0.0f;
			P[row * C + column] = column <= row ? qk[i][j] * gamma : 0.0f;
		}
	BARRIER();
	invert(A, slices);
	FOR_ITEMS (i, C * C)
		T[i] = A[i / C * C_LD + i % C];
	FOR_ITEMS (i, C)
		P[C * C + i] = G[i];
}

/* Adds sum_m a[r0 + i][m] b[m][column] to acc[i], m ascending to the lane's last row; a [C][C_LD] is zero above its
 * diagonal. (Rows from the chunk's n on are computed too, because PoCL 3.1 moves a condition on lanes out of a loop
 * that has barriers.) */
#define ADD_LOWER(acc, a, b)                                                                       \
	for (uint m = 0; m < r0 + ROWS; m += 4) {                                                  \
		float bm[4];                                                                       \
                                                                                                   \
		_Pragma("unroll") for (uint j = 0; j < 4; j++) bm[j] = (b)[(m + j) * BLOCK + column]; \
		_Pragma("unroll") for (uint i = 0; i < ROWS; i++)                                  \
		{                                                                                  \
			float4 ai = LOCAL_4((a) + (r0 + i) * C_LD + m);                          \
                                                                                                   \
			(acc)[i] = fma(ai.x, bm[0], (acc)[i]);                                     \
			(acc)[i] = fma(ai.y, bm[1], (acc)[i]);                                     \
			(acc)[i] = fma(ai.z, bm[2], (acc)[i]);                                     \
			(acc)[i] = fma(ai.w, bm[3], (acc)[i]);                                     \
		}                                                                                  \
	}

#define BLOCKS_OF_V CEIL_(DV, BLOCK)
#define S_ROWS	    ROUND_UP_(DK, 64)

/* Copies the group's columns of value head h's state into a slot. */
GROUP_FUNCTION void save_state(LOCAL const float *S, __global float *state, uint slot, uint h, uint column0)
{
	__global float *to = state + ((ulong)slot * HV + h) * DK * DV + column0;

	FOR_ITEMS (i, DK * BLOCK)
		if (column0 + i % BLOCK < DV)
			to[i / BLOCK * DV + i % BLOCK] = S[i];
}

__kernel GROUP_SIZE void delta_scan(__global const int *restrict step, int rows_at, int first_row,
				    __global const float *restrict proj, __global const float *restrict qs,
				    __global const float *restrict ks, __global float *restrict vs,
				    __global const float *restrict gates, __global const float *restrict work,
				    __global float *ring, __global float *state)
{
	__local float S[S_ROWS * BLOCK], slices[LOCAL_2] QUADS_ALIGNED, V[C * BLOCK], G[C], beta[C];
	LOCAL float *k_slice = slices, *q_slice = slices + C * SLICE_LD;
	__global const int *rows = step + rows_at + first_row * ROW_INTS;
	__global const int *row = rows + GROUP_X / (HV * BLOCKS_OF_V) * ROW_INTS;
	uint h = GROUP_X / BLOCKS_OF_V % HV, kh = KEY_HEAD(h), column0 = GROUP_X % BLOCKS_OF_V * BLOCK;
	uint column = LANE % BLOCK, r0 = LANE / BLOCK * ROWS;
	uint count = (uint)row[ROW_COUNT], chunk = first_chunk_of_row(rows, row);
	int src = row[ROW_STATE_SRC], dst = row[ROW_STATE_DST];
	bool exists = column0 + column < DV;

	FOR_ITEMS (i, S_ROWS * BLOCK) {
		uint d = i / BLOCK, c = column0 + i % BLOCK;

		S[i] = src != ROW_STATE_ZERO && d < DK && c < DV
			       ? state[((ulong)MAX_(src, 0) * HV + h) * DK * DV + d * DV + c]
			       : 0.0f;
	}
	for (uint done = 0; done < count; done += C, chunk++) {
		uint n = MIN_(count - done, (uint)C);
		ulong t = (uint)row[ROW_TOKEN] + done;
		__global const float *q = qs + (t * HK + kh) * DK, *k = ks + (t * HK + kh) * DK;
		__global const float *T = work + ((ulong)chunk * HV + h) * WORK, *P = T + C * C;
		__global float *v = vs + (t * HV + h) * DV + column0 + column;
		float ks_[ROWS], qs_[ROWS], x[ROWS], last;

		BARRIER();
		FOR_ITEMS (i, C) {
			G[i] = P[C * C + i];
			beta[i] = i < n ? gates[((t + i) * HV + h) * 2] : 0.0f;
		}
#pragma unroll
		for (uint i = 0; i < ROWS; i++)
			ks_[i] = qs_[i] = x[i] = 0;
		for (uint d0 = 0; d0 < DK; d0 += SLICE) {
			BARRIER();
			load_slice(k_slice, SLICE_LD, k, HK * DK, n, d0, SLICE, DK);
			load_slice(q_slice, SLICE_LD, q, HK * DK, n, d0, SLICE, DK);
			BARRIER();
			for (uint d = 0; d < SLICE; d += 4) {
				float s[4];

#pragma unroll
				for (uint j = 0; j < 4; j++)
					s[j] = S[(d0 + d + j) * BLOCK + column];
#pragma unroll
				for (uint i = 0; i < ROWS; i++) {
					float4 ki = LOCAL_4(k_slice + (r0 + i) * SLICE_LD + d);
					float4 qi = LOCAL_4(q_slice + (r0 + i) * SLICE_LD + d);

					ks_[i] = fma(ki.x, s[0], ks_[i]);
					ks_[i] = fma(ki.y, s[1], ks_[i]);
					ks_[i] = fma(ki.z, s[2], ks_[i]);
					ks_[i] = fma(ki.w, s[3], ks_[i]);
					qs_[i] = fma(qi.x, s[0], qs_[i]);
					qs_[i] = fma(qi.y, s[1], qs_[i]);
					qs_[i] = fma(qi.z, s[2], qs_[i]);
					qs_[i] = fma(qi.w, s[3], qs_[i]);
				}
			}
		}
#pragma unroll
		for (uint i = 0; i < ROWS; i++) { /* R */
			uint r = r0 + i;
			float vi = r < n && exists ? v[r * HV * DV] : 0.0f;

			V[r * BLOCK + column] = beta[r] * (vi - exp(G[r]) * ks_[i]);
		}
		BARRIER();
		load_slice(slices, C_LD, T, C, C, 0, C, C);
		BARRIER();
		ADD_LOWER(x, slices, V)
		BARRIER();
#pragma unroll
		for (uint i = 0; i < ROWS; i++) { /* V' */
			V[(r0 + i) * BLOCK + column] = x[i];
			qs_[i] *= exp(G[r0 + i]);
		}
		load_slice(slices, C_LD, P, C, C, 0, C, C);
		BARRIER();
		ADD_LOWER(qs_, slices, V)
		BARRIER();
		last = G[C - 1];
#pragma unroll
		for (uint i = 0; i < ROWS; i++) {
			uint r = r0 + i;

			if (r < n && exists)
				v[r * HV * DV] = qs_[i];
			V[r * BLOCK + column] = x[i] * exp(last - G[r]);
		}
		for (uint d0 = 0; d0 < DK; d0 += 64) {
			float sum[ROWS];

			BARRIER();
			load_slice(slices, C_LD, k, HK * DK, n, d0, 64, DK);
			BARRIER();
#pragma unroll
			for (uint i = 0; i < ROWS; i++)
				sum[i] = 0;
			for (uint m = 0; m < n; m++) {
				float4 km = LOCAL_4(slices + m * C_LD + r0);
				float vm = V[m * BLOCK + column];

				sum[0] = fma(km.x, vm, sum[0]);
				sum[1] = fma(km.y, vm, sum[1]);
				sum[2] = fma(km.z, vm, sum[2]);
				sum[3] = fma(km.w, vm, sum[3]);
			}
#pragma unroll
			for (uint i = 0; i < ROWS; i++) {
				LOCAL float *s = S + (d0 + r0 + i) * BLOCK + column;

				*s = fma(exp(last), *s, sum[i]);
			}
		}
		BARRIER();
		for (int i = 0; i < row[ROW_SNAPSHOTS]; i++)
			if ((uint)row[ROW_SNAPSHOT_TOKENS(i)] == done + n) {
				save_state(S, state, (uint)row[ROW_SNAPSHOT_SLOT(i)], h, column0);
				if (column0 == 0)
					carry_head(proj, ring, row, (uint)row[ROW_SNAPSHOT_SLOT(i)], done + n, h);
			}
	}
	save_state(S, state, (uint)dst, h, column0);
	if (column0 == 0)
		carry_head(proj, ring, row, (uint)dst, count, h);
}
