/*
 * Attention of rows that generate, on a GPU: one query for each head, and all the row's keys. With one group for a row
 * and KV head most of a GPU would be idle. So a row's keys are cut into splits of SPLIT_TOKENS at absolute positions,
 * and each split has its own group (Dao et al. 2023, "Flash-Decoding for long-context inference").
 *
 * attention_split (one group for each split and KV head): from the split's keys, for each query head of the KV head
 *
 *     most = max s, total = sum exp(s - most), partial = sum exp(s - most) v,    s = q k SCORE_DIM^-1/2
 *
 * attention_combine (one group for each row and query head): from the row's splits, in the order of their positions
 *
 *     out = sum exp(most - M) partial / sum exp(most - M) total * sigmoid(gate),    M = max most
 *
 *     Without ATTENTION_GATE the last factor is left out. In a layer with a sliding window, splits before the window
 *     are left out, and in the first one that is not, keys before it weigh nothing.
 *
 *     step        the step table (kernels/step.h): rows at rows_at, a batch of splits at splits_at; the batch's rows
 *                 are those from number first_row on; in
 *     q           [T, HEADS * HD] float, from attention_prepare; in
 *     k_pages, v_pages  pages of keys and of values, kv_t (attention.clh); in
 *     partial     [slots, HEADS, HD] float, a slot for each split of the batch; out, then in
 *     stats       [slots, HEADS, 2] float: most, total; out, then in
 *     proj        [T, ATTENTION_LD] float (attention.clh), for the gates; in
 *     out         [T, HEADS * HD] elem_t; out
 *
 * All sums are in float. A score is D_PARTS chains over the head's dimensions. An output of a split is KEY_PARTS chains
 * over the split's keys. The sums of the chains (`parts`) are then added up in order. Which term goes to which chain
 * depends on HD and LANES alone, so a query's bits depend on neither the step nor the batch.
 *
 * Global size: attention_split splits of a batch x KV_HEADS groups, attention_combine rows of a batch x HEADS. Options:
 * attention.clh; LANES at least 64. Reference: reference_attention.
 */
#include "attention.clh"
#include "kernels/groups.h"
#include "quads.clh"

#define KEY_QUADS    (SPLIT_TOKENS / 4) /* one load takes four neighbouring keys */
#define D_PARTS	     (LANES / KEY_QUADS)
#define COLUMN_QUADS (HD / 4)
#define KEY_PARTS    (LANES / COLUMN_QUADS)
#define BLOCK	     64 /* keys of a block; a page has whole blocks */
/* CHUNK: query heads whose `parts` are added up at a time. LOADS: loads of a lane that are under way at the same time;
 * COMBINE_LOADS of attention_combine. */
#ifdef STEP /* two halves share the local memory of a group (nvidia/step_attention.clh), and one group the registers */
#define CHUNK	      MIN_(SHARERS, 2)
#define LOADS	      8
#define COMBINE_LOADS 16
#else
#define CHUNK	      MIN_(SHARERS, SPLIT_CHUNK)
#define LOADS	      4
#define COMBINE_LOADS 8
#endif

/* Loads four neighbouring numbers of a page as floats; the index of the first is a multiple of four. */
static inline float4 load_4(__global const kv_t *p)
{
#if KV_INT8
	return convert_float4(*(__global const char4 *)p);
#elif BF16
	return as_float4(convert_uint4(*(__global const ushort4 *)p) << 16);
#else
	return *(__global const float4 *)p;
#endif
}

/* The index in [pages, KV_HEADS] of KV head g in the page of a position. */
#define HEAD_AT(position) ((ulong)pages[(position) / PAGE] * KV_HEADS + g)
/* x times the scale of the row at a position in pages of KV head g. */
#define SCALED_AT(x, all, position) KV_SCALED(x, (all) + HEAD_AT(position) * KV_STRIDE, (position) % PAGE)

#ifndef SPLIT_PRODUCTS /* nvidia/attention_decode.cl has its own */
/* Computes scores [SHARERS][SPLIT_TOKENS] of the split's `keys` keys, the first of which is at position `first`.
 * queries [SHARERS][HD]: the queries of KV head g. Work space: parts [LANES * 4 * CHUNK]. */
GROUP_FUNCTION void split_scores(__global const int *pages, uint g, uint first, uint keys,
				 __global const kv_t *k_pages, LOCAL const float *queries, LOCAL float *scores,
				 LOCAL float *parts)
{
	uint key = LANE % KEY_QUADS * 4, part = LANE / KEY_QUADS;
	const float scale = 1.0f / sqrt((float)SCORE_DIM);
	float4 s[SHARERS];

#pragma unroll
	for (uint i = 0; i < SHARERS; i++)
		s[i] = 0;
	if (part < D_PARTS && key < keys) {
		__global const kv_t *k = k_pages + HEAD_AT(first + key) * KV_STRIDE + (first + key) % PAGE;

		for (uint d0 = 0; d0 < HD; d0 += D_PARTS * LOADS)
#pragma unroll
			for (uint j = 0; j < LOADS; j++) {
				uint d = d0 + j * D_PARTS + part;
				float4 kd = d < HD ? load_4(k + d * PAGE) : 0;

#pragma unroll
				for (uint i = 0; i < SHARERS; i++)
					s[i] = fma((float4)queries[i * HD + MIN_(d, HD - 1u)], kd, s[i]);
			}
	}
#pragma unroll
	for (uint i0 = 0; i0 < SHARERS; i0 += CHUNK) {
#pragma unroll
		for (uint i = 0; i < CHUNK; i++)
			if (i0 + i < SHARERS && part < D_PARTS)
				SET_LOCAL_4(parts + (part * CHUNK + i) * SPLIT_TOKENS + key, s[MIN_(i0 + i, SHARERS - 1)]);
		BARRIER();
		FOR_ITEMS (j, MIN_(CHUNK, SHARERS - i0) * SPLIT_TOKENS) {
			float sum = 0;

			for (uint p = 0; p < D_PARTS; p++)
				sum += parts[p * CHUNK * SPLIT_TOKENS + j];
			scores[i0 * SPLIT_TOKENS + j] =
				SCALED_AT(sum * scale, k_pages, first + MIN_(j % SPLIT_TOKENS, keys - 1));
		}
		BARRIER();
	}
}

#endif

/* Defines a function that combines the x of each 32 neighbouring lanes (0 .. 31, 32 .. 63, ...) and returns the result
 * to all of these lanes. */
#ifdef STEP /* 32 neighbouring lanes are a warp (nvidia/step_reduce.clh) */
#define OF_32(name, combine)                                                                       \
	GROUP_FUNCTION float name(float x, LOCAL float *scratch)                                   \
	{                                                                                          \
		SHUFFLE_TREE(x, combine)                                                           \
		return x;                                                                          \
	}
#else
#define OF_32(name, combine)                                                                       \
	GROUP_FUNCTION float name(float x, LOCAL float *scratch)                                   \
	{                                                                                          \
		uint i = LANE % 32;                                                                \
		float r;                                                                           \
                                                                                                   \
		scratch[LANE] = x;                                                                 \
		LOCAL_BARRIER();                                                                   \
		for (uint s = 16; s; s >>= 1) {                                                    \
			if (i < s)                                                                 \
				scratch[LANE] = combine(scratch[LANE], scratch[LANE + s]);         \
			LOCAL_BARRIER();                                                           \
		}                                                                                  \
		r = scratch[LANE - i];                                                             \
		LOCAL_BARRIER();                                                                   \
		return r;                                                                          \
	}
#endif
OF_32(sum_of_32, ADD_)
OF_32(max_of_32, fmax)

/* Turns scores into weights, 0 where there is no key, or one before number `from` of the split, and writes most and
 * total of each query to stats [SHARERS, 2]. Weights are multiplied by the scales of their values, if values have
 * scales. 32 lanes take a query. */
GROUP_FUNCTION void split_weights(__global const int *pages, uint g, uint first, uint from, uint keys,
				  __global const kv_t *v_pages, LOCAL float *scores, __global float *stats,
				  LOCAL float *scratch)
{
	for (uint i0 = 0; i0 < SHARERS; i0 += LANES / 32) {
		uint i = i0 + LANE / 32, lane = LANE % 32;
		LOCAL float *own = scores + MIN_(i, SHARERS - 1) * SPLIT_TOKENS;
		float most = -INFINITY, total = 0;

		for (uint c = lane; c < keys; c += 32)
			if (c >= from)
				most = fmax(most, own[c]);
		most = max_of_32(most, scratch);
		for (uint c = lane; c < SPLIT_TOKENS && i < SHARERS; c += 32) {
			bool seen = c < keys && c >= from;
			float w = seen ? exp(own[c] - most) : 0;

			own[c] = seen ? SCALED_AT(w, v_pages, first + c) : 0;
			total += w;
		}
		total = sum_of_32(total, scratch);
		if (i < SHARERS && lane == 0) {
			stats[2 * i] = most;
			stats[2 * i + 1] = total;
		}
	}
	BARRIER(); /* split_values reads the weights of all queries in each lane */
}

#ifndef SPLIT_PRODUCTS
/* Writes the weighted sum of the split's values for each query to partial [SHARERS, HD]. Values of blocks before key
 * `from` are not read. Work space: parts. */
GROUP_FUNCTION void split_values(__global const int *pages, uint g, uint first, uint from, uint keys,
				 __global const kv_t *v_pages, LOCAL const float *weights, __global float *partial,
				 LOCAL float *parts)
{
	uint column = LANE % COLUMN_QUADS * 4, part = LANE / COLUMN_QUADS;
	float4 o[SHARERS];

#pragma unroll
	for (uint i = 0; i < SHARERS; i++)
		o[i] = 0;
	for (uint block = from / BLOCK * BLOCK; block < keys && part < KEY_PARTS; block += BLOCK) {
		uint at = first + block, n = MIN_(keys - block, (uint)BLOCK);
		__global const kv_t *v = v_pages + HEAD_AT(at) * KV_STRIDE + at % PAGE * HD + column;

		for (uint key0 = part; key0 < n; key0 += KEY_PARTS * LOADS)
#pragma unroll
			for (uint j = 0; j < LOADS; j++) {
				uint key = key0 + j * KEY_PARTS;
				float4 x = load_4(v + MIN_(key, n - 1) * HD);

#pragma unroll
				for (uint i = 0; i < SHARERS; i++) {
					float w = key < n ? weights[i * SPLIT_TOKENS + block + key] : 0.0f;

					o[i] = fma((float4)w, x, o[i]);
				}
			}
	}
#pragma unroll
	for (uint i0 = 0; i0 < SHARERS; i0 += CHUNK) {
#pragma unroll
		for (uint i = 0; i < CHUNK; i++)
			if (i0 + i < SHARERS && part < KEY_PARTS)
				SET_LOCAL_4(parts + (part * CHUNK + i) * HD + column, o[MIN_(i0 + i, SHARERS - 1)]);
		BARRIER();
		FOR_ITEMS (j, MIN_(CHUNK, SHARERS - i0) * HD) {
			float sum = 0;

			for (uint p = 0; p < KEY_PARTS; p++)
				sum += parts[p * CHUNK * HD + j];
			partial[i0 * HD + j] = sum;
		}
		BARRIER();
	}
}

#endif

#ifndef STEP
__kernel GROUP_SIZE void attention_split(__global const int *restrict step, int rows_at, int splits_at,
					 __global const float *restrict q, __global const kv_t *restrict k_pages,
					 __global const kv_t *restrict v_pages, __global float *restrict partial,
					 __global float *restrict stats, uint sliding)
{
	__local float queries[SHARERS * HD] QUADS_ALIGNED, weights[SHARERS * SPLIT_TOKENS] QUADS_ALIGNED;
	__local float parts[LANES * 4 * CHUNK] QUADS_ALIGNED, scratch[LANES];
	uint slot = GROUP_X, g = GROUP_Y;
	__global const int *split = step + splits_at + slot * SPLIT_INTS;
	__global const int *row = step + rows_at + split[SPLIT_ROW] * ROW_INTS;
	__global const int *pages = step + row[ROW_PAGES_AT];
	uint first = (uint)split[SPLIT_NUMBER] * SPLIT_TOKENS;
	uint keys = MIN_((uint)row[ROW_START] + 1 - first, (uint)SPLIT_TOKENS);
	uint seen = FIRST_SEEN((uint)row[ROW_START], sliding), from = seen > first ? seen - first : 0;
	ulong head = (ulong)slot * HEADS + g * SHARERS; /* the group's first query head in [slots, HEADS] */

	if (from >= SPLIT_TOKENS)
		return;
	FOR_ITEMS (i, SHARERS * HD)
		queries[i] = q[((ulong)row[ROW_TOKEN] * HEADS + g * SHARERS) * HD + i];
	BARRIER();
	split_scores(pages, g, first, keys, k_pages, queries, weights, parts);
	split_weights(pages, g, first, from, keys, v_pages, weights, stats + 2 * head, scratch);
	split_values(pages, g, first, from, keys, v_pages, weights, partial + head * HD, parts);
}
#endif

#define COLUMN_STEPS CEIL_(HD, LANES)

/* Combines the splits of a row and query head. The row is token t of the step, at position start; split0 is its first
 * split. Work space: factors, totals, scratch [LANES] each. */
GROUP_FUNCTION void attention_combine_group(uint t, uint start, uint split0, uint head, __global const float *proj,
					    __global const float *partial, __global const float *stats,
					    __global elem_t *out, uint sliding, LOCAL float *factors,
					    LOCAL float *totals, LOCAL float *scratch)
{
	uint skipped = FIRST_SEEN(start, sliding) / SPLIT_TOKENS, n = start / SPLIT_TOKENS + 1 - skipped;
	ulong at = (ulong)(split0 + skipped) * HEADS + head;
	__global const float *gate = proj + (ulong)t * ATTENTION_LD + head * QUERY_LD + HD;
	float o[COLUMN_STEPS], most = -INFINITY, total = 0;

	for (uint c = 0; c < COLUMN_STEPS; c++)
		o[c] = 0;
	FOR_ITEMS (s, n)
		most = fmax(most, stats[2 * (at + s * HEADS)]);
	most = group_max(most, scratch);
	for (uint s0 = 0; s0 < n; s0 += LANES) {
		uint m = MIN_(n - s0, (uint)LANES);
		__global const float *own = stats + 2 * (at + (s0 + MIN_(LANE, m - 1)) * HEADS);

		BARRIER(); /* every lane has used the factors of the round before */
		factors[LANE] = LANE < m ? exp(own[0] - most) : 0.0f;
		totals[LANE] = factors[LANE] * own[1];
		BARRIER();
		for (uint s1 = 0; s1 < m; s1 += COMBINE_LOADS)
#pragma unroll
			for (uint j = 0; j < COMBINE_LOADS; j++) {
				uint s = s1 + j;

				total += totals[s];
#pragma unroll
				for (uint c = 0; c < COLUMN_STEPS; c++) {
					uint column = MIN_(c * LANES + LANE, HD - 1u);
					ulong from = at + (ulong)(s0 + MIN_(s, m - 1)) * HEADS;

					o[c] = fma(factors[s], partial[from * HD + column], o[c]);
				}
			}
	}
#pragma unroll
	for (uint c = 0; c < COLUMN_STEPS; c++) {
		uint column = c * LANES + LANE;
		float x = o[c] / total;

		if (column < HD) {
			if (ATTENTION_GATE)
				x *= sigmoid_v(gate[column]);
			E_STORE(x, IN_ROW(out, t, HEADS * HD) + head * HD + column);
		}
	}
	in_quantise(IN_ROW(out, t, HEADS * HD), HEADS * HD, head * HD, (head + 1) * HD);
}

#ifndef STEP
__kernel GROUP_SIZE void attention_combine(__global const int *restrict step, int rows_at, int first_row,
					   __global const float *restrict proj, __global const float *restrict partial,
					   __global const float *restrict stats, __global elem_t *restrict out,
					   uint sliding)
{
	__local float factors[LANES], totals[LANES], scratch[LANES];
	__global const int *row = step + rows_at + (first_row + (int)GROUP_X) * ROW_INTS;

	attention_combine_group((uint)row[ROW_TOKEN], (uint)row[ROW_START], (uint)row[ROW_SPLITS_AT], GROUP_Y, proj,
				partial, stats, out, sliding, factors, totals, scratch);
}
#endif
