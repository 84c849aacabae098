/*
 * Products of int8 rows with int8 weights, scaled group by group: C[m, n] = sum_k A[m, k] W[n, k].
 *
 *     gemm_int8_store   C = A W
 *     gemm_int8_add     C += A W, where C is the residual stream. With the option DUMP the product A W goes to dump as
 *                       well.
 *
 *     A         [M, lda] words, rows that quantize.cl wrote; in
 *     W         [N, K] int8 with scales, packed in panels of 16 of its rows (columns of C); in
 *     C         [M, ldc] float; out, or in and out
 *     dump      [M, ldc] float; out, with DUMP
 *     M rows of A and C; N columns of C and K terms of a sum, padded to multiples of 16
 *
 * kernels/int8.h has the layouts of A and W and the reasons for them. Each GROUP neighbouring values of a row share a
 * scale; the last ones of a row may be fewer. The products of values that share their scales are summed as integers,
 * which is exact. The scaled sums are then added up as one chain in float (gemm_int8_core.clh). So every variant gives
 * the same bits, at every M.
 *
 * A column block is LANES * VEC columns wide. A work-group computes NPG column blocks for ROW_BLOCK rows. It walks the
 * rows in tiles of TILE_ROWS rows x TILE_BLOCKS column blocks. If at most TILE_ROWS / 2 rows are left, a tile is half
 * as tall and twice as wide. If one row is left, its tile has all column blocks.
 *
 * Global size: work-groups of NPG column blocks x work-groups of ROW_BLOCK rows.
 * Options: GROUP, TILE_ROWS, TILE_BLOCKS, NPG, ROW_BLOCK, DUMP. Reference: reference_gemm_int8, bit by bit.
 */
#include "common.clh"
#include "dot_int8.clh"

#if VEC == 16
#define CONVERT_FLOATV convert_float16
#else
#define CONVERT_FLOATV convert_float
#endif

#define CORE int8_core_tile
#define MT   TILE_ROWS
#define NP   TILE_BLOCKS
#include "gemm_int8_core.clh"
#undef CORE
#undef MT
#undef NP

#define CORE int8_core_half
#define MT   (TILE_ROWS / 2)
#define NP   (TILE_BLOCKS * 2)
#include "gemm_int8_core.clh"
#undef CORE
#undef MT
#undef NP

#define CORE int8_core_row
#define MT   1
#define NP   NPG
#include "gemm_int8_core.clh"

/* The first column of this lane in column block j of work-group gx. */
#define COLUMN(j) (((ulong)gx * NPG + (j)) * WIDTH + LANE * VEC)

/* The number of this work-group's column blocks: NPG, or fewer at the end of C's columns. */
#define BLOCKS(N) MIN_((uint)NPG, CEIL_((N) - (uint)(COLUMN(0) - LANE * VEC), (uint)WIDTH))

/* Returns this lane's weights of column c. A lane past the end computes the last columns again and stores nothing. */
static inline __global const uint *int8_panel(__global const uint *w, ulong c, uint N, uint K)
{
	c = c < N ? c : N - VEC;
	return w + c / 16 * ((ulong)K * 4 + 32 * CEIL_(K, (uint)GROUP)) + c % 16;
}

/* Computes rows r .. r + n - 1 of the product in all `blocks` column blocks; STORE(r, j, value) stores a row of block
 * j. Rows of a tile past n repeat the last row and are not stored. */
#define TILE(core, ROWS, COLS, r, n, STORE)                                                        \
	{                                                                                          \
		__global const uint *a_[ROWS];                                                     \
                                                                                                   \
		_Pragma("unroll") for (uint i_ = 0; i_ < ROWS; i_++)                               \
			a_[i_] = A + (ulong)((r) + MIN_(i_, (n)-1)) * lda;                         \
		for (uint j0_ = 0; j0_ < blocks; j0_ += COLS) {                                    \
			__global const uint *w_[COLS];                                             \
			floatv acc_[ROWS][COLS];                                                   \
                                                                                                   \
			_Pragma("unroll") for (uint j_ = 0; j_ < COLS; j_++)                       \
				w_[j_] = int8_panel(W, COLUMN(j0_ + j_), N, K);                    \
			core(acc_, a_, w_, K);                                                     \
			_Pragma("unroll") for (uint j_ = 0; j_ < COLS; j_++)                       \
				_Pragma("unroll") for (uint i_ = 0; i_ < ROWS; i_++)               \
				if (i_ < (n) && j0_ + j_ < blocks && COLUMN(j0_ + j_) < N)         \
					STORE((r) + i_, j0_ + j_, acc_[i_][j_]);                   \
		}                                                                                  \
	}

#define ALL_ROWS(STORE)                                                                            \
	for (uint r_ = gy * ROW_BLOCK, end_ = MIN_(M, r_ + ROW_BLOCK), n_; r_ < end_; r_ += n_) {  \
		n_ = MIN_(end_ - r_, (uint)TILE_ROWS);                                             \
		if (n_ == 1)                                                                       \
			TILE(int8_core_row, 1, NPG, r_, 1, STORE)                                  \
		else if (n_ <= TILE_ROWS / 2)                                                      \
			TILE(int8_core_half, TILE_ROWS / 2, TILE_BLOCKS * 2, r_, n_, STORE)        \
		else                                                                               \
			TILE(int8_core_tile, TILE_ROWS, TILE_BLOCKS, r_, n_, STORE)                \
	}

#define STORE_C(r, j, value) V_STORE(value, C + (ulong)(r) * ldc + COLUMN(j))

#if DUMP
#define KEEP(v, at) V_STORE(v, dump + (at))
#else
#define KEEP(v, at)
#endif
#define ADD_C(r, j, value)                                                                         \
	{                                                                                          \
		ulong at_ = (ulong)(r) * ldc + COLUMN(j);                                          \
                                                                                                   \
		KEEP(value, at_);                                                                  \
		V_STORE(V_LOAD(C + at_) + (value), C + at_);                                       \
	}

GROUP_FUNCTION void gemm_int8_store_group(uint gx, uint gy, __global const uint *A, uint lda, __global const uint *W,
					  __global float *C, uint ldc, uint M, uint N, uint K)
{
	const uint blocks = BLOCKS(N);

	ALL_ROWS(STORE_C)
}

GROUP_FUNCTION void gemm_int8_add_group(uint gx, uint gy, __global const uint *A, uint lda, __global const uint *W,
					__global float *C, uint ldc, uint M, uint N, uint K, __global float *dump)
{
	const uint blocks = BLOCKS(N);

	ALL_ROWS(ADD_C)
}

#ifndef STEP
__kernel GROUP_SIZE void gemm_int8_store(__global const uint *restrict A, uint lda, __global const uint *restrict W,
					 __global float *restrict C, uint ldc, uint M, uint N, uint K)
{
	gemm_int8_store_group(GROUP_X, GROUP_Y, A, lda, W, C, ldc, M, N, K);
}

__kernel GROUP_SIZE void gemm_int8_add(__global const uint *restrict A, uint lda, __global const uint *restrict W,
				       __global float *restrict C, uint ldc, uint M, uint N, uint K,
				       __global float *restrict dump)
{
	gemm_int8_add_group(GROUP_X, GROUP_Y, A, lda, W, C, ldc, M, N, K, dump);
}
#endif
