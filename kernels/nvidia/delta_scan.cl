/*
 * The step of delta_tensor.clh that goes through the chunks of a row one after the other: delta_scan_tensor.
 *
 * Everything is computed transposed. A warp has 16 columns of the state, which are the rows of its products, so that S
 * and V' stay in the registers of one warp:
 *
 *     V'^T = U^T - S^T W^T     S^T <- e^G_C S^T + V'^T K'
 *
 * A result is the A operand of the next product as it lies (mma.clh). W and K' are B operands. They go through local
 * memory, where there is room for three of them: while one is read, a warp of its own brings the next two. Here the
 * products are by mma.sync; delta_scan_wide.cl has them by wgmma.
 *
 *     step, state, first_row   as in generic/delta_chunks.cl. The states of the rows and of their snapshots go to their
 *              slots.
 *     work     as in delta_tensor.clh; in and out
 *
 * Local size SCAN_LANES. Groups: rows * HV * CEIL(DV / SCAN_COLUMNS). Options: delta_tensor.clh. Reference:
 * reference_delta_step.
 */
#include "delta_tensor.clh"

#ifndef BY_ROWS
/* d[32] += a B, where B has 64 columns and 16 terms, of step k. BY_ROWS: the columns are rows of the tile; BY_TERMS:
 * the terms are. WRITTEN stands before the barrier behind which tiles that this lane wrote are read. Results are read
 * behind PRODUCTS_END and PRODUCTS_READ. */
#define WRITTEN()
#define PRODUCTS_BEGIN()
#define PRODUCTS_END()
#define PRODUCTS_READ(d)
#define PRODUCTS_(load, d, a, tile, k)                                                             \
	_Pragma("unroll") for (uint i_ = 0; i_ < 4; i_++)                                          \
	{                                                                                          \
		uint b_[4];                                                                        \
                                                                                                   \
		load(b_, tile, i_, k);                                                             \
		MMA((d) + i_ * 8, a, b_[0], b_[1]);                                                \
		MMA((d) + i_ * 8 + 4, a, b_[2], b_[3]);                                            \
	}
#define BY_ROWS(d, a, tile, k)	PRODUCTS_(LOAD_ROWS, d, a, tile, k)
#define BY_TERMS(d, a, tile, k) PRODUCTS_(LOAD_TERMS, d, a, tile, k)
#endif

/* Waits for all warps of the group. */
#define MEET() __asm__ volatile("bar.sync 1, %0;" ::"n"(SCAN_LANES) : "memory")

/* Brings W and K' of each chunk in turn to the three places in local memory, by a warp of its own: so the warps that
 * compute wait for no copy and for no write of theirs. It meets the warps that compute (MEET) before they read a tile.
 * When they meet, none of them reads the tile before that one any more. */
GROUP_FUNCTION void bring_tiles(uint memory, __global const uint4 *own, uint chunks, uint lane)
{
	uint to = memory;

#define BRING(tile)                                                                                \
	do {                                                                                       \
		__global const uint4 *from_ = own + (ulong)((tile) / 2) * CHUNK_QUADS + ((tile) % 2 ? OF_K : OF_W) + lane; \
                                                                                                   \
		if ((tile) < 2 * chunks)                                                           \
			_Pragma("unroll") for (uint i_ = 0; i_ < K_QUADS; i_ += 32)                 \
				COPY_16(to + (i_ + lane) * 16, from_ + i_);                         \
		COPY_END();                                                                        \
		to = to == memory + 2 * K_QUADS * 16 ? memory : to + K_QUADS * 16;                  \
	} while (0)
	BRING(0u);
	BRING(1u);
	for (uint i = 0; i < 2 * chunks; i++) {
		COPY_WAIT(1);
		WRITTEN();
		MEET();
		if (i % 2 == 0 && i / 2 + 3 < chunks) /* not all of work is in the L2 cache */
			for (uint line = lane; line < 2 * K_QUADS / 8; line += 32)
				PREFETCH(own + (ulong)(i / 2 + 3) * CHUNK_QUADS + line * 8);
		BRING(i + 2);
	}
}

#define FOR_PARTS(d) _Pragma("unroll") for (uint d = 0; d < DIM_PARTS; d++)
/* Loops over the lane's elements of S; where element i of part d is in a slot. */
#define FOR_STATE(d, i) FOR_PARTS (d) _Pragma("unroll") for (uint i = 0; i < 32; i++)
#define STATE(slot, d, i)                                                                          \
	(state + (((ulong)(slot) * HV + h) * DK + (d) * 64 + (i) / 4 * 8 + first + (i) % 2) * DV + column + (i) % 4 / 2 * 8)

__kernel __attribute__((reqd_work_group_size(SCAN_LANES, 1, 1))) void
delta_scan_tensor(__global const int *restrict step, int rows_at, int first_row, __global uint4 *work,
		  __global float *state)
{
	__local uint4 memory_[3 * K_QUADS] __attribute__((aligned(1024)));
	const uint memory = (uint)(ulong)memory_, blocks = CEIL_(DV, SCAN_COLUMNS), lane = (uint)get_local_id(0) % 32;
	__global const int *rows = step + rows_at + first_row * ROW_INTS;
	__global const int *row = rows + GROUP_X / (HV * blocks) * ROW_INTS;
	const uint h = GROUP_X / blocks % HV;
	const uint wanted = GROUP_X % blocks * SCAN_WARPS + (uint)get_local_id(0) / 32 % SCAN_WARPS;
	/* warps past the last block compute the last block again, and keep nothing */
	const uint block = MIN_(wanted, (uint)BLOCKS - 1), column = block * 16 + lane / 4, first = lane % 4 * 2;
	const bool mine = wanted < BLOCKS;
	const uint count = (uint)row[ROW_COUNT], chunks = CEIL_(count, C), begin = first_chunk_of_row(rows, row);
	const int src = row[ROW_STATE_SRC];
	__global uint4 *own = VALUE_WORK(begin, h);
	__global uint4 *states = own + OF_S + block * STEPS * 32 + lane;
	__global uint4 *values = own + OF_V + block * TOKEN_STEPS * 32 + lane;
	uint tile = memory, next = memory + K_QUADS * 16, after = memory + 2 * K_QUADS * 16;
	float S[DIM_PARTS][32], decay;
	uint4 u[TOKEN_STEPS];

#define LOAD_U()                                                                                   \
	do {                                                                                       \
		_Pragma("unroll") for (uint m_ = 0; m_ < TOKEN_STEPS; m_++) u[m_] = values[m_ * 32]; \
		decay = ((__global const float *)(own + OF_FACTORS))[C];                            \
	} while (0)
	if (get_local_id(0) >= SCAN_WARPS * 32) {
		bring_tiles(memory, own, chunks, lane);
		return;
	}
	LOAD_U();
	FOR_STATE (d, i)
		S[d][i] = src != ROW_STATE_ZERO ? *STATE(MAX_(src, 0), d, i) : 0.0f;
	for (uint chunk = 0; chunk < chunks; chunk++) {
		const uint done = MIN_((chunk + 1) * C, count);
		const bool more = chunk + 1 < chunks;
		float x[32];
		uint4 a[STEPS], v[TOKEN_STEPS];

#pragma unroll
		for (uint i = 0; i < 32; i++)
			x[i] = 0;
#pragma unroll
		for (uint s = 0; s < STEPS; s++)
			a[s] = operand_of(S[s / 4] + s % 4 * 8);
		MEET();
		PRODUCTS_BEGIN();
#pragma unroll
		for (uint s = 0; s < STEPS; s++)
			BY_ROWS(x, a[s], tile + s / 4 * TILE_BYTES, s % 4);
		if (mine)
#pragma unroll
			for (uint s = 0; s < STEPS; s++)
				states[s * 32] = a[s];
		FOR_STATE (d, i)
			S[d][i] *= decay;
		PRODUCTS_END();
		PRODUCTS_READ(x);
#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++) {
			const uint pairs[4] = {u[m].x, u[m].y, u[m].z, u[m].w};

#pragma unroll
			for (uint i = 0; i < 4; i++) {
				x[m * 8 + i * 2] = as_float(pairs[i] << 16) - x[m * 8 + i * 2];
				x[m * 8 + i * 2 + 1] = as_float(pairs[i] & 0xffff0000) - x[m * 8 + i * 2 + 1];
			}
			v[m] = operand_of(x + m * 8);
		}
		MEET();
		PRODUCTS_BEGIN();
#pragma unroll
		for (uint m = 0; m < TOKEN_STEPS; m++)
			FOR_PARTS (d)
				BY_TERMS(S[d], v[m], next + d * TILE_BYTES, m);
		if (mine)
#pragma unroll
			for (uint m = 0; m < TOKEN_STEPS; m++)
				values[m * 32] = v[m];
		own += CHUNK_QUADS;
		states += CHUNK_QUADS;
		values += CHUNK_QUADS;
		if (more)
			LOAD_U();
		/* U of the chunk after the next one; `values` begins at the lane's place */
		if (chunk + 2 < chunks && lane < TOKEN_STEPS * 4)
			PREFETCH(values + CHUNK_QUADS + lane * 7);
		PRODUCTS_END();
		FOR_PARTS (d)
			PRODUCTS_READ(S[d]);
		for (int i = 0; i < row[ROW_SNAPSHOTS] && mine; i++)
			if ((uint)row[ROW_SNAPSHOT_TOKENS(i)] == done)
				FOR_STATE (d, j)
					*STATE(row[ROW_SNAPSHOT_SLOT(i)], d, j) = S[d][j];
		{ /* the next W is at `after`, the next K' at `tile` */
			uint swap = tile;

			tile = after;
			after = next;
			next = swap;
		}
	}
	if (mine)
		FOR_STATE (d, i)
			*STATE(row[ROW_STATE_DST], d, i) = S[d][i];
}
