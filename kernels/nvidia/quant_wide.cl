/*
 * Matrix products with quantised weights for many rows (prompts), with the bits of quant_rows.clh.
 *
 *     quant_wide           C = A W, or C += A W with add
 *     gate_up_quant_wide   moe_gate_up of generic/moe_gemm.cl, for sums of one chain
 *     down_quant_wide      moe_down of generic/moe_gemm.cl
 *
 * A group computes 256 columns of 64 rows at a time: each warp a panel of 16 columns, whose codes it reads itself. The
 * int8 inputs of the rows (generic/input.clh) are the same for all warps. They come to local memory by stages of
 * STAGE_TERMS terms, of which the next one is on its way while one is multiplied. A warp adds a part up (PART_TERMS
 * terms: two stages), and then the part to its sums.
 *
 * Panels that are not quantised are multiplied behind all stages, from global memory.
 *
 * Local size: 512. Global size: groups of 256 columns x groups of 64 rows, or x the largest number of tasks possible.
 * Arguments: those of generic/gemm.cl and generic/moe_gemm.cl. Reference: quant_rows.clh, bit by bit.
 */
#if BF16 && INT8
#include "activation.clh"
#include "copy.clh"
#include "quant_rows.clh"

#define TILES	     (QUANT_TOKENS / 8)
#define STAGE_GROUPS 4 /* groups of 32 terms */
#define STAGE_TERMS  (STAGE_GROUPS * 32)

/* Words of local memory: of the stage's codes [STAGE_GROUPS][QUANT_TOKENS][8], and of what else their blocks have
 * (IN_SCALE ...) [STAGE_GROUPS][QUANT_TOKENS][4]; two stages of both. */
#define CODES	    (STAGE_GROUPS * QUANT_TOKENS * 8)
#define STAGE_WORDS (STAGE_GROUPS * QUANT_TOKENS * 12)

#define ALL_TILES(i) _Pragma("unroll") for (uint i = 0; i < TILES; i++)

/* Begins to copy the groups of a stage of one row. blocks: those of the stage in that row; groups: how many there
 * are. */
GROUP_FUNCTION void copy_stage(LOCAL uint *stage, __global const uint *blocks, uint groups)
{
	const uint token = THREAD / STAGE_GROUPS, g = THREAD % STAGE_GROUPS;
	const uint codes = (uint)(ulong)(stage + (g * QUANT_TOKENS + token) * 8);
	const uint rest = (uint)(ulong)(stage + CODES + (g * QUANT_TOKENS + token) * 4);

	if (token >= QUANT_TOKENS || g >= groups)
		return;
	blocks += g * IN_WORDS;
	COPY_16(codes, blocks);
	COPY_16(codes + 16, blocks + 4);
	COPY_16(rest, blocks + IN_SCALE);
}

/* Adds the products of group g of a stage to acc. chunk: that of the group; of: the group's number in it. */
INLINED void wide_group(float acc[TILES][4], LOCAL const uint *stage, uint g, __global const uchar *chunk, uint of,
			float factor, const uint chunk_k, const uint low, const uint high, const uint group,
			const int scale, const int min, const int offset, const int table)
{
	const uint parts = 32 / MIN_(group, 32u), c = WARP_LANE / 4, t = WARP_LANE % 4;
	__global const uchar *planes = chunk + QUANT_SCALES(chunk_k, group, scale, min);
	const float2 super = mma_super(chunk, c, scale), super_min = mma_super(chunk + 32, c, min ? scale : QUANT_HALF);
	LOCAL const uint *codes = stage + (g * QUANT_TOKENS + c) * 8 + 2 * t, *rest = stage + CODES + (g * QUANT_TOKENS + 2 * t) * 4;
	uint a[4];
	float2 s[2], m[2];

	mma_codes(planes, planes + chunk_k * 2 * low, of, c, t, low, high, table, a);
#pragma unroll
	for (uint p = 0; p < parts; p++)
		s[p] = mma_scale(chunk, QUANT_GROUP(of, p, group), c, super, super_min, factor, chunk_k / group, scale,
				 min, &m[p]);
	ALL_TILES (i) {
		LOCAL const uint4 *of_columns = (LOCAL const uint4 *)(rest + i * 32);

		mma_group(acc[i], a, *(LOCAL const uint2 *)(codes + i * 64), columns_of(of_columns[0], of_columns[1]), t, s, m,
			  parts, min, offset);
	}
}

/* Loads one word of each sector (32 bytes) of at most 1,024 bytes, a lane each, so that they are in the L1 cache. */
INLINED uint touch(__global const uchar *from, uint bytes)
{
	const uint at = WARP_LANE * 32;

	return at < bytes ? *(__global const uint *)(from + at) : 0;
}

/* Asks for the weights of the stage that begins at term k. Returns words that must not be needed before they are
 * there. */
INLINED uint4 wide_ask(__global const uchar *chunk, uint k, const uint chunk_k, const uint low, const uint high,
		       const uint scales, const uint bytes)
{
	const uint g = k % chunk_k / 32;
	uint4 r = 0;

	if (chunk_k <= STAGE_TERMS) {
		const uint all = STAGE_TERMS / chunk_k * bytes;

		r.x = touch(chunk, all);
		r.y = touch(chunk + 1024, MAX_(all, 1024u) - 1024);
		r.z = touch(chunk + 2048, MAX_(all, 2048u) - 2048);
		return r;
	}
	r.x = touch(chunk + scales + g * 64 * low, STAGE_GROUPS * 64 * low);
	r.y = touch(chunk + scales + chunk_k * 2 * low + g * 64 * high, STAGE_GROUPS * 64 * high);
	r.z = g ? 0 : touch(chunk, scales);
	return r;
}

INLINED void wide_stage_of_type(float acc[TILES][4], LOCAL const uint *stage, __global const uchar *panel, uint k,
				uint groups, bool more, const uint chunk_k, const uint low, const uint high,
				const uint group, const int scale, const int min, const int offset, const int table)
{
	const uint bytes = QUANT_CHUNK(chunk_k, low, high, group, scale, min), next = k + STAGE_TERMS;
	const float factor = *((__global const float *)panel + 1);
	__global const uchar *chunks = panel + QUANT_HEADER;
	uint4 asked = 0;

	if (more)
		asked = wide_ask(chunks + (ulong)(next / chunk_k) * bytes, next, chunk_k, low, high,
				 QUANT_SCALES(chunk_k, group, scale, min), bytes);
#pragma unroll 1
	for (uint g = 0; g < groups; g++, k += 32)
		wide_group(acc, stage, g, chunks + (ulong)(k / chunk_k) * bytes, k % chunk_k / 32, factor, chunk_k, low,
			   high, group, scale, min, offset, table);
	__asm__ volatile("" ::"r"(asked.x), "r"(asked.y), "r"(asked.z));
}

/* Adds the products of a stage, which begins at term k, to acc. more: a whole stage follows. */
GROUP_FUNCTION void wide_stage(float acc[TILES][4], LOCAL const uint *stage, __global const uchar *panel, uint k,
			       uint groups, bool more)
{
#define QUANT_CASE(name, number, c, l, h, g, s, m, o, t)                                           \
	case number:                                                                               \
		if ((QUANT_MASK >> number) & 1)                                                    \
			wide_stage_of_type(acc, stage, panel, k, groups, more, c, l, h, g, s, m, o, t); \
		break;
	switch (*(__global const uint *)panel) {
		QUANT_TYPES(QUANT_CASE)
	}
#undef QUANT_CASE
}

/* Computes terms begin .. end - 1, at most a chain, of the warp's panel w and the group's rows into all, which is 0 for
 * a warp without a panel. blocks: those of the row that this thread copies, from term 0 on. */
GROUP_FUNCTION void wide_sums(float all[TILES][4], LOCAL uint *stages, __global const uint *blocks,
			      __global const elem_t *w, uint begin, uint end)
{
	const bool busy = w && PANEL_IS_QUANTISED(w);
	float acc[TILES][4];

	ALL_TILES (i) {
		all[i][0] = all[i][1] = all[i][2] = all[i][3] = 0;
		acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0;
	}
	barrier(CLK_LOCAL_MEM_FENCE); /* the stages before are over */
	copy_stage(stages, blocks + begin / 32 * IN_WORDS, (end - begin) / 32);
	COPY_END();
#pragma unroll 1
	for (uint k = begin; k < end; k += STAGE_TERMS) {
		const uint number = (k - begin) / STAGE_TERMS, next = k + STAGE_TERMS;

		COPY_WAIT(0);
		barrier(CLK_LOCAL_MEM_FENCE); /* this stage is there, and the one before is over */
		if (next < end)
			copy_stage(stages + (number + 1) % 2 * STAGE_WORDS, blocks + next / 32 * IN_WORDS, (end - next) / 32);
		COPY_END();
		if (!busy)
			continue;
		wide_stage(acc, stages + number % 2 * STAGE_WORDS, (__global const uchar *)w, k,
			   MIN_((end - k) / 32, (uint)STAGE_GROUPS), next + STAGE_TERMS <= end);
		if (next % PART_TERMS && next < end)
			continue;
		/* the end of a part */
		ALL_TILES (i)
#pragma unroll
			for (uint e = 0; e < 4; e++) {
				all[i][e] = next - begin <= PART_TERMS ? acc[i][e] : all[i][e] + acc[i][e];
				acc[i][e] = 0;
			}
	}
}

/* The same for a panel that is not quantised. at: where the rows of the lane's columns of B begin, counted from A. */
GROUP_FUNCTION void wide_plain(float all[TILES][4], __global const elem_t *A, const uint at[TILES],
			       __global const elem_t *w, uint begin, uint end)
{
	w += QUANT_HEADER / sizeof(elem_t);
#pragma unroll
	for (uint half_ = 0; half_ < TILES; half_ += 4)
		for (uint k = begin; k < end; k += PART_TERMS) {
			float acc[4][4];

			plain_32(acc, A + k, at + half_, w + (ulong)k * 16, MIN_(end - k, (uint)PART_TERMS));
#pragma unroll
			for (uint i = 0; i < 4; i++)
#pragma unroll
				for (uint e = 0; e < 4; e++)
					all[half_ + i][e] = k == begin ? acc[i][e] : all[half_ + i][e] + acc[i][e];
		}
}

/* Computes terms begin .. end - 1 of the group's n rows into all. AT(r): where row r begins, counted from A. */
#define WIDE_SUMS(A, AT, n, K, begin, end)                                                         \
	{                                                                                          \
		wide_sums(all, stages, IN_BLOCKS((A) + AT(MIN_(THREAD / STAGE_GROUPS, (n)-1)), K), w, begin, end); \
		if (QUANT_MASK & 1 && w && !PANEL_IS_QUANTISED(w)) {                               \
			uint at_[TILES];                                                           \
                                                                                                   \
			ALL_TILES (i_)                                                             \
				at_[i_] = AT(MIN_(i_ * 8 + WARP_LANE / 4, (n)-1));                 \
			wide_plain(all, A, at_, w, begin, end);                                    \
		}                                                                                  \
	}

/* Runs `store` for each of the lane's sums that is of a row below n: row, column and sum are its row, its column of the
 * panel and itself. */
#define FOR_SUMS(n, store)                                                                         \
	if (w) {                                                                                   \
		const uint lane_ = hidden_thread() % 32;                                           \
                                                                                                   \
		ALL_TILES (i_)                                                                     \
			_Pragma("unroll") for (uint e_ = 0; e_ < 4; e_++)                          \
			{                                                                          \
				const uint row = i_ * 8 + lane_ % 4 * 2 + e_ % 2;                  \
				const uint column = PANEL_COLUMN(lane_, e_, quantised);            \
				const float sum = all[i_][e_];                                     \
                                                                                                   \
				if (row < (n))                                                     \
					store;                                                     \
			}                                                                          \
	}

__kernel QUANT_GROUP_LANES void quant_wide(__global const elem_t *restrict A, uint lda, __global const elem_t *restrict W,
					   __global float *C, uint ldc, uint M, uint N, uint K, uint add)
{
	LOCAL uint stages[2 * STAGE_WORDS] QUADS_ALIGNED;
	const uint panel = (uint)get_group_id(0) * QUANT_WARPS + THREAD / 32, first = (uint)get_group_id(1) * QUANT_TOKENS;
	const uint n = MIN_(M - first, (uint)QUANT_TOKENS);
	__global const elem_t *w = panel < N / 16 ? (__global const elem_t *)QUANT_PANEL_AT(W, panel) : 0;
	const bool quantised = w && PANEL_IS_QUANTISED(w);
	float all[TILES][4];

	A += (ulong)first * lda;
	C += (ulong)first * ldc + panel * 16;
#define AT_ROW(r) ((r)*lda)
	for (uint k = 0; k < K; k += CHAIN_TERMS) {
		const bool adds = add || k;

		WIDE_SUMS(A, AT_ROW, n, K, k, MIN_(K, k + CHAIN_TERMS))
		FOR_SUMS (n, {
			__global float *to = C + (ulong)row * ldc + column;

			*to = adds ? *to + sum : sum;
		})
	}
#undef AT_ROW
}

__kernel QUANT_GROUP_LANES void gate_up_quant_wide(__global const elem_t *restrict h,
						   __global const elem_t *restrict experts,
						   __global const elem_t *restrict shared, __global const int *restrict tasks,
						   __global const int *restrict rows, __global elem_t *restrict act)
{
	LOCAL uint stages[2 * STAGE_WORDS] QUADS_ALIGNED;
	LOCAL float *up = (LOCAL float *)stages + THREAD / 64 * 512; /* of a pair of warps: [32 rows][16] */
	const uint K = LD(HIDDEN), column0 = (uint)get_group_id(0) * (QUANT_WARPS * 8);
	float all[TILES][4];

	if (get_group_id(1) >= (uint)tasks[0])
		return;
	const uint i = LAST_FIRST(tasks), expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT];
	const uint begin = (uint)tasks[TASK_AT(i) + TASK_FIRST], end = begin + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	const uint N = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	/* Gate and up panels alternate. */
	const uint panel = column0 / 8 + THREAD / 32, from = expert < EXPERTS ? expert * 2 * (LD(EXPERT_SIZE) / 16) : 0;

	if (column0 >= N)
		return;
	__global const elem_t *w = panel < N / 8 ? (__global const elem_t *)QUANT_PANEL_AT(expert < EXPERTS ? experts : shared,
											  from + panel) : 0;
	const bool quantised = w && PANEL_IS_QUANTISED(w);

#define AT_ROW(r) ((uint)rows[first + (r)] / (TOPK + SHARED) * IN_LD(K))
	for (uint first = begin; first < end; first += QUANT_TOKENS) {
		const uint n = MIN_(end - first, (uint)QUANT_TOKENS);

		WIDE_SUMS(h, AT_ROW, n, K, 0, K)
		/* The second warp of a pair has the up panel. It hands over four tiles at a time. */
#pragma unroll
		for (uint four = 0; four < TILES; four += 4) {
			const uint lane = hidden_thread() % 32;

#define OWN_ROW(j)    ((j) / 4 * 8 + lane % 4 * 2 + (j) % 2)
#define OWN_COLUMN(j) PANEL_COLUMN(lane, (j) % 4, quantised)
			barrier(CLK_LOCAL_MEM_FENCE);
			if (THREAD / 32 % 2)
#pragma unroll
				for (uint j = 0; j < 16; j++)
					up[OWN_ROW(j) * 16 + OWN_COLUMN(j)] = all[four + j / 4][j % 4];
			barrier(CLK_LOCAL_MEM_FENCE);
			if (w && THREAD / 32 % 2 == 0)
#pragma unroll
				for (uint j = 0; j < 16; j++)
					if (four * 8 + OWN_ROW(j) < n)
						E_STORE(activation_v(all[four + j / 4][j % 4]) * up[OWN_ROW(j) * 16 + OWN_COLUMN(j)],
							act + (ulong)(first + four * 8 + OWN_ROW(j)) * ACT_LD + panel / 2 * 16 +
								OWN_COLUMN(j));
		}
	}
#undef AT_ROW
	if (N % 32 == 0) {
		const uint blocks = MIN_(N - column0, (uint)QUANT_WARPS * 8) / 32;

		barrier(CLK_GLOBAL_MEM_FENCE);
		for (uint j = THREAD; j < (end - begin) * blocks; j += QUANT_WARPS * 32)
			in_quantise_block(act + (ulong)(begin + j / blocks) * ACT_LD, N, column0 / 32 + j % blocks);
	}
}

__kernel QUANT_GROUP_LANES void down_quant_wide(__global const elem_t *restrict act, __global const elem_t *restrict experts,
						__global const elem_t *restrict shared, __global const int *restrict tasks,
						__global const int *restrict rows, __global float *y)
{
	LOCAL uint stages[2 * STAGE_WORDS] QUADS_ALIGNED;
	const uint panel = (uint)get_group_id(0) * QUANT_WARPS + THREAD / 32;
	float all[TILES][4];

	if (get_group_id(1) >= (uint)tasks[0])
		return;
	const uint i = LAST_FIRST(tasks), expert = (uint)tasks[TASK_AT(i) + TASK_EXPERT];
	const uint begin = (uint)tasks[TASK_AT(i) + TASK_FIRST], end = begin + (uint)tasks[TASK_AT(i) + TASK_COUNT];
	const uint K = expert < EXPERTS ? LD(EXPERT_SIZE) : LD(SHARED_SIZE);
	__global const elem_t *w = panel < LD(HIDDEN) / 16 ?
					   (__global const elem_t *)QUANT_PANEL_AT(expert < EXPERTS ? experts : shared,
										   (expert < EXPERTS ? expert * (LD(HIDDEN) / 16) : 0) + panel) : 0;
	const bool quantised = w && PANEL_IS_QUANTISED(w);

	for (uint first = begin; first < end; first += QUANT_TOKENS) {
		const uint n = MIN_(end - first, (uint)QUANT_TOKENS);
		__global const elem_t *A = act + (ulong)first * ACT_LD;

#define AT_ROW(r) ((r)*ACT_LD)
		for (uint k = 0; k < K; k += CHAIN_TERMS) {
			WIDE_SUMS(A, AT_ROW, n, K, k, MIN_(K, k + CHAIN_TERMS))
			FOR_SUMS (n, {
				__global float *to = y + (ulong)rows[first + row] * LD(HIDDEN) + panel * 16 + column;

				*to = k ? *to + sum : sum;
			})
		}
#undef AT_ROW
	}
}
#endif
