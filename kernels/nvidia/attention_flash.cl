/*
 * The attention of prompts on tensor cores: the kernel `attention` of generic/attention.cl, with the same arguments.
 *
 * A group takes a tile of at most TILE_TOKENS tokens for one KV head. SHARERS query heads share a KV head, so a tile
 * has at most TILE_TOKENS * SHARERS queries, and these are at most FLASH_QUERIES. A warp has 16 queries. The group
 * walks the keys in blocks of 32 at absolute positions, ascending, with online softmax (Dao 2023, arXiv:2307.08691).
 * Keys past a query's own position, and before its window, weigh exactly 0, so a query's bits do not depend on the
 * tile.
 *
 * Both products are by mma.sync m16n8k16, with sums in float; attention_wide.cl includes this file and has them by
 * wgmma, which gives the same bits (tensor.clh says why). Queries and softmax weights are rounded to bf16, as in other
 * engines (docs/measurements.md says what the sum of two bf16 numbers in place of each would give).
 *
 * While the scores of a block are computed, cp.async brings its values. While these values are summed, it brings the
 * keys of the next block.
 *
 * Local size FLASH_LANES. Global size tiles x KV_HEADS. The last tiles begin first, because a row's last tiles have the
 * most keys.
 * Options: attention.clh, TILE_TOKENS; HD a multiple of 16, at most 256; PAGE a multiple of 32. Reference:
 * reference_attention.
 */
#include "attention.clh"
#include "input.clh"
#include "copy.clh"
#include "mma.clh"
#include "warp.clh"
#include "kernels/groups.h"

#define FLASH_LANES   (FLASH_WARPS * 32)
#define KEYS	      FLASH_KEYS
#define TERM_STEPS    (HD / 16)		  /* steps of 16 dimensions */
#define CHUNKS	      (HD / 8)		  /* chunks of 8 elements in a row of the values */
#define KEY_BYTES     (HD * KEYS * 2)	  /* bytes of a block's keys, and of its values */

#if TILE_TOKENS * SHARERS > FLASH_QUERIES || HD % 16 || HD > 256
#error "no room for these queries"
#endif

/* Places in local memory. A block's keys are HD rows of 4 chunks of 16 bytes. Its values are KEYS rows of CHUNKS
 * chunks. The chunks of a row are permuted so that 8 rows of one column lie in different banks (for values, if HD is a
 * multiple of 64). */
#define KEY_CHUNK(row, c)   ((row) * 64 + (((c) ^ ((row) >> 1 & 3)) << 4))
#ifndef VALUE_CHUNK
#define VALUE_SWAPS	    (MIN_(CHUNKS & -CHUNKS, 8) - 1)
#define VALUE_CHUNK(row, c) (KEY_BYTES + ((row) * CHUNKS + ((c) ^ ((row) & VALUE_SWAPS))) * 16)
#endif

#define THREAD ((uint)get_local_id(0))

/* Makes this lane's writes to local memory visible to the products: attention_wide.cl needs that, mma.sync does not. */
#ifndef WRITTEN
#define WRITTEN()
#endif

__kernel __attribute__((reqd_work_group_size(FLASH_LANES, 1, 1))) void
attention_flash(__global const int *restrict step, int rows_at, int tiles_at, __global const float *restrict proj,
		__global const float *restrict q, __global const elem_t *restrict k_pages,
		__global const elem_t *restrict v_pages, __global elem_t *restrict out, uint sliding)
{
	__local uint4 memory_[2 * KEY_BYTES / 16] __attribute__((aligned(1024)));
	const uint memory = (uint)(ulong)memory_, lane = THREAD % 32, g = (uint)get_group_id(1);
	__global const int *tile = step + tiles_at + (get_num_groups(0) - 1 - get_group_id(0)) * QUERY_TILE_INTS;
	__global const int *row = step + rows_at + tile[QUERY_TILE_ROW] * ROW_INTS;
	const uint token = (uint)tile[QUERY_TILE_TOKEN], n = (uint)tile[QUERY_TILE_COUNT] * SHARERS;
	const uint position = (uint)row[ROW_START] + token - (uint)row[ROW_TOKEN];
	const uint last = position + (uint)tile[QUERY_TILE_COUNT] - 1;
	const uint begin = FIRST_SEEN(position, sliding) / KEYS * KEYS; /* the first block */
	/* the scores are divided by ln 2, since 2^x is one instruction */
	const float scale = 1.4426950408889634f / sqrt((float)SCORE_DIM);
	/* The lane has two queries: rows lane / 4 and lane / 4 + 8 of its warp. query: the number in the tile; head:
	 * the row of q and out, both [T * HEADS, HD]; own: the position of the token. In place of queries past the
	 * tile's last one, the last one is computed again, and not stored. */
	uint query[2], head[2], own[2];
	uint queries[TERM_STEPS][4];
	float o[CHUNKS][4], most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

/* Start this lane's cp.async of the keys or values of the block that begins at position b. Values past the tile's last
 * key become 0: their weight is 0, but 0 times the bits that were there may be NaN. */
#define PAGE_OF(b) ((ulong)step[row[ROW_PAGES_AT] + (b) / PAGE] * KV_HEADS + g)
#define LOAD_KEYS(b)                                                                               \
	for (uint i_ = THREAD; i_ < HD * 4; i_ += FLASH_LANES)                                     \
	COPY_16(memory + KEY_CHUNK(i_ / 4, i_ % 4),                                                \
		k_pages + PAGE_OF(b) * HD * PAGE + i_ / 4 * PAGE + (b) % PAGE + i_ % 4 * 8)
#define LOAD_VALUES(b)                                                                             \
	for (uint i_ = THREAD; i_ < KEYS * CHUNKS; i_ += FLASH_LANES)                              \
	COPY_SOME_16(memory + VALUE_CHUNK(i_ / CHUNKS, i_ % CHUNKS),                                    \
		v_pages + (PAGE_OF(b) * PAGE + (b) % PAGE + i_ / CHUNKS) * HD + i_ % CHUNKS * 8,    \
		(b) + i_ / CHUNKS <= last ? 16 : 0)

	LOAD_KEYS(begin);
	COPY_END();
	LOAD_VALUES(begin);
	COPY_END();
#pragma unroll
	for (uint i = 0; i < 2; i++) {
		query[i] = THREAD / 32 * 16 + i * 8 + lane / 4;
		uint r = MIN_(query[i], n - 1);

		own[i] = position + r / SHARERS;
		head[i] = (token + r / SHARERS) * HEADS + g * SHARERS + r % SHARERS;
	}
/* The lane's two elements of register e of an A operand: query e % 2, terms of step k. */
#define QUERY(k, e) (*(__global const float2 *)(q + (ulong)head[(e) % 2] * HD + (k) * 16 + (e) / 2 * 8 + lane % 4 * 2))
#pragma unroll
	for (uint k = 0; k < TERM_STEPS; k++)
#pragma unroll
		for (uint e = 0; e < 4; e++)
			queries[k][e] = pair(QUERY(k, e).x, QUERY(k, e).y);
#pragma unroll
	for (uint i = 0; i < CHUNKS; i++)
		o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
	for (uint b = begin; b <= last; b += KEYS) {
		float s[KEYS / 8][4], best[2] = {-INFINITY, -INFINITY}, base[2], shrink[2];
		uint p[KEYS / 16][4];
		uint next = MIN_(b + KEYS, last / KEYS * KEYS);

		COPY_WAIT(1);
		WRITTEN();
		barrier(CLK_LOCAL_MEM_FENCE); /* the keys are there */
#pragma unroll
		for (uint j = 0; j < KEYS / 8; j++)
			s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#ifdef WIDE_SCORES
		WIDE_SCORES();
#else
#pragma unroll
		for (uint k = 0; k < TERM_STEPS; k++)
#pragma unroll
			for (uint j = 0; j < KEYS / 16; j++) {
				uint m[4];

				LOAD_MATRICES(".trans", m, memory + KEY_CHUNK(k * 16 + lane % 16, j * 2 + lane / 16));
				MMA_ARRAY(s[2 * j], queries[k], m[0], m[1]);
				MMA_ARRAY(s[2 * j + 1], queries[k], m[2], m[3]);
			}
#endif
		barrier(CLK_LOCAL_MEM_FENCE); /* no warp needs the keys any more */
		LOAD_KEYS(next);
		COPY_END();
		/* The scores become weights: 2^(score - running maximum). s[j] has the scores of eight keys of the
		 * block, from key 8 j on. The lane has two queries and two of these keys. Element e of s[j] is of its
		 * query e / 2 and of key lane % 4 * 2 + e % 2. */
#pragma unroll
		for (uint j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (uint e = 0; e < 4; e++) {
				const uint key = b + j * 8 + lane % 4 * 2 + e % 2;
				bool seen = key <= own[e / 2];

#if WINDOW
				seen = seen && key >= FIRST_SEEN(own[e / 2], sliding);
#endif
				s[j][e] = seen ? s[j][e] * scale : -INFINITY;
				best[e / 2] = fmax(best[e / 2], s[j][e]);
			}
#pragma unroll
		for (uint i = 0; i < 2; i++) {
			best[i] = max_other(best[i], 1);
			best[i] = fmax(most[i], max_other(best[i], 2));
			/* A block before the query's window has no key for it, and the maximum is none yet. */
			base[i] = WINDOW && best[i] == -INFINITY ? 0.0f : best[i];
			shrink[i] = native_exp2(most[i] - base[i]);
			most[i] = best[i];
			total[i] *= shrink[i];
		}
#pragma unroll
		for (uint j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (uint e = 0; e < 4; e++) {
				s[j][e] = native_exp2(s[j][e] - base[e / 2]);
				total[e / 2] += s[j][e];
			}
#pragma unroll
		for (uint j = 0; j < KEYS / 16; j++)
#pragma unroll
			for (uint e = 0; e < 4; e++)
				p[j][e] = pair(s[2 * j + e / 2][e % 2 * 2], s[2 * j + e / 2][e % 2 * 2 + 1]);
#pragma unroll
		for (uint i = 0; i < CHUNKS; i++) {
			o[i][0] *= shrink[0];
			o[i][1] *= shrink[0];
			o[i][2] *= shrink[1];
			o[i][3] *= shrink[1];
		}
		COPY_WAIT(1);
		WRITTEN();
		barrier(CLK_LOCAL_MEM_FENCE); /* the values are there */
#ifdef WIDE_OUTPUTS
		WIDE_OUTPUTS();
#else
#pragma unroll
		for (uint j = 0; j < KEYS / 16; j++)
#pragma unroll
			for (uint c = 0; c < CHUNKS / 2; c++) {
				uint m[4];

				LOAD_MATRICES(".trans", m, memory + VALUE_CHUNK(j * 16 + lane % 16, c * 2 + lane / 16));
				MMA_ARRAY(o[2 * c], p[j], m[0], m[1]);
				MMA_ARRAY(o[2 * c + 1], p[j], m[2], m[3]);
			}
#endif
		barrier(CLK_LOCAL_MEM_FENCE); /* no warp needs the values any more */
		LOAD_VALUES(next);
		COPY_END();
	}
	COPY_WAIT(0);
#pragma unroll
	for (uint i = 0; i < 2; i++) {
		total[i] = add_other(total[i], 1);
		total[i] = add_other(total[i], 2);
	}
#pragma unroll
	for (uint c = 0; c < CHUNKS; c++)
#pragma unroll
		for (uint i = 0; i < 2; i++) {
			uint d = c * 8 + lane % 4 * 2;
			float x = o[c][2 * i] / total[i], y = o[c][2 * i + 1] / total[i];

			if (query[i] >= n)
				continue;
			if (ATTENTION_GATE) {
				__global const float *gate = proj + (ulong)(head[i] / HEADS) * ATTENTION_LD +
							     head[i] % HEADS * QUERY_LD + HD + d;

				x *= sigmoid_v(gate[0]);
				y *= sigmoid_v(gate[1]);
			}
			*(__global uint *)(IN_ROW(out, head[i] / HEADS, HEADS * HD) + head[i] % HEADS * HD + d) = pair(x, y);
		}
}
