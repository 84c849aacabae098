/*
 * The matrix products of gemm.cl and moe_gemm.cl for many rows, by wgmma: faster, and the same bits (tensor.clh says
 * why).
 *
 *     gemm_wide        C = A W, or with add C += A W: the chain of terms from k0 on
 *     gemm_wide_parts  the same for rows that generate, from row `first` on, with the chain cut into parts
 *     gemm_split       the parts of A W for these rows, each by a group of its own, for matrices of few columns
 *     gemm_sum_parts   C += the sum of the parts of gemm_split, in the order of gemm_wide_parts
 *     gate_up_wide     act = f(h G) * (h U), f of activation.clh
 *     down_wide        y = act D: the chain of terms from k0 on; the chain from 0 on is stored, the others are added
 *
 * Arguments: as in gemm.cl (without dump) and moe_gemm.cl; k0 a multiple of CHAIN_TERMS; all K multiples of 128; parts
 * [CEIL(K / PART_TERMS)][M - first][N]. Local size WIDE_LANES. Global size: gemm_wide one group for each tile of 128
 * columns x 128 rows; gemm_wide_parts of 128 columns x 64 rows; gemm_split such tiles x parts; gemm_sum_parts
 * CEIL(N / (4 * WIDE_LANES)) x rows from `first` on; gate_up_wide and down_wide groups of 128 packed columns (in
 * gate_up_wide 64 of G and 64 of U, whose panels alternate) x the largest number of tasks possible.
 * Options: activation.clh, HIDDEN, EXPERTS, TOPK, SHARED, EXPERT_SIZE, SHARED_SIZE, ACT_LD. Reference: reference_gemm,
 * reference_gate_up.
 */
#include "common.clh"
#include "activation.clh"
#include "kernels/chains.h"
#include "kernels/groups.h"
#include "panel.clh"
#include "warp.clh"
#include "wgmma.clh"

#define THREAD	    ((uint)get_local_id(0))
#define WIDE_GROUP  __attribute__((reqd_work_group_size(WIDE_LANES, 1, 1)))
#define WIDE_STAGES 3
#define WIDE_BYTES  (WIDE_STAGES * WIDE_TOKENS * WGMMA_ROW_BYTES)
#if TASK_ROWS > WIDE_TOKENS
#error "a task of the experts is one tile"
#endif
/* Neighbouring groups take so many tiles of the same rows, so that they find weights and tokens in the L2 cache. */
#define BAND	    8

#define PARTS 0
#define CORE  wide_32
#define WGMMA WGMMA_32
#define NT    32
#include "wide_tile.clh"
#undef CORE
#undef WGMMA
#undef NT

#define CORE  wide_64
#define WGMMA WGMMA_64
#define NT    64
#include "wide_tile.clh"
#undef CORE
#undef WGMMA
#undef NT

#define CORE  wide_128
#define WGMMA WGMMA_128
#define NT    128
#include "wide_tile.clh"
#undef CORE
#undef WGMMA
#undef NT

#undef PARTS
#define PARTS 1
#define CORE  wide_parts_32
#define WGMMA WGMMA_32
#define NT    32
#include "wide_tile.clh"
#undef CORE
#undef WGMMA
#undef NT

#define CORE  wide_parts_64
#define WGMMA WGMMA_64
#define NT    64
#include "wide_tile.clh"
#undef CORE
#undef WGMMA
#undef NT
#undef PARTS

/* The token of the lane's element i of a tile, and the element's column in the warp's panel. */
#define TOKEN(i)  ((i) / 4 * 8 + THREAD % 4 * 2 + (i) % 2)
#define COLUMN(i) (THREAD % 32 / 4 + (i) % 4 / 2 * 8)

/* Computes the tile of n tokens and the warp's panel w. Token t has the GEMM input A_ROW(t). PUT(d, NT) stores the
 * tile. */
#define WIDE_TILE(core, NT, n, terms, A_ROW, PUT)                                                  \
	{                                                                                          \
		__global const elem_t *a_[NT / 32];                                                \
		float d_[NT / 2];                                                                  \
                                                                                                   \
		_Pragma("unroll") for (uint i_ = 0; i_ < NT / 32; i_++)                            \
			a_[i_] = A_ROW(MIN_(THREAD / 8 + i_ * 32, (n)-1)) + THREAD % 8 * 8;        \
		core(d_, a_, w, terms, memory);                                                    \
		PUT(d_, NT)                                                                        \
	}

/* Computes n tokens with the smallest tile that has room for them. */
#define WIDE_ROWS(n, terms, A_ROW, PUT)                                                            \
	if ((n) <= 32)                                                                             \
		WIDE_TILE(wide_32, 32, n, terms, A_ROW, PUT)                                       \
	else if ((n) <= 64)                                                                        \
		WIDE_TILE(wide_64, 64, n, terms, A_ROW, PUT)                                       \
	else                                                                                       \
		WIDE_TILE(wide_128, 128, n, terms, A_ROW, PUT)

#define WIDE_LOCALS                                                                                \
	__local uint4 stages_[WIDE_BYTES / 16] __attribute__((aligned(1024)));                     \
	const uint memory = (uint)(ulong)stages_

/* Stores a tile in device memory, or with `add` adds it to the numbers there. Token t's row of the group's columns
 * begins at OUT_ROW(t), and the first `columns` of the group's 128 columns exist. The tile goes through local memory,
 * OUT_TOKENS tokens at a time: so a warp stores a whole row of 512 bytes. OUT_BEGIN() may write to local memory behind
 * them, for OUT_ROW. */
#define OUT_LD	   132 /* floats; the lanes of a warp write to different banks */
#define OUT_TOKENS 64
#define PUT_OR_ADD(d, NT)                                                                          \
	_Pragma("unroll") for (uint t_ = 0; t_ < NT; t_ += OUT_TOKENS)                             \
	{                                                                                          \
		__local float *out_ = (__local float *)stages_;                                    \
                                                                                                   \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		if (t_ == 0)                                                                       \
			OUT_BEGIN();                                                               \
		_Pragma("unroll") for (uint i_ = 0; i_ < MIN_(NT, OUT_TOKENS) / 2; i_++)           \
			out_[TOKEN(i_) * OUT_LD + THREAD / 32 * 16 + COLUMN(i_)] = d[t_ / 2 + i_];  \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		_Pragma("unroll") for (uint r_ = 0; r_ < MIN_(NT, OUT_TOKENS); r_ += 32)           \
			PUT_ROWS(t_ + r_, r_)                                                     \
	}
/* Stores (or adds) the 32 tokens of the tile from t_first on; each warp takes four. Their rows lie in local memory,
 * from row r_first on. Tokens from n on are left out. */
#define PUT_ROWS(t_first, r_first)                                                                \
	{                                                                                          \
		__global float4 *at_[4];                                                           \
		float4 sum_[4];                                                                    \
                                                                                                   \
		_Pragma("unroll") for (uint i_ = 0; i_ < 4; i_++)                                  \
		{                                                                                  \
			uint row_ = i_ * 8 + THREAD / 32, column_ = THREAD % 32 * 4;               \
                                                                                                   \
			at_[i_] = (__global float4 *)(OUT_ROW(MIN_((t_first) + row_, n - 1)) +     \
						      MIN_(column_, columns - 4));                 \
			sum_[i_] = *(__local float4 *)(out_ + ((r_first) + row_) * OUT_LD + column_); \
			if (add)                                                                   \
				sum_[i_] = *at_[i_] + sum_[i_];                                    \
		}                                                                                  \
		_Pragma("unroll") for (uint i_ = 0; i_ < 4; i_++)                                  \
			if ((t_first) + i_ * 8 + THREAD / 32 < n && THREAD % 32 * 4 < columns)     \
				*at_[i_] = sum_[i_];                                               \
		__asm__ volatile("" ::: "memory");                                                 \
	}

/* The tile of the group: columns column0 .. column0 + columns - 1 of rows r0 .. r0 + n - 1, of which there are `tokens`
 * in a whole tile; w: the weights of the warp's panel; c: the tile's first element. */
#define GEMM_TILE(first, tokens)                                                                   \
	const uint gm = CEIL_(M - (first), tokens), gn = CEIL_(N, WIDE_COLUMNS);                        \
	const uint band = (uint)get_group_id(0) / (BAND * gm);                                     \
	const uint rest = (uint)get_group_id(0) % (BAND * gm), width = MIN_((uint)BAND, gn - band * BAND); \
	const uint r0 = (first) + rest / width * (tokens), n = MIN_(M - r0, (uint)(tokens));       \
	const uint column0 = (band * BAND + rest % width) * WIDE_COLUMNS, columns = MIN_(N - column0, (uint)WIDE_COLUMNS); \
	const uint mine = MIN_(column0 / 16 + THREAD / 32, N / 16 - 1);                            \
	const panel_t w = PANEL_FROM(PANEL_OF(W, mine, K), k0);                                    \
	__global float *c = C + (ulong)r0 * ldc + column0;                                         \
	WIDE_LOCALS
#define A_PLAIN(t) (A + (ulong)(r0 + (t)) * lda + k0)
#define OUT_ROW(t) (c + (t) * ldc)
#define OUT_BEGIN()

__kernel WIDE_GROUP void gemm_wide(__global const elem_t *restrict A, uint lda, __global const elem_t *restrict W,
				   __global float *C, uint ldc, uint M, uint N, uint K, uint k0, uint add)
{
	GEMM_TILE(0, WIDE_TOKENS);

	WIDE_ROWS(n, MIN_(K - k0, (uint)CHAIN_TERMS), A_PLAIN, PUT_OR_ADD)
}

/* Computes the group's tile of rows that generate, over `terms` terms. */
#define PART_ROWS(terms)                                                                           \
	if (n <= 32)                                                                               \
		WIDE_TILE(wide_parts_32, 32, n, terms, A_PLAIN, PUT_OR_ADD)                        \
	else                                                                                       \
		WIDE_TILE(wide_parts_64, 64, n, terms, A_PLAIN, PUT_OR_ADD)

__kernel WIDE_GROUP void gemm_wide_parts(__global const elem_t *restrict A, uint lda,
					 __global const elem_t *restrict W, __global float *C, uint ldc, uint M, uint N,
					 uint K, uint k0, uint add, uint first)
{
	GEMM_TILE(first, PART_TOKENS);

	PART_ROWS(MIN_(K - k0, (uint)CHAIN_TERMS))
}

__kernel WIDE_GROUP void gemm_split(__global const elem_t *restrict A, uint lda, __global const elem_t *restrict W,
				    __global float *parts, uint first, uint M, uint N, uint K)
{
	const uint k0 = (uint)get_group_id(1) * PART_TERMS, ldc = N, add = 0;
	__global float *C = parts + ((long)get_group_id(1) * (M - first) - first) * N;
	GEMM_TILE(first, PART_TOKENS);

	PART_ROWS(MIN_(K - k0, (uint)PART_TERMS))
}
#undef OUT_ROW
#undef OUT_BEGIN

__kernel WIDE_GROUP void gemm_sum_parts(__global const float4 *restrict parts, __global float *C, uint ldc, uint first,
					uint M, uint N, uint K)
{
	const uint quad = (uint)get_group_id(0) * WIDE_LANES + THREAD, row = (uint)get_group_id(1);
	const uint n = CEIL_(K, PART_TERMS), of_chain = CHAIN_TERMS / PART_TERMS;
	const ulong next = (ulong)(M - first) * (N / 4); /* from a part to the next one */
	__global float4 *c = (__global float4 *)(C + (ulong)(first + row) * ldc) + quad;

	if (quad >= N / 4)
		return;
	parts += row * (N / 4) + quad;
	for (uint p0 = 0; p0 < n; p0 += of_chain) {
		float4 x[CHAIN_TERMS / PART_TERMS], sum;

#pragma unroll
		for (uint i = 0; i < of_chain; i++)
			x[i] = parts[MIN_(p0 + i, n - 1) * next];
		sum = x[0];
#pragma unroll
		for (uint i = 1; i < of_chain; i++)
			if (p0 + i < n)
				sum += x[i];
		*c = *c + sum;
	}
}

/* Reads the expert, the first row and the number of rows of the group's task, all at once. Returns from the kernel if
 * the group has no task. */
#define TASK_OF_GROUP(expert, first, n)                                                            \
	const uint task_ = get_group_id(1), tasks_ = (uint)tasks[0],                               \
		   expert = (uint)tasks[TASK_AT(task_) + TASK_EXPERT],                             \
		   first = (uint)tasks[TASK_AT(task_) + TASK_FIRST],                               \
		   n = (uint)tasks[TASK_AT(task_) + TASK_COUNT];                                   \
                                                                                                   \
	if (task_ >= tasks_)                                                                       \
		return

__kernel WIDE_GROUP void gate_up_wide(__global const elem_t *restrict h, __global const elem_t *restrict experts,
				      __global const elem_t *restrict shared, __global const int *restrict tasks,
				      __global const int *restrict rows, __global elem_t *restrict act)
{
	const uint K = LD(HIDDEN);
	TASK_OF_GROUP(expert, first, n);
	const uint N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	const uint panel = (uint)get_group_id(0) * 8 + THREAD / 32, mine = MIN_(panel, N / 8 - 1);
	const panel_t w = expert < EXPERTS ? PANEL_OF(experts, expert * 2 * (LD(EXPERT_SIZE) / 16) + mine, K) :
					     PANEL_OF(shared, mine, K);
	WIDE_LOCALS;
	/* all elements of the up panel, and half of those of the gate panel */
	__local float *up = (__local float *)stages_ + THREAD / 64 * (WIDE_TOKENS * 16) + THREAD % 32;
	__local float *gate =
		(__local float *)stages_ + 4 * WIDE_TOKENS * 16 + THREAD / 64 * (WIDE_TOKENS * 8) + THREAD % 32;

	if ((uint)get_group_id(0) * 64 >= N)
		return;
#define A_GATHER(t) (h + (ulong)(rows[first + (t)] / (TOPK + SHARED)) * K)
/* One warp has a gate panel, the next one the up panel beside it. Lanes of the same number in these two warps have the
 * same tokens and columns. The first warp stores the first half of the tokens, the second warp the other half. A lane
 * exchanges tokens with the one that has the next column, so that each stores two columns of every other token. */
#define PUT_ACT(d, NT)                                                                             \
	{                                                                                          \
		const uint second_ = panel & 1, odd_ = THREAD / 4 & 1;                             \
		__global uint *to_ = (__global uint *)(act + (ulong)(first + second_ * (NT / 2)) * ACT_LD + \
						       panel / 2 * 16 + THREAD % 32 / 8 * 2);      \
                                                                                                   \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		if (second_)                                                                       \
			_Pragma("unroll") for (uint i_ = 0; i_ < NT / 2; i_++)                     \
				up[i_ * 32] = d[i_];                                               \
		else                                                                               \
			_Pragma("unroll") for (uint i_ = 0; i_ < NT / 4; i_++)                     \
				gate[i_ * 32] = d[NT / 4 + i_];                                    \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		_Pragma("unroll") for (uint i_ = 0; i_ < NT / 4; i_ += 2)                          \
		{                                                                                  \
			float act_[2], next_;                                                      \
			uint token_ = TOKEN(i_) + odd_, two_;                                      \
                                                                                                   \
			_Pragma("unroll") for (uint j_ = 0; j_ < 2; j_++)                          \
			{                                                                          \
				float gate_ = gate[(i_ + j_) * 32];                                \
                                                                                                   \
				gate_ = second_ ? gate_ : d[i_ + j_];                              \
				act_[j_] = activation_v(gate_) * up[(second_ * (NT / 4) + i_ + j_) * 32]; \
			}                                                                          \
			next_ = other_lane(odd_ ? act_[0] : act_[1], 4);                           \
			two_ = odd_ ? bf16_round(next_) | (uint)bf16_round(act_[1]) << 16          \
				    : bf16_round(act_[0]) | (uint)bf16_round(next_) << 16;         \
			if (second_ * (NT / 2) + token_ < n && panel == mine)                      \
				to_[(token_ * ACT_LD + i_ % 4 / 2 * 8) / 2] = two_;                \
			__asm__ volatile("" ::: "memory");                                         \
		}                                                                                  \
	}
	WIDE_ROWS(n, K, A_GATHER, PUT_ACT)
}

__kernel WIDE_GROUP void down_wide(__global const elem_t *restrict act, __global const elem_t *restrict experts,
				   __global const elem_t *restrict shared, __global const int *restrict tasks,
				   __global const int *restrict rows, __global float *y, uint k0)
{
	const uint N = LD(HIDDEN), add = k0;
	TASK_OF_GROUP(expert, first, n);
	const uint K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	const uint column0 = (uint)get_group_id(0) * WIDE_COLUMNS, columns = MIN_(N - column0, (uint)WIDE_COLUMNS);
	const uint mine = MIN_(column0 / 16 + THREAD / 32, N / 16 - 1);
	const panel_t w = PANEL_FROM(expert < EXPERTS ? PANEL_OF(experts, expert * (LD(HIDDEN) / 16) + mine, K) :
							PANEL_OF(shared, mine, K), k0);
	/* Each lane reads the row of y of one token now, because a warp that stores would wait for it. */
	const uint out_row = (uint)rows[first + MIN_(THREAD, n - 1)];
	WIDE_LOCALS;
	__local uint *out_rows = (__local uint *)stages_ + OUT_TOKENS * OUT_LD;

	if (k0 >= K)
		return;
#define A_ACT(t)   (act + (ulong)(first + (t)) * ACT_LD + k0)
#define OUT_ROW(t) (y + (ulong)out_rows[t] * LD(HIDDEN) + column0)
#define OUT_BEGIN()                                                                                \
	if (THREAD < WIDE_TOKENS)                                                                  \
	out_rows[THREAD] = out_row
	WIDE_ROWS(n, MIN_(K - k0, (uint)CHAIN_TERMS), A_ACT, PUT_OR_ADD)
}
