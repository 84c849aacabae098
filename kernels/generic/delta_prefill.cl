/*
 * Gated DeltaNet over prompts, in chunks of C = 64 tokens at absolute multiples of 64.
 *
 * The recurrence over a chunk is computed as products. S is the state, and beta and g are the gates (delta.clh). With
 * G = inclusive cumsum of g inside the chunk and Gamma_ij = e^(G_i - G_j) for i >= j,
 *
 *     A  = strictly lower of beta_i (k_i . k_j) Gamma_ij        P = lower of (q_i . k_j) Gamma_ij
 *     R_i = beta_i (v_i - e^G_i (k_i S))                        (I + A) V' = R, forward substitution
 *     O_i = e^G_i (q_i S) + sum_j P_ij V'_j                     S <- e^G_C S + sum_i e^(G_C - G_i) k_i V'_i^T
 *     out = gated norm of O                                      (delta.clh)
 *
 * (Yang et al. 2024, arXiv:2412.06464. Here the solve is applied once to V - K S, as FlashQLA does. That saves a
 * product, and the memory for the paper's U and W.) A short last chunk has n < C tokens, and its rows past n are not
 * computed. The results are the same as with q, k, v, beta and g padded with zeros.
 *
 * A row leaves its state in slot ROW_STATE_DST. The slots of its snapshots get the state and the convolution inputs
 * that a row ending at the snapshot would have left, bit by bit.
 *
 *     step      the step table (kernels/step.h): rows at rows_at; in
 *     proj      [T, DELTA_LD] float (delta.clh); in
 *     norm_w    [DV] float; in
 *     ring      [slots, CONV, CHANNELS] float, inputs of the convolution (delta.clh); in and out
 *     qs, ks    [T, HK * DK] float; vs [T, HV * DV] float; gates [T, HV, 2] float: from delta_conv; in
 *     state     [slots, HV, DK, DV] float; in and out
 *     work      [groups, SCRATCH] float, scratch: k^T [DK][C] | A [C][C] | P [C][C] | V' [C][DV] | O [C][DV]
 *     out       [T, HV * DV] elem_t; out
 *     first_row, n_rows   rows of the step table: first_row, first_row + 1, ...
 *
 * All sums are in float, over ascending tokens or dimensions; those of the norms run lane by lane (common.clh).
 * Global size: any number of groups; each takes (row, value head) pairs one after the other. On a GPU delta_chunks.cl
 * or nvidia/delta_tensor.cl is used instead.
 * Options: delta.clh, SCRATCH, REGISTER_SUMS (gemm_core.clh). Reference: reference_delta_step, reference_gated_norm.
 */
#include "delta.clh"
#include "kernels/groups.h"

#define C	   DELTA_CHUNK
#define DELTA_ROWS (REGISTER_SUMS < 16 ? 4 : 8)
#define COL_BLOCKS (VEC == 16 && REGISTER_SUMS >= 16 ? 2 : 1) /* blocks of WIDTH columns in a tile */
#define HALF	   (DELTA_ROWS / 2)
#define SLAB	   (COL_BLOCKS * WIDTH) /* columns of a tile */
#define SOLVE_ROWS 16 /* rows of a block of the forward substitution */

/*
 * Computes acc[i][j] = sum_k a[i][k] * b[k * b_row + column j], k from 0 to n - 1, for a tile of DELTA_ROWS rows and
 * the SLAB columns from c0 on. Columns from n_cols on do not exist, and their results are not used.
 */
static inline void tile_product(floatv acc[DELTA_ROWS][COL_BLOCKS], __global const float *const a[DELTA_ROWS],
				__global const float *b, uint b_row, uint n, uint c0, uint n_cols)
{
	uint column[COL_BLOCKS];

#pragma unroll
	for (uint j = 0; j < COL_BLOCKS; j++) {
		uint c = c0 + j * WIDTH + LANE * VEC;

		column[j] = c >= n_cols ? 0 : c;
#pragma unroll
		for (uint i = 0; i < DELTA_ROWS; i++)
			acc[i][j] = 0;
	}
	for (uint k = 0; k < n; k++) {
		floatv bk[COL_BLOCKS];

#pragma unroll
		for (uint j = 0; j < COL_BLOCKS; j++)
			bk[j] = V_LOAD(b + k * b_row + column[j]);
#pragma unroll
		for (uint i = 0; i < DELTA_ROWS; i++) {
			floatv ak = (floatv)a[i][k];

#pragma unroll
			for (uint j = 0; j < COL_BLOCKS; j++)
				acc[i][j] = fma(ak, bk[j], acc[i][j]);
		}
	}
}

/* Sets a[first .. first + n - 1] to the rows at p, `stride` apart. There are only `rows` rows; the last one is repeated
 * in place of missing rows. */
static inline void tile_rows(__global const float *a[DELTA_ROWS], uint first, uint n, __global const float *p,
			     uint stride, uint rows)
{
#pragma unroll
	for (uint i = 0; i < DELTA_ROWS; i++)
		if (i >= first && i < first + n)
			a[i] = p + MIN_(i - first, rows - 1) * stride;
}

/* Loops over the lane's vectors of a tile's first n rows that exist (there are `rows` rows and n_cols columns). i is
 * the row in the tile, j the column block, c the column of the matrix with which the vector begins. */
#define FOR_TILE(n, rows, n_cols, c0)                                                              \
	_Pragma("unroll") for (uint i = 0; i < (n); i++)                                           \
		_Pragma("unroll") for (uint j = 0; j < COL_BLOCKS; j++) if (i < (rows)) for (      \
			uint c = (c0) + j * WIDTH + LANE * VEC, once = 1; once && c < (n_cols); once = 0)

__kernel GROUP_SIZE void delta_prefill(__global const int *restrict step, int rows_at, int first_row,
				       int n_rows, __global const float *restrict proj,
				       __global const float *restrict qs,
				       __global const float *restrict ks,
				       __global const float *restrict vs,
				       __global const float *restrict gates,
				       __global const float *restrict norm_w, __global float *ring,
				       __global float *state, __global float *restrict work,
				       __global elem_t *restrict out)
{
	__global float *kt = work + (ulong)get_group_id(0) * SCRATCH;
	__global float *A = kt + DK * C, *P = A + C * C, *V = P + C * C, *O = V + C * DV;
	__local float G[C], beta[C], decay[C]; /* decay: e^G */
	GROUP_SCRATCH(scratch);

	for (uint pair = get_group_id(0); pair < (uint)n_rows * HV; pair += get_num_groups(0)) {
		__global const int *row = step + rows_at + (first_row + (int)(pair / HV)) * ROW_INTS;
		uint h = pair % HV, kh = KEY_HEAD(h);
		uint t0 = (uint)row[ROW_TOKEN], count = (uint)row[ROW_COUNT];
		int src = row[ROW_STATE_SRC], dst = row[ROW_STATE_DST];
		__global float *S = state + ((ulong)dst * HV + h) * DK * DV;
		__global const float *S0 = state + ((ulong)MAX_(src, 0) * HV + h) * DK * DV;

		/* First the state is copied to slot dst, zeros for a new sequence. */
		if (src != dst)
			for (uint d = 0; d < DK; d++)
				FOR_COLUMNS (c, DV)
					V_STORE(src == ROW_STATE_ZERO ? (floatv)0 : V_LOAD(S0 + d * DV + c),
						S + d * DV + c);
		for (uint done = 0; done < count; done += C) {
			uint n = MIN_(count - done, (uint)C);
			ulong t = t0 + done;
			__global const float *q = qs + (t * HK + kh) * DK;
			__global const float *k = ks + (t * HK + kh) * DK;
			__global const float *v = vs + (t * HV + h) * DV;
			__global const float *a[DELTA_ROWS];
			floatv acc[DELTA_ROWS][COL_BLOCKS];

			BARRIER();
			if (LANE == 0) {
				float sum = 0;

				for (uint i = 0; i < n; i++) {
					beta[i] = gates[((t + i) * HV + h) * 2];
					sum += gates[((t + i) * HV + h) * 2 + 1];
					G[i] = sum;
					decay[i] = exp(sum);
				}
				for (uint i = n; i < C; i++)
					G[i] = sum;
			}
			/* Stores k transposed, in rows of 64 keys, so that products run along keys. */
			for (uint i = 0; i < C; i++)
				FOR_ITEMS (d, DK)
					kt[d * C + i] = i < n ? k[i * HK * DK + d] : 0.0f;
			BARRIER();
			/* Computes A and P, four rows of each at a time. Those elements above the diagonal that are
			 * read later are 0. */
			for (uint i0 = 0; i0 < n; i0 += HALF) {
				uint rows = MIN_(n - i0, (uint)HALF);

				tile_rows(a, 0, HALF, k + i0 * HK * DK, HK * DK, rows);
				tile_rows(a, HALF, HALF, q + i0 * HK * DK, HK * DK, rows);
				for (uint c0 = 0; c0 < i0 + rows; c0 += SLAB) {
					tile_product(acc, a, kt, C, DK, c0, C);
					FOR_TILE (HALF, rows, C, c0) {
						uint r = i0 + i;
						intv column = (int)c + LANE_INDEX;
						floatv gamma = exp(G[r] - V_LOAD(G + c));

						V_STORE(column < (int)r ? beta[r] * acc[i][j] * gamma : (floatv)0,
							A + r * C + c);
						V_STORE(column <= (int)r ? acc[HALF + i][j] * gamma : (floatv)0,
							P + r * C + c);
					}
				}
			}
			BARRIER(); /* every lane reads all of A and P; from here on each lane has its own columns */
			for (uint c0 = 0; c0 < DV; c0 += SLAB) {
				for (uint i0 = 0; i0 < n; i0 += HALF) {
					uint rows = MIN_(n - i0, (uint)HALF);

					tile_rows(a, 0, HALF, k + i0 * HK * DK, HK * DK, rows);
					tile_rows(a, HALF, HALF, q + i0 * HK * DK, HK * DK, rows);
					tile_product(acc, a, S, DV, DK, c0, DV);
					FOR_TILE (HALF, rows, DV, c0) {
						uint r = i0 + i;

						V_STORE(beta[r] * (V_LOAD(v + r * HV * DV + c) - decay[r] * acc[i][j]),
							V + r * DV + c);
						V_STORE(decay[r] * acc[HALF + i][j], O + r * DV + c);
					}
				}
				/* Forward substitution by blocks of SOLVE_ROWS rows: first a product with the rows of
				 * earlier blocks, then row by row inside the block. */
				for (uint b0 = 0; b0 < n; b0 += SOLVE_ROWS) {
					uint end = MIN_(n, b0 + SOLVE_ROWS);

					for (uint i0 = b0; b0 && i0 < end; i0 += DELTA_ROWS) {
						uint rows = MIN_(end - i0, (uint)DELTA_ROWS);

						tile_rows(a, 0, DELTA_ROWS, A + i0 * C, C, rows);
						tile_product(acc, a, V, DV, b0, c0, DV);
						FOR_TILE (DELTA_ROWS, rows, DV, c0) {
							__global float *x = V + (i0 + i) * DV + c;

							V_STORE(V_LOAD(x) - acc[i][j], x);
						}
					}
					for (uint i = b0 + 1; i < end; i++)
#pragma unroll
						for (uint j = 0; j < COL_BLOCKS; j++) {
							uint c = c0 + j * WIDTH + LANE * VEC;
							floatv x;

							if (c >= DV)
								continue;
							x = V_LOAD(V + i * DV + c);
							for (uint m = b0; m < i; m++)
								x = fma((floatv)(-A[i * C + m]), V_LOAD(V + m * DV + c), x);
							V_STORE(x, V + i * DV + c);
						}
				}
				/* P is zero above its diagonal, so a tile stops at its own last row. */
				for (uint i0 = 0; i0 < n; i0 += DELTA_ROWS) {
					uint rows = MIN_(n - i0, (uint)DELTA_ROWS);

					tile_rows(a, 0, DELTA_ROWS, P + i0 * C, C, rows);
					tile_product(acc, a, V, DV, i0 + rows, c0, DV);
					FOR_TILE (DELTA_ROWS, rows, DV, c0) {
						__global float *o = O + (i0 + i) * DV + c;

						V_STORE(V_LOAD(o) + acc[i][j], o);
					}
				}
				for (uint i = 0; i < n; i++) {
					float left = exp(G[n - 1] - G[i]);

#pragma unroll
					for (uint j = 0; j < COL_BLOCKS; j++) {
						uint c = c0 + j * WIDTH + LANE * VEC;

						if (c < DV)
							V_STORE(V_LOAD(V + i * DV + c) * left, V + i * DV + c);
					}
				}
				for (uint d0 = 0; d0 < DK; d0 += DELTA_ROWS) {
					tile_rows(a, 0, DELTA_ROWS, kt + d0 * C, C, DELTA_ROWS);
					tile_product(acc, a, V, DV, n, c0, DV);
					FOR_TILE (DELTA_ROWS, DELTA_ROWS, DV, c0) {
						__global float *s = S + (d0 + i) * DV + c;

						V_STORE(fma((floatv)decay[n - 1], V_LOAD(s), acc[i][j]), s);
					}
				}
			}
			BARRIER(); /* the norms go over all columns */
			for (uint i = 0; i < n; i++)
				GATED_NORM(O + i * DV, proj + (t + i) * DELTA_LD, h, norm_w,
					   IN_ROW(out, t + i, HV * DV), scratch);
			/* Snapshots need no barrier: each lane copies the columns that it has written itself. */
			for (int i = 0; i < row[ROW_SNAPSHOTS]; i++) {
				uint slot = (uint)row[ROW_SNAPSHOT_SLOT(i)];
				__global float *kept = state + ((ulong)slot * HV + h) * DK * DV;

				if ((uint)row[ROW_SNAPSHOT_TOKENS(i)] != done + n)
					continue;
				for (uint d = 0; d < DK; d++)
					FOR_COLUMNS (c, DV)
						V_STORE(V_LOAD(S + d * DV + c), kept + d * DV + c);
				carry_head(proj, ring, row, slot, done + n, h);
			}
		}
		carry_head(proj, ring, row, (uint)dst, count, h);
	}
}
