/*
 * The matrix products of generic/gemm.cl on NVIDIA's tensor cores: same kernels, same arguments, bf16
 * operands, sums in float. In float (and for the router) the generic file is used.
 *
 * A group is WARPS warps; it has PANELS panels of 16 columns and walks its rows in tiles of 64, the last eight
 * or fewer by the narrow core. The warps share K: warp w takes the steps w, w + WARPS, ... of 16, and the
 * WARPS sums of an element are added in the order of the warps. So an element's order of summation is the
 * same at every number of rows.
 *
 * Local size WARPS * 32; global size column groups (PANELS * 16 columns) x row blocks or tasks. Needs mma.sync with
 * bf16 (compute capability 8.0). Options and reference as in generic/gemm.cl.
 */
#if !BF16
#include "generic/gemm.cl"
#else
#include "common.clh"

#define WARPS     4
#define PANELS    2
#define WIDE_ROWS 64

#define MMA_BF16(c, a, b0, b1)                                                                     \
	__asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "                    \
			 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                    \
			 : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                  \
			 : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "r"(b0), "r"(b1))

#define CORE mma_narrow
#define NT   1
#include "gemm_tile.clh"
#undef CORE
#undef NT

#define CORE mma_wide
#define NT   (WIDE_ROWS / 8)
#include "gemm_tile.clh"
#undef CORE
#undef NT

#define TENSOR_GROUP __attribute__((reqd_work_group_size(WARPS * 32, 1, 1)))
#define THREAD       ((uint)get_local_id(0))

/* The element of a tile: its WARPS sums, in order. */
static inline float tile_sum(__local const float *sums, uint rows, uint at)
{
	float sum = 0;

#pragma unroll
	for (uint w = 0; w < WARPS; w++)
		sum += sums[w * rows * PANELS * 16 + at];
	return sum;
}

/* One tile of n rows from r: see generic/gemm.cl for A_ROW. STORE(r, c, value(c')) stores row r, column c of the
 * group; `columns` is how many of the group's there are to store. */
#define TENSOR_TILE(core, ROWS, r, n, columns, A_ROW, STORE)                                       \
	{                                                                                          \
		__global const elem_t *a_[ROWS / 8];                                               \
                                                                                                   \
		_Pragma("unroll") for (uint t_ = 0; t_ < ROWS / 8; t_++)                           \
			a_[t_] = A_ROW((r) + MIN_(t_ * 8 + lane / 4, (n)-1));                      \
		core(sums + warp * ROWS * PANELS * 16, a_, w, K, warp, lane);                      \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		for (uint i_ = THREAD; i_ < (n) * (columns); i_ += WARPS * 32) {                   \
			uint row_ = i_ / (columns), c_ = i_ % (columns);                           \
                                                                                                   \
			STORE((r) + row_, c_, tile_sum(sums, ROWS, row_ * PANELS * 16 + c_),       \
			      tile_sum(sums, ROWS, row_ * PANELS * 16 + MIN_(c_ + 16, PANELS * 16 - 1))); \
		}                                                                                  \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
	}

#define TENSOR_ROWS(first, end, columns, A_ROW, STORE)                                             \
	for (uint r_ = (first); r_ < (end);) {                                                     \
		uint n_ = MIN_((end)-r_, (uint)WIDE_ROWS);                                         \
                                                                                                   \
		if (n_ <= 8)                                                                       \
			TENSOR_TILE(mma_narrow, 8, r_, n_, columns, A_ROW, STORE)                  \
		else                                                                               \
			TENSOR_TILE(mma_wide, WIDE_ROWS, r_, n_, columns, A_ROW, STORE)            \
		r_ += n_;                                                                          \
	}

#define TENSOR_LOCALS                                                                              \
	__local float sums[WARPS * WIDE_ROWS * PANELS * 16];                                       \
	uint warp = THREAD / 32, lane = THREAD % 32

#define A_PLAIN(r) (A + (ulong)(r) * lda)

/* The panels from column c0 on; past the end the last one again. */
#define PLAIN_PANELS(w, W, c0, N, K)                                                               \
	__global const elem_t *w[PANELS];                                                          \
	_Pragma("unroll") for (uint p_ = 0; p_ < PANELS; p_++)                                     \
		w[p_] = (W) + (ulong)MIN_((c0) / 16 + p_, (N) / 16 - 1) * (K) * 16

__kernel TENSOR_GROUP void gemm_store(__global const elem_t *restrict A, uint lda,
				      __global const elem_t *restrict W, __global float *restrict C,
				      uint ldc, uint M, uint N, uint K)
{
	uint c0 = get_group_id(0) * PANELS * 16, columns = MIN_(N - c0, (uint)(PANELS * 16));
	uint first = get_group_id(1) * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);
	TENSOR_LOCALS;
	PLAIN_PANELS(w, W, c0, N, K);

#define STORE_C(r, c, value, next) C[(ulong)(r) * ldc + c0 + (c)] = (value)
	TENSOR_ROWS(first, end, columns, A_PLAIN, STORE_C)
}

__kernel TENSOR_GROUP void gemm_add(__global const elem_t *restrict A, uint lda,
				    __global const elem_t *restrict W, __global float *restrict C,
				    uint ldc, uint M, uint N, uint K, __global float *restrict dump)
{
	uint c0 = get_group_id(0) * PANELS * 16, columns = MIN_(N - c0, (uint)(PANELS * 16));
	uint first = get_group_id(1) * ROW_BLOCK, end = MIN_(M, first + ROW_BLOCK);
	TENSOR_LOCALS;
	PLAIN_PANELS(w, W, c0, N, K);

#if DUMP
#define KEEP(v, at) (dump[at] = (v))
#else
#define KEEP(v, at)
#endif
#define ADD_C(r, c, value, next)                                                                   \
	ulong at_ = (ulong)(r)*ldc + c0 + (c);                                                     \
	float v_ = (value);                                                                        \
	KEEP(v_, at_);                                                                             \
	C[at_] += v_
	TENSOR_ROWS(first, end, columns, A_PLAIN, ADD_C)
}

#if MOE
#define ACT_ROW(r) (act + (ulong)(r)*ACT_LD)

__kernel TENSOR_GROUP void moe_gate_up(__global const elem_t *restrict h,
				       __global const elem_t *restrict experts,
				       __global const elem_t *restrict shared,
				       __global const int *restrict tasks,
				       __global const int *restrict rows, __global elem_t *restrict act)
{
	const uint K = LD(HIDDEN);
	uint i = get_group_id(1), c0 = get_group_id(0) * 16;
	TENSOR_LOCALS;

	if (i >= (uint)tasks[0])
		return;
	uint expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT], first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	uint end = first + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	uint N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	__global const elem_t *W =
		expert < EXPERTS ? experts + (ulong)expert * 2 * LD(EXPERT_SIZE) * K : shared;

	if (c0 >= N)
		return;
	/* Gate and up panels alternate: the group's two are those of one block of columns. */
	__global const elem_t *w[PANELS] = {W + (ulong)(c0 / 16 * 2) * K * 16,
					    W + (ulong)(c0 / 16 * 2 + 1) * K * 16};

#define A_GATHER(r) (h + (ulong)(rows[r] / (TOPK + 1)) * K)
#define STORE_ACT(r, c, gate, up) E_STORE(silu_v(gate) * (up), ACT_ROW(r) + c0 + (c))
	TENSOR_ROWS(first, end, 16, A_GATHER, STORE_ACT)
}

__kernel TENSOR_GROUP void moe_down(__global const elem_t *restrict act,
				    __global const elem_t *restrict experts,
				    __global const elem_t *restrict shared,
				    __global const int *restrict tasks,
				    __global const int *restrict rows, __global float *restrict y)
{
	const uint N = LD(HIDDEN);
	uint i = get_group_id(1), c0 = get_group_id(0) * PANELS * 16;
	uint columns = MIN_(N - c0, (uint)(PANELS * 16));
	TENSOR_LOCALS;

	if (i >= (uint)tasks[0])
		return;
	uint expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT], first = (uint)tasks[TASK_AT(i) + TASK_FIRST];
	uint end = first + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	uint K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	__global const elem_t *W =
		expert < EXPERTS ? experts + (ulong)expert * LD(HIDDEN) * K : shared;
	PLAIN_PANELS(w, W, c0, N, K);

#define STORE_SLOT(r, c, value, next) y[(ulong)rows[r] * LD(HIDDEN) + c0 + (c)] = (value)
	TENSOR_ROWS(first, end, columns, ACT_ROW, STORE_SLOT)
}
#endif
#endif
