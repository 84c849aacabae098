/*
 * The kernels of generic/attention_decode.cl, with the products of a split on tensor cores (mma.clh). A KV head's query
 * heads are the 8 columns of B. Keys, and columns of the values, are the rows of A.
 *
 *     scores of a split   A keys, 16 of a tile; 16 dimensions an instruction. The 8 warps have two blocks of 64 keys x
 *                         four quarters of the dimensions.
 *     outputs of a split  A columns, 16 of a tile; 16 keys an instruction. The warps have HD / 64 blocks of 64
 *                         columns x two blocks of 64 keys.
 *
 * A takes pairs of numbers that are neighbours in the sum, but a page has neighbours in the other direction. So a lane
 * loads 8 neighbours, 16 bytes, from each of four rows of the page, and makes pairs of two rows' registers. These are
 * the lane's operands of four tiles (add_quads). All loads of a lane are under way together.
 *
 * Queries and weights are floats: each goes in as the sum of two bf16 numbers (attention_flash.cl rounds them to one).
 * The order of additions depends on HD alone. The sums of quarters 0 and 2, and of 1 and 3, are added first; those of
 * the first block of keys before the second one's.
 *
 * If elements are floats, pages have int8, HD is no multiple of 64 or more than 256, or a KV head has more than 8 query
 * heads, the generic functions are used. LANES 256. Reference: reference_attention.
 */
#include "attention.clh"
#if BF16 && !KV_INT8 && HD % 64 == 0 && HD <= 256 && SHARERS <= 8
#define SPLIT_PRODUCTS /* the generic file leaves out its own */
#include "mma.clh"
#include "quads.clh"

#define KEY_BLOCK     64 /* keys of a warp; a page has whole blocks */
#define QUARTER_DIMS  (HD / 4)
#define COLUMN_BLOCKS (HD / 64)

/* Return the pair of the first ones, and of the second ones, of two registers with two elements each. */
static inline uint first_of(uint x, uint y)
{
	uint v;

	__asm__("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(v) : "r"(x), "r"(y));
	return v;
}

static inline uint second_of(uint x, uint y)
{
	uint v;

	__asm__("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(v) : "r"(x), "r"(y));
	return v;
}

/* Sets the lane's rows of four tiles to 0. */
GROUP_FUNCTION void clear(float acc[4][4])
{
#pragma unroll
	for (uint m = 0; m < 4; m++)
		acc[m][0] = acc[m][1] = acc[m][2] = acc[m][3] = 0;
}

/* Adds 16 terms to four tiles, 64 rows of A. Lane l has the eight rows from l / 4 * 8 on: rows 2 m and 2 m + 1 of these
 * are those of the lane in tile m. x[j] has the eight rows at term l % 4 * 4 + j, and b the four terms from l % 4 * 4
 * on in column l / 4 of B. acc[m][0] and [1] are row 2 m in columns l % 4 * 2 and the next, [2] and [3] row 2 m + 1. */
GROUP_FUNCTION void add_quads(float acc[4][4], const uint4 x[4], float4 b)
{
	const uint u0 = pair(b.x, b.y), u1 = pair(b.z, b.w);
	const uint l0 = pair_rest(b.x, b.y, u0), l1 = pair_rest(b.z, b.w, u1);

#define ADD_TILE(m, r)                                                                             \
	{                                                                                          \
		uint a0 = first_of(x[0].r, x[1].r), a1 = second_of(x[0].r, x[1].r);                \
		uint a2 = first_of(x[2].r, x[3].r), a3 = second_of(x[2].r, x[3].r);                \
                                                                                                   \
		MMA_BF16(acc[m], a0, a1, a2, a3, l0, l1);                                          \
		MMA_BF16(acc[m], a0, a1, a2, a3, u0, u1);                                          \
	}
	ADD_TILE(0, x)
	ADD_TILE(1, y)
	ADD_TILE(2, z)
	ADD_TILE(3, w)
#undef ADD_TILE
}

/* The lane's rows 2 m ... 2 m + 3, m even, in its first column (h 0) or its second one (h 1). */
#define FOUR_ROWS(acc, m, h)                                                                       \
	((float4)((acc)[m][h], (acc)[m][(h) + 2], (acc)[(m) + 1][h], (acc)[(m) + 1][(h) + 2]))
/* Loops over the lane's columns of D that are query heads, and over the two halves of its rows in each: at is the
 * offset of a half's first row in an array [SHARERS][ld], if the lane's rows begin at `row` there. */
#define FOR_FOUR_ROWS(h, m, at, ld, row)                                                           \
	_Pragma("unroll") for (uint h = 0; h < 2; h++)                                             \
		_Pragma("unroll") for (uint m = 0, at = (LANE % 4 * 2 + h) * (ld) + (row); m < 4; m += 2, at += 4) \
			if (LANE % 4 * 2 + h < SHARERS)

/* Writes the lane's rows to `to`. */
GROUP_FUNCTION void put_rows(float acc[4][4], LOCAL float *to, uint ld, uint row)
{
	FOR_FOUR_ROWS (h, m, at, ld, row)
		SET_LOCAL_4(to + at, FOUR_ROWS(acc, m, h));
}

/* Adds the numbers that another lane has written to the lane's rows. */
GROUP_FUNCTION void add_rows(float acc[4][4], LOCAL const float *from, uint ld, uint row)
{
	FOR_FOUR_ROWS (h, m, at, ld, row) {
		float4 x = LOCAL_4(from + at);

		acc[m][h] += x.x;
		acc[m][h + 2] += x.y;
		acc[m + 1][h] += x.z;
		acc[m + 1][h + 2] += x.w;
	}
}

/* The column of B whose terms the lane has; in place of columns past the last query head, the last one again. */
#define B_COLUMN MIN_(LANE % 32 / 4, SHARERS - 1u)

/* As in generic/attention_decode.cl; work space: 2 * SHARERS * SPLIT_TOKENS floats of parts. */
GROUP_FUNCTION void split_scores(__global const int *pages, uint g, uint first, uint keys,
				 __global const kv_t *k_pages, LOCAL const float *queries, LOCAL float *scores,
				 LOCAL float *parts)
{
	const uint block = LANE / 32 % 2 * KEY_BLOCK, quarter = LANE / 64, at = first + block;
	const uint row = block + LANE % 32 / 4 * 8, term = quarter * QUARTER_DIMS + LANE % 4 * 4;
	const float scale = 1.0f / sqrt((float)SCORE_DIM);
	float acc[4][4];

	clear(acc);
	if (block < keys) {
		__global const elem_t *k = k_pages + ((ulong)pages[at / PAGE] * KV_HEADS + g) * HD * PAGE +
					   term * PAGE + at % PAGE + LANE % 32 / 4 * 8;
		uint4 x[QUARTER_DIMS / 16][4];

#pragma unroll
		for (uint i = 0; i < QUARTER_DIMS / 16; i++)
#pragma unroll
			for (uint j = 0; j < 4; j++)
				x[i][j] = *(__global const uint4 *)(k + (i * 16 + j) * PAGE);
#pragma unroll
		for (uint i = 0; i < QUARTER_DIMS / 16; i++)
			add_quads(acc, x[i], LOCAL_4(queries + B_COLUMN * HD + term + i * 16));
	}
	if (quarter >= 2)
		put_rows(acc, parts + (quarter - 2) * SHARERS * SPLIT_TOKENS, SPLIT_TOKENS, row);
	BARRIER();
	if (quarter < 2)
		add_rows(acc, parts + quarter * SHARERS * SPLIT_TOKENS, SPLIT_TOKENS, row);
	if (quarter == 1)
		put_rows(acc, scores, SPLIT_TOKENS, row);
	BARRIER();
	if (quarter == 0) {
		add_rows(acc, scores, SPLIT_TOKENS, row);
#pragma unroll
		for (uint m = 0; m < 4; m++)
#pragma unroll
			for (uint e = 0; e < 4; e++)
				acc[m][e] *= scale;
		put_rows(acc, scores, SPLIT_TOKENS, row);
	}
	BARRIER();
}

/* As in generic/attention_decode.cl; work space: SHARERS * HD floats of parts. */
GROUP_FUNCTION void split_values(__global const int *pages, uint g, uint first, uint from, uint keys,
				 __global const kv_t *v_pages, LOCAL const float *weights, __global float *partial,
				 LOCAL float *parts)
{
	const uint warp = LANE / 32, side = warp / COLUMN_BLOCKS, block = side * KEY_BLOCK, at = first + block;
	const uint row = warp % COLUMN_BLOCKS * 64 + LANE % 32 / 4 * 8, term = LANE % 4 * 4;
	float acc[4][4];

	clear(acc);
	if (side < 2 && block < keys && block + KEY_BLOCK > from) {
		const uint last = MIN_(keys - block, (uint)KEY_BLOCK) - 1; /* weights of the keys past it are 0 */
		__global const elem_t *v =
			v_pages + (((ulong)pages[at / PAGE] * KV_HEADS + g) * PAGE + at % PAGE) * HD + row;
		uint4 x[KEY_BLOCK / 16][4];

#pragma unroll
		for (uint i = 0; i < KEY_BLOCK / 16; i++)
#pragma unroll
			for (uint j = 0; j < 4; j++)
				x[i][j] = *(__global const uint4 *)(v + MIN_(i * 16 + term + j, last) * HD);
#pragma unroll
		for (uint i = 0; i < KEY_BLOCK / 16; i++)
			add_quads(acc, x[i], LOCAL_4(weights + B_COLUMN * SPLIT_TOKENS + block + term + i * 16));
	}
	if (side == 1)
		put_rows(acc, parts, HD, row);
	BARRIER();
	if (side == 0) {
		add_rows(acc, parts, HD, row);
		FOR_FOUR_ROWS (h, m, to, HD, row)
			*(__global float4 *)(partial + to) = FOUR_ROWS(acc, m, h);
	}
}
#endif
#include "generic/attention_decode.cl"
#if defined(SPLIT_PRODUCTS) && (LANES != 256 || SHARERS * HD > 4 * LANES * CHUNK || \
				2 * SHARERS * SPLIT_TOKENS > 4 * LANES * CHUNK)
#error "a split has 256 lanes, and work space for its sums"
#endif
