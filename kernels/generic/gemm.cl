/*
 * Matrix products C[m, n] = sum_k A[m, k] W[n, k] with the epilogues the model needs.
 *
 *     gemm_store    C = A W                                  [M, ldc] float
 *     gemm_add      C += A W                                 the residual stream
 *     moe_gate_up   act = silu(A G) * (A U), rows gathered   [rows, LD(EXPERT_SIZE)] elem_t
 *     moe_down      y = act Dn, rows scattered               [T * (TOPK + 1), ldc] float
 *
 * A [M, lda] elem_t, row-major, zero padded; W packed in panels of 16 columns (gemm_core.clh); for
 * gate_up the panels of gate and up alternate. K is the padded row length (a multiple of 16).
 *
 * A group has NPG column blocks (a block is WIDTH columns) and walks its rows in tiles of TILE_ROWS x TILE_BLOCKS,
 * a last single row by the one-row core, whose accumulators are spread over all blocks instead. Every
 * element is one chain over k in either core, so its bits do not depend on the tile.
 *
 * MoE: tasks are (expert, first, count) triples over rows sorted by expert (moe_route.cl); expert EXPERTS is
 * the shared one, with every token. A row's source token and slot come from `rows`: token * (TOPK + 1)
 * + slot. Groups past n_tasks have nothing to do: the host launches the largest number possible.
 *
 * Global size: column groups x row blocks (or tasks). Options: PACKING, MAX_K (the largest K), TILE_ROWS x TILE_BLOCKS (the tile), NPG, ROW_BLOCK, EXPERTS, TOPK,
 * HIDDEN, EXPERT_SIZE, SHARED_SIZE, DUMP. Reference: reference_gemm.
 */
#include "common.clh"

#define CORE gemm_core_tile
#define MT   TILE_ROWS
#define NP   TILE_BLOCKS
#include "gemm_core.clh"
#undef CORE
#undef MT
#undef NP

#if TILE_ROWS > 4 /* few rows: half as tall, twice as wide */
#define CORE gemm_core_half
#define MT   (TILE_ROWS / 2)
#define NP   (TILE_BLOCKS * 2)
#include "gemm_core.clh"
#undef CORE
#undef MT
#undef NP
#endif

#define CORE gemm_core_row
#define MT   1
#define NP   NPG
#include "gemm_core.clh"

#if BF16 && PACKING == 3 /* of weights that gemm_core_unpack has decoded */
#undef CORE
#define CORE gemm_core_plain
#undef MT
#undef NP
#define MT TILE_ROWS
#define NP TILE_BLOCKS
#define DECODED
#include "gemm_core.clh"
#undef DECODED
#endif

/* First column of block j of the group gx, for this lane. */
#define COLUMN(j) (((ulong)gx * NPG + (j)) * WIDTH + LANE * VEC)

/* Column blocks of this group that exist. */
#define BLOCKS(N) MIN_((uint)NPG, CEIL_((N) - (uint)(COLUMN(0) - LANE * VEC), (uint)WIDTH))

/* Panel p of packed weights; coded ones (kernels/coded.h) begin with a table of where each is. */
#if BF16 && PACKING == 3
#define PANEL(w, p, K)                                                                             \
	((__global const elem_t *)((__global const uchar *)(w) + 64ul * ((__global const uint *)(w))[p]))
#else
#define PANEL(w, p, K) ((w) + (ulong)(p) * (K)*16)
#endif

/* This lane's column c of the weights whose first panel is `first`. Blocks past the end compute the last columns again
 * and store nothing. `stride` is 1, or 2 where the panels of two matrices alternate. */
static inline __global const elem_t *panel(__global const elem_t *w, uint first, ulong c, uint N, uint K,
					   uint stride, uint which)
{
	c = c < N ? c : N - VEC;
	return PANEL(w, first + c / 16 * stride + which, K) + c % 16;
}

/* One tile: rows r .. r + n - 1 of the product, column blocks j0 .. j0 + COLS - 1 of the group. The caller names A_ROW(r),
 * the row's GEMM input; W_BLOCK(j), the weights of a block; STORE(r, j, acc), what becomes of the results of row r, where
 * acc[0] is block j and acc[1] the one behind it. */
#define TILE_AT(core, ROWS, COLS, r, n, j0, blocks, A_ROW, W_BLOCK, STORE)                        \
	{                                                                                          \
		__global const elem_t *a_[ROWS];                                                   \
		__global const elem_t *w_[COLS];                                                   \
		floatv acc_[ROWS][COLS];                                                           \
                                                                                                   \
		_Pragma("unroll") for (uint i_ = 0; i_ < ROWS; i_++)                               \
			a_[i_] = A_ROW((r) + MIN_(i_, (n)-1));                                     \
		_Pragma("unroll") for (uint j_ = 0; j_ < COLS; j_++)                               \
		{                                                                                  \
			w_[j_] = W_BLOCK((j0) + j_);                                               \
			_Pragma("unroll") for (uint i_ = 0; i_ < ROWS; i_++)                       \
				acc_[i_][j_] = 0;                                                  \
		}                                                                                  \
		core(acc_, a_, w_, K);                                                             \
		_Pragma("unroll") for (uint j_ = 0; j_ < COLS; j_++)                               \
			_Pragma("unroll") for (uint i_ = 0; i_ < ROWS; i_++)                       \
			if (i_ < (n) && (j0) + j_ < (blocks))                                      \
				STORE((r) + i_, (j0) + j_, (&acc_[i_][j_]));                       \
	}

/* The same for all column blocks. */
#define TILE(core, ROWS, COLS, r, n, blocks, A_ROW, W_BLOCK, STORE)                               \
	for (uint j0_ = 0; j0_ < (blocks); j0_ += COLS)                                            \
		TILE_AT(core, ROWS, COLS, r, n, j0_, blocks, A_ROW, W_BLOCK, STORE)

/* Of many rows coded weights are decoded once, TILE_BLOCKS column blocks at a time, and not for each tile (which was slower
 * for short sums: tiles decode while they wait for memory). Memory of a work-item is memory like any other on the devices that have coded
 * weights. */
#if BF16 && PACKING == 3
#define MANY_ROWS (3 * TILE_ROWS)
#define DECODED_BLOCK(j) ((__global const elem_t *)(ulong)(decoded_ + (ulong)((j) % TILE_BLOCKS) * K * 16))
#define TALL(first, end, blocks, A_ROW, W_BLOCK, STORE)                                            \
	if ((end) - (first) >= MANY_ROWS && K <= MAX_K && K > 256) {                                          \
		__attribute__((aligned(64))) elem_t decoded_[TILE_BLOCKS * MAX_K * 16];            \
                                                                                                   \
		for (uint j0_ = 0; j0_ < (blocks); j0_ += TILE_BLOCKS) {                           \
			for (uint j_ = 0; j_ < TILE_BLOCKS; j_++)                                  \
				gemm_core_unpack(W_BLOCK(j0_ + j_), K, decoded_ + (ulong)j_ * K * 16); \
			for (uint r_ = (first); r_ < (end); r_ += TILE_ROWS) {                     \
				uint n_ = MIN_((end)-r_, (uint)TILE_ROWS);                         \
                                                                                                   \
				TILE_AT(gemm_core_plain, TILE_ROWS, TILE_BLOCKS, r_, n_, j0_, blocks, A_ROW, \
					DECODED_BLOCK, STORE)                                      \
			}                                                                          \
		}                                                                                  \
	} else
#else
#define TALL(first, end, blocks, A_ROW, W_BLOCK, STORE)
#endif

#if TILE_ROWS > 4
#define HALF_TILE(r, n, blocks, A_ROW, W_BLOCK, STORE)                                             \
	else if ((n) <= TILE_ROWS / 2) TILE(gemm_core_half, TILE_ROWS / 2, TILE_BLOCKS * 2, r, n,  \
					    blocks, A_ROW, W_BLOCK, STORE)
#else
#define HALF_TILE(r, n, blocks, A_ROW, W_BLOCK, STORE)
#endif

#define ALL_ROWS(first, end, blocks, A_ROW, W_BLOCK, STORE)                                        \
	TALL(first, end, blocks, A_ROW, W_BLOCK, STORE)                                            \
	for (uint r_ = (first); r_ < (end);) {                                                     \
		uint n_ = MIN_((end)-r_, (uint)TILE_ROWS);                                         \
                                                                                                   \
		if (n_ == 1)                                                                       \
			TILE(gemm_core_row, 1, NPG, r_, 1, blocks, A_ROW, W_BLOCK, STORE)          \
		HALF_TILE(r_, n_, blocks, A_ROW, W_BLOCK, STORE)                                   \
		else                                                                               \
			TILE(gemm_core_tile, TILE_ROWS, TILE_BLOCKS, r_, n_, blocks, A_ROW,        \
			     W_BLOCK, STORE)                                                       \
		r_ += n_;                                                                          \
	}

#define A_PLAIN(r) (A + (ulong)(r) * lda)
#define W_PLAIN(j) panel(W, 0, COLUMN(j), N, K, 1, 0)

GROUP_FUNCTION void gemm_store_group(uint gx, uint gy, __global const elem_t *A, uint lda,
				     __global const elem_t *W, __global float *C, uint ldc, uint M, uint N, uint K)
{
	uint first = gy * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);

#define STORE_C(r, j, acc)                                                                         \
	if (COLUMN(j) < N)                                                                         \
	V_STORE((acc)[0], C + (ulong)(r) * ldc + COLUMN(j))
	ALL_ROWS(first, end, BLOCKS(N), A_PLAIN, W_PLAIN, STORE_C)
}

GROUP_FUNCTION void gemm_add_group(uint gx, uint gy, __global const elem_t *A, uint lda,
				   __global const elem_t *W, __global float *C, uint ldc, uint M, uint N, uint K,
				   __global float *dump)
{
	uint first = gy * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);

#if DUMP
#define KEEP(v, at) V_STORE(v, dump + (at))
#else
#define KEEP(v, at)
#endif
#define ADD_C(r, j, acc)                                                                           \
	if (COLUMN(j) < N) {                                                                       \
		ulong at_ = (ulong)(r) * ldc + COLUMN(j);                                          \
                                                                                                   \
		KEEP((acc)[0], at_);                                                               \
		V_STORE(V_LOAD(C + at_) + (acc)[0], C + at_);                                      \
	}
	ALL_ROWS(first, end, BLOCKS(N), A_PLAIN, W_PLAIN, ADD_C)
}

#if MOE
/* Task i of the list that moe_route wrote; *count is 0 past its end. */
static inline void moe_task(__global const int *tasks, uint i, uint *expert, uint *first, uint *count)
{
	*count = 0;
	if (i >= (uint)tasks[0])
		return;
	*expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT];
	*first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	*count = (uint)tasks[TASK_AT(i) + TASK_COUNT];
}

GROUP_FUNCTION void moe_gate_up_group(uint gx, uint gy, __global const elem_t *h, __global const elem_t *experts,
				      __global const elem_t *shared, __global const int *tasks,
				      __global const int *rows, __global elem_t *act)
{
	const uint K = LD(HIDDEN);
	uint expert, first, count, N, first_panel;
	__global const elem_t *W;

	moe_task(tasks, gy, &expert, &first, &count);
	if (!count)
		return;
	N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	W = expert < EXPERTS ? experts : shared;
	first_panel = expert < EXPERTS ? expert * 2 * (LD(EXPERT_SIZE) / 16) : 0;
	if (COLUMN(0) - LANE * VEC >= N)
		return;
#define A_GATHER(r)   (h + (ulong)(rows[r] / (TOPK + 1)) * K)
#define W_GATE_UP(j)  panel(W, first_panel, COLUMN((j) / 2), N, K, 2, (j)&1)
#define STORE_ACT(r, j, acc)                                                                       \
	if (((j)&1) == 0 && COLUMN((j) / 2) < N)                                                   \
	EV_STORE(silu_v((acc)[0]) * (acc)[1], act + (ulong)(r)*ACT_LD + COLUMN((j) / 2))
	ALL_ROWS(first, first + count, 2 * BLOCKS(N), A_GATHER, W_GATE_UP, STORE_ACT)
}

GROUP_FUNCTION void moe_down_group(uint gx, uint gy, __global const elem_t *act, __global const elem_t *experts,
				   __global const elem_t *shared, __global const int *tasks,
				   __global const int *rows, __global float *y)
{
	const uint N = LD(HIDDEN);
	uint expert, first, count, K, first_panel;
	__global const elem_t *W;

	moe_task(tasks, gy, &expert, &first, &count);
	if (!count)
		return;
	K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	W = expert < EXPERTS ? experts : shared;
	first_panel = expert < EXPERTS ? expert * (LD(HIDDEN) / 16) : 0;
#define W_DOWN(j)     panel(W, first_panel, COLUMN(j), N, K, 1, 0)
#define A_ACT(r)      (act + (ulong)(r)*ACT_LD)
#define STORE_SLOT(r, j, acc)                                                                      \
	if (COLUMN(j) < N)                                                                         \
	V_STORE((acc)[0], y + (ulong)rows[r] * LD(HIDDEN) + COLUMN(j))
	ALL_ROWS(first, first + count, BLOCKS(N), A_ACT, W_DOWN, STORE_SLOT)
}
#endif

#ifndef STEP
__kernel GROUP_SIZE void gemm_store(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *restrict C,
				    uint ldc, uint M, uint N, uint K)
{
	gemm_store_group(GROUP_X, GROUP_Y, A, lda, W, C, ldc, M, N, K);
}

__kernel GROUP_SIZE void gemm_add(__global const elem_t *restrict A, uint lda,
				  __global const elem_t *restrict W, __global float *restrict C,
				  uint ldc, uint M, uint N, uint K, __global float *restrict dump)
{
	gemm_add_group(GROUP_X, GROUP_Y, A, lda, W, C, ldc, M, N, K, dump);
}

#if MOE
__kernel GROUP_SIZE void moe_gate_up(__global const elem_t *restrict h,
				     __global const elem_t *restrict experts,
				     __global const elem_t *restrict shared,
				     __global const int *restrict tasks,
				     __global const int *restrict rows, __global elem_t *restrict act)
{
	moe_gate_up_group(GROUP_X, GROUP_Y, h, experts, shared, tasks, rows, act);
}

__kernel GROUP_SIZE void moe_down(__global const elem_t *restrict act,
				  __global const elem_t *restrict experts,
				  __global const elem_t *restrict shared,
				  __global const int *restrict tasks,
				  __global const int *restrict rows, __global float *restrict y)
{
	moe_down_group(GROUP_X, GROUP_Y, act, experts, shared, tasks, rows, y);
}
#endif
#endif
