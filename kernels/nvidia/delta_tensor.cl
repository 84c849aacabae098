/*
 * generic/delta_chunks.cl on tensor cores (delta_prefill.cl has the formulas). The values that do not depend on the
 * state are computed for all chunks at once, and are stored as the products need them:
 *
 *     delta_chunk_tensor   for each chunk and value head: T = (I + A)^-1, P, B = -beta e^G K, Q' = e^G Q,
 *                          K' = e^(G_C - G) K, and beta V in place of V
 *     delta_scan_tensor    for each row, value head and SCAN_COLUMNS columns of the state S, chunk after chunk:
 *
 *                              V' = T (beta V + B S),  O = Q' S + P V',  S <- e^G_C S + K'^T V'
 *
 *                          O takes the place of beta V. The state of a row and the states of its snapshots go to
 *                          their slots.
 *
 * An operand of a product is the sum of two bf16 numbers, an upper and a lower half. Of the four products of two such
 * sums the least is left out: results are right to about 16 bits. States, gates, A and (I + A)^-1 are computed as
 * floats.
 *
 * delta_scan_tensor computes everything transposed, with 16 columns of the state as the rows of mma.sync m16n8k16:
 *
 *     V'^T = ((beta V)^T + S^T B^T) T^T     O^T = S^T Q'^T + V'^T P^T     S^T <- e^G_C S^T + V'^T K'
 *
 * Then a result of mma.sync is the A operand of the next one as it lies (mma.clh). Four warps have the same 16
 * columns. Two of them compute V' and S: each has half of the tokens, then half of the state's dimensions, which stay
 * in its registers. The other two compute O, of half of the tokens each. All four meet when S is in local memory as A
 * operands, and again when V' is. In between, the two warps of V' and S meet when the sums in brackets are there. B, T,
 * K', Q' and P are the other operands. They lie in work as fragments: a warp loads a fragment, [32 lanes] uint4, in one
 * access. A lane's uint4 has two pairs of upper halves, then the two pairs of lower halves.
 *
 *     step, proj, qs, ks, gates, ring, state, first_row, n_rows   as in generic/delta_chunks.cl
 *     vs     [T, HV * DV] float: v, which becomes beta v, then O; in and out
 *     work   [chunks, HV, WORK] float: fragments of B [steps of 16 dimensions][token tiles] | T [steps of 16
 *            tokens][token tiles] | K' [steps of 16 tokens][DK / 8] | Q' like B | P like T, then e^G_C; out of
 *            delta_chunk_tensor, into delta_scan_tensor
 *
 * Every sum has one order, whatever the row and the step. Global size: delta_chunk_tensor n x HV groups, where n is at
 * least the number of chunks; delta_scan_tensor rows * HV * CEIL(DV / SCAN_COLUMNS) groups. Options: delta.clh, of the
 * sizes that the check below takes; LANES 256. Reference: reference_delta_step.
 */
#include "delta_chunk.clh"
#include "mma.clh"

#define SCAN_COLUMNS 32
#define TOKEN_TILES  (C / 8)	/* tiles of 8 tokens */
#define TOKEN_STEPS  (C / 16)	/* steps of 16 terms of a sum over tokens */
#define STEPS	     (DK / 16)	/* steps of 16 terms of a sum over dimensions */
#define DIM_TILES    (DK / 8)

#define OF_B	  0
#define OF_T	  (STEPS * TOKEN_TILES)
#define OF_K	  (OF_T + TOKEN_STEPS * TOKEN_TILES)
#define OF_Q	  (OF_K + TOKEN_STEPS * DIM_TILES)
#define OF_P	  (OF_Q + STEPS * TOKEN_TILES)
#define FRAGMENTS (OF_P + TOKEN_STEPS * TOKEN_TILES)
#define WORK	  (FRAGMENTS * 128 + 32)

#if (DK != 64 && DK != 128) || DV % 16 || LANES != 256
#error "no room for such a state"
#endif

typedef struct {
	uint upper[4], lower[4];
} operand; /* A [16, 16] */

/* Returns a lane's part of a fragment from x0 and x1, neighbours in k, and x8 and x9, which are eight terms on. */
static inline uint4 fragment(float x0, float x1, float x8, float x9)
{
	uint4 v;

	v.x = pair(x0, x1);
	v.y = pair(x8, x9);
	v.z = pair_rest(x0, x1, v.x);
	v.w = pair_rest(x8, x9, v.y);
	return v;
}

/* Returns the A operand whose rows are the columns of two neighbouring fragments. */
static inline operand operand_of(uint4 above, uint4 below)
{
	return (operand){{above.x, below.x, above.y, below.y}, {above.z, below.z, above.w, below.w}};
}

/* Returns the A operand of 16 terms from two neighbouring results. */
static inline operand operand_of_results(const float *left, const float *right)
{
	return operand_of(fragment(left[0], left[1], right[0], right[1]), fragment(left[2], left[3], right[2], right[3]));
}

/* d[i] += A b[i] for four tiles, the smallest products first. The tiles take turns, since the next product of a tile
 * waits for the one before. */
GROUP_FUNCTION void multiply_4(float (*d)[4], const operand *a, const uint4 *b)
{
#pragma unroll
	for (uint i = 0; i < 4; i++)
		MMA_BF16(d[i], a->lower[0], a->lower[1], a->lower[2], a->lower[3], b[i].x, b[i].y);
#pragma unroll
	for (uint i = 0; i < 4; i++)
		MMA_BF16(d[i], a->upper[0], a->upper[1], a->upper[2], a->upper[3], b[i].z, b[i].w);
#pragma unroll
	for (uint i = 0; i < 4; i++)
		MMA_BF16(d[i], a->upper[0], a->upper[1], a->upper[2], a->upper[3], b[i].x, b[i].y);
}

#define GLOBAL_2(p) (*(__global const float2 *)(p))

/* ---- delta_chunk_tensor ---- */

/* Warps 0 to 3 compute K K^T and write T, warps 4 to 7 compute Q K^T and write P, each for 16 rows. All eight compute
 * the inverse. */
__kernel GROUP_SIZE void delta_chunk_tensor(__global const int *restrict step, int rows_at, int first_row, int n_rows,
					    __global const float *restrict qs, __global const float *restrict ks,
					    __global const float *restrict gates, __global float *vs,
					    __global float *restrict work)
{
	__local float A[C * C_LD] QUADS_ALIGNED, G[C], beta[C];
	__local uint4 tile[TOKEN_STEPS * TOKEN_TILES * 32]; /* fragments of K, for 64 dimensions */
	__global const int *rows = step + rows_at + first_row * ROW_INTS;
	const uint h = GROUP_Y, kh = h / REPEAT, warp = LANE / 32 % 4, lane = LANE % 32;
	const uint first = lane % 4 * 2, row = warp * 16 + lane / 4; /* the lane's first term, and its first row */
	const bool of_q = LANE >= 128;
	uint chunk = GROUP_X, r = row_of_chunk(rows, (uint)n_rows, &chunk), n;
	__global float *own = work + ((ulong)GROUP_X * HV + h) * WORK;
	__global uint4 *out = (__global uint4 *)own + lane;
	__global const float *k, *from[2];
	__global float *v;
	float scale[2], sum[TOKEN_TILES][4], last;
	ulong t;

	if (r == (uint)n_rows)
		return;
	rows += r * ROW_INTS;
	t = (uint)rows[ROW_TOKEN] + chunk * C;
	n = MIN_((uint)rows[ROW_COUNT] - chunk * C, (uint)C);
	k = ks + (t * HK + kh) * DK;
	v = vs + (t * HV + h) * DV;
	chunk_gates(gates + (t * HV + h) * 2, n, G, beta);
	last = G[C - 1];
	if (LANE == 0)
		own[FRAGMENTS * 128] = exp(last);
#pragma unroll
	for (uint i = 0; i < 2; i++) { /* rows from n on are the last token's: their beta is 0 */
		from[i] = (of_q ? qs + (t * HK + kh) * DK : k) + MIN_(row + i * 8, n - 1) * (HK * DK) + first;
		scale[i] = (of_q ? 1.0f : -beta[row + i * 8]) * exp(G[row + i * 8]);
	}
#pragma unroll
	for (uint i = 0; i < TOKEN_TILES; i++)
#pragma unroll
		for (uint e = 0; e < 4; e++)
			sum[i][e] = 0;
#pragma unroll
	for (uint s0 = 0; s0 < STEPS; s0 += TOKEN_STEPS) {
		uint4 x[TOKEN_STEPS][2];

#pragma unroll
		for (uint s = 0; s < TOKEN_STEPS; s++)
#pragma unroll
			for (uint i = 0; i < 2; i++) {
				float2 u = GLOBAL_2(from[i] + (s0 + s) * 16), w = GLOBAL_2(from[i] + (s0 + s) * 16 + 8);

				x[s][i] = fragment(u.x, u.y, w.x, w.y);
				out[((of_q ? OF_Q : OF_B) + (s0 + s) * TOKEN_TILES + warp * 2 + i) * 32] =
					fragment(scale[i] * u.x, scale[i] * u.y, scale[i] * w.x, scale[i] * w.y);
			}
		BARRIER();
		if (!of_q)
#pragma unroll
			for (uint s = 0; s < TOKEN_STEPS; s++)
#pragma unroll
				for (uint i = 0; i < 2; i++)
					tile[(s * TOKEN_TILES + warp * 2 + i) * 32 + lane] = x[s][i];
		BARRIER();
#pragma unroll
		for (uint s = 0; s < TOKEN_STEPS; s++) {
			LOCAL const uint4 *in = tile + s * TOKEN_TILES * 32 + lane;
			operand a = operand_of(x[s][0], x[s][1]);

#pragma unroll
			for (uint i = 0; i < TOKEN_TILES; i += 4)
				if (i < warp * 2 + 2) { /* tiles above the diagonal are not needed */
					uint4 b[4] = {in[i * 32], in[i * 32 + 32], in[i * 32 + 64], in[i * 32 + 96]};

					multiply_4(sum + i, &a, b);
				}
		}
	}
#pragma unroll
	for (uint i = 0; i < TOKEN_TILES; i++)
#pragma unroll
		for (uint e = 0; e < 4; e++) {
			uint m = row + e / 2 * 8, c = i * 8 + first + e % 2;

			sum[i][e] *= c <= m ? exp(G[m] - G[c]) : 0.0f;
			if (!of_q)
				A[m * C_LD + c] = c < m ? beta[m] * sum[i][e] : 0.0f;
		}
	for (uint j = LANE / 128; j < DIM_TILES; j += 2) { /* K' */
		__global const float *p = k + j * 8 + lane / 4;
		uint m = warp * 16 + first, s = HK * DK;

		out[(OF_K + warp * DIM_TILES + j) * 32] = fragment(
			p[MIN_(m, n - 1) * s] * exp(last - G[m]), p[MIN_(m + 1, n - 1) * s] * exp(last - G[m + 1]),
			p[MIN_(m + 8, n - 1) * s] * exp(last - G[m + 8]), p[MIN_(m + 9, n - 1) * s] * exp(last - G[m + 9]));
	}
	BARRIER();
	invert(A, (LOCAL float *)tile);
#pragma unroll
	for (uint m = 0; m < TOKEN_STEPS; m++)
#pragma unroll
		for (uint i = 0; i < 2; i++) {
			LOCAL const float *p = A + (row + i * 8) * C_LD + m * 16 + first;
			uint at = (m * TOKEN_TILES + warp * 2 + i) * 32;

			if (of_q)
				out[OF_P * 32 + at] = fragment(sum[2 * m][2 * i], sum[2 * m][2 * i + 1], sum[2 * m + 1][2 * i],
							       sum[2 * m + 1][2 * i + 1]);
			else
				out[OF_T * 32 + at] = fragment(p[0], p[1], p[8], p[9]);
		}
	FOR_ITEMS (i, n * (DV / 4)) {
		__global float4 *p = (__global float4 *)(v + i / (DV / 4) * (HV * DV)) + i % (DV / 4);

		*p *= beta[i / (DV / 4)];
	}
}

/* ---- delta_scan_tensor ---- */

#define DEPTH	     3 /* groups of four fragments that are loaded before their use */
#define STATE_GROUPS (2 * STEPS + 4) /* groups of a chunk for a warp of the state: B, T, K'; a multiple of 4 */
#define OUT_GROUPS   (STEPS + 4)     /* groups of a chunk for a warp of the output: Q', P */

/* Waits for the other `warps` - 1 warps, and makes their writes to local memory visible. */
#define MEET(id, warps) __asm__ volatile("bar.sync %0, %1;" ::"r"(id), "n"((warps) * 32) : "memory")

/* Prefetches the work-group's share of chunk c's fragments: all work-groups of a head read them, and not all of work is
 * in the L2 cache. */
#define PREFETCH(c)                                                                                \
	for (uint line_ = block * LANES + LANE; (c) < chunks && line_ < FRAGMENTS * 4; line_ += blocks * LANES) \
		__asm__ volatile("prefetch.global.L2 [%0];" ::"l"(work + ((ulong)(first + (c)) * HV + h) * WORK + line_ * 32))

/* The offset, in groups of four fragments, of the warp's g-th group. A warp has every other group of B, T, Q' and P,
 * and half `side` of each step of K'. */
#define STATE_GROUP(g)                                                                             \
	((g) < STEPS + 4 ? 2 * (g) + side                                                          \
			 : 2 * STEPS + 8 + ((g) - STEPS - 4) / (STEPS / 4) * (STEPS / 2) + side * (STEPS / 4) + \
				   ((g) - STEPS - 4) % (STEPS / 4))
#define OUT_GROUP(g) (2 * (g) + side)

/* Loads the warp's group g of four fragments. After the last group of the chunk follow those of the next chunk. */
#define LOAD_GROUP(g, groups, group)                                                               \
	do {                                                                                       \
		__global const uint4 *from_ =                                                      \
			(g) < (groups) ? from + group((g)) * 128 : next + group((g) - (groups)) * 128; \
                                                                                                   \
		_Pragma("unroll") for (uint j_ = 0; j_ < 4; j_++) b[(g) % 4][j_] = from_[j_ * 32];  \
	} while (0)
#define LOAD_STATE(g) LOAD_GROUP(g, STATE_GROUPS, STATE_GROUP)
#define LOAD_OUT(g)   LOAD_GROUP(g, OUT_GROUPS, OUT_GROUP)

static inline void put_operand(LOCAL uint4 *to, const operand *a)
{
	to[0] = (uint4)(a->upper[0], a->upper[1], a->upper[2], a->upper[3]);
	to[32] = (uint4)(a->lower[0], a->lower[1], a->lower[2], a->lower[3]);
}

static inline operand get_operand(LOCAL const uint4 *from)
{
	uint4 u = from[0], l = from[32];

	return (operand){{u.x, u.y, u.z, u.w}, {l.x, l.y, l.z, l.w}};
}

/* The token of element e of the warp's tile i, counted in the chunk, and the element's offset from the chunk's first
 * token in v. The lane's columns are lane / 4 and lane / 4 + 8. */
#define TOKEN(i, e) (side * 32 + (i) * 8 + lane % 4 * 2 + (e) % 2)
#define V_OFFSET(i, e) (TOKEN(i, e) * (HV * DV) + lane / 4 + (e) / 2 * 8)
#define FOR_TOKENS(i, e)                                                                           \
	_Pragma("unroll") for (uint i = 0; i < TOKEN_TILES / 2; i++)                               \
		_Pragma("unroll") for (uint e = 0; e < 4; e++)
/* Loops over the lane's elements of the warp's half of S^T [16, DK]; the address of such an element in a slot. */
#define FOR_STATE(j, e)                                                                            \
	_Pragma("unroll") for (uint j = 0; j < DIM_TILES / 2; j++)                                 \
		_Pragma("unroll") for (uint e = 0; e < 4; e++)
#define STATE(slot, j, e)                                                                          \
	(state + ((ulong)(slot) * HV + h) * DK * DV +                                              \
	 (side * (DK / 2) + (j) * 8 + lane % 4 * 2 + (e) % 2) * DV + column0 + lane / 4 + (e) / 2 * 8)

__kernel GROUP_SIZE void delta_scan_tensor(__global const int *restrict step, int rows_at, int first_row,
					   __global const float *restrict proj, __global float *vs,
					   __global const float *restrict work, __global float *ring,
					   __global float *state)
{
	__local uint4 S_parts[2][STEPS * 64], R_parts[2][TOKEN_STEPS * 64], V_parts[2][TOKEN_STEPS * 64];
	const uint blocks = CEIL_(DV, SCAN_COLUMNS), lane = LANE % 32, side = LANE / 32 % 2, four = LANE / 64 % 2;
	__global const int *rows = step + rows_at + first_row * ROW_INTS;
	__global const int *row = rows + GROUP_X / (HV * blocks) * ROW_INTS;
	const uint h = GROUP_X / blocks % HV, block = GROUP_X % blocks, wanted = block * SCAN_COLUMNS + four * 16;
	/* warps past the last column compute the last columns again, and keep nothing */
	const uint column0 = MIN_(wanted, (uint)DV - 16);
	const bool mine = wanted < DV, of_state = LANE < 128;
	const uint count = (uint)row[ROW_COUNT], chunks = CEIL_(count, C);
	const int src = row[ROW_STATE_SRC];
	LOCAL uint4 *S_part = S_parts[four] + lane, *R_part = R_parts[four] + lane, *V_part = V_parts[four] + lane;
	__global float *v = vs + ((ulong)(uint)row[ROW_TOKEN] * HV + h) * DV + column0;
	__global const uint4 *from, *next;
	__global const float *decays;
	uint4 b[DEPTH + 1][4];
	const uint first = first_chunk_of_row(rows, row);

	/* The inputs that the convolution needs next are written by the group of the first block alone. */
	for (int i = 0; i < row[ROW_SNAPSHOTS] && block == 0; i++)
		carry_head(proj, ring, row, (uint)row[ROW_SNAPSHOT_SLOT(i)], (uint)row[ROW_SNAPSHOT_TOKENS(i)], h);
	if (block == 0)
		carry_head(proj, ring, row, (uint)row[ROW_STATE_DST], count, h);
	decays = work + ((ulong)first * HV + h) * WORK + FRAGMENTS * 128;
	next = from = (__global const uint4 *)(work + ((ulong)first * HV + h) * WORK) + (of_state ? OF_B : OF_Q) * 32 + lane;
	PREFETCH(0);
	PREFETCH(1);
	if (of_state) {
		float S[DIM_TILES / 2][4], x[TOKEN_TILES / 2][4];

#pragma unroll
		for (uint g = 0; g < DEPTH; g++)
			LOAD_STATE(g);
		FOR_STATE (j, e)
			S[j][e] = src != ROW_STATE_ZERO ? *STATE(MAX_(src, 0), j, e) : 0.0f;
		FOR_TOKENS (i, e)
			x[i][e] = TOKEN(i, e) < count ? v[V_OFFSET(i, e)] : 0.0f;
		for (uint chunk = 0; chunk < chunks; chunk++) {
			const uint done = MIN_((chunk + 1) * C, count);
			const float decay = decays[(ulong)chunk * HV * WORK];
			operand a;

			next = from + (chunk + 1 < chunks ? HV * WORK / 4 : 0);
			PREFETCH(chunk + 2);
#pragma unroll
			for (uint s = 0; s < STEPS / 2; s++) {
				a = operand_of_results(S[2 * s], S[2 * s + 1]);
				put_operand(S_part + (side * (STEPS / 2) + s) * 64, &a);
			}
			MEET(four + 1, 4);
#pragma unroll
			for (uint s = 0; s < STEPS; s++) { /* R = beta V + B S */
				LOAD_STATE(s + DEPTH);
				a = get_operand(S_part + s * 64);
				multiply_4(x, &a, b[s % 4]);
			}
#pragma unroll
			for (uint m = 0; m < 2; m++) {
				a = operand_of_results(x[2 * m], x[2 * m + 1]);
				put_operand(R_part + (side * 2 + m) * 64, &a);
			}
			FOR_TOKENS (i, e)
				x[i][e] = 0;
			MEET(four + 3, 2);
#pragma unroll
			for (uint m = 0; m < TOKEN_STEPS; m++) { /* V' = T R */
				LOAD_STATE(STEPS + m + DEPTH);
				if (m < 2 || side) { /* above the diagonal T is zero */
					a = get_operand(R_part + m * 64);
					multiply_4(x, &a, b[(STEPS + m) % 4]);
				}
			}
#pragma unroll
			for (uint m = 0; m < 2; m++) {
				a = operand_of_results(x[2 * m], x[2 * m + 1]);
				put_operand(V_part + (side * 2 + m) * 64, &a);
			}
			MEET(four + 1, 4);
			FOR_TOKENS (i, e) /* the next chunk's beta V */
				x[i][e] = (chunk + 1) * C + TOKEN(i, e) < count
						  ? v[(ulong)(chunk + 1) * C * (HV * DV) + V_OFFSET(i, e)]
						  : 0.0f;
			FOR_STATE (j, e)
				S[j][e] *= decay;
#pragma unroll
			for (uint m = 0; m < TOKEN_STEPS; m++) {
				a = get_operand(V_part + m * 64);
#pragma unroll
				for (uint j = 0; j < STEPS / 4; j++) {
					const uint g = STEPS + 4 + m * (STEPS / 4) + j;

					LOAD_STATE(g + DEPTH);
					multiply_4(S + j * 4, &a, b[g % 4]);
				}
			}
			for (int i = 0; i < row[ROW_SNAPSHOTS] && mine; i++)
				if ((uint)row[ROW_SNAPSHOT_TOKENS(i)] == done)
					FOR_STATE (j, e)
						*STATE(row[ROW_SNAPSHOT_SLOT(i)], j, e) = S[j][e];
			from = next;
		}
		if (mine)
			FOR_STATE (j, e)
				*STATE(row[ROW_STATE_DST], j, e) = S[j][e];
	} else {
#pragma unroll
		for (uint g = 0; g < DEPTH; g++)
			LOAD_OUT(g);
		for (uint chunk = 0; chunk < chunks; chunk++) {
			float out[TOKEN_TILES / 2][4] = {{0}};
			operand a;

			next = from + (chunk + 1 < chunks ? HV * WORK / 4 : 0);
			PREFETCH(chunk + 2);
			MEET(four + 1, 4);
#pragma unroll
			for (uint s = 0; s < STEPS; s++) {
				LOAD_OUT(s + DEPTH);
				a = get_operand(S_part + s * 64);
				multiply_4(out, &a, b[s % 4]);
			}
			MEET(four + 1, 4);
#pragma unroll
			for (uint m = 0; m < TOKEN_STEPS; m++) {
				LOAD_OUT(STEPS + m + DEPTH);
				if (m < 2 || side) {
					a = get_operand(V_part + m * 64);
					multiply_4(out, &a, b[(STEPS + m) % 4]);
				}
			}
			FOR_TOKENS (i, e)
				if (mine && chunk * C + TOKEN(i, e) < count)
					v[(ulong)chunk * C * (HV * DV) + V_OFFSET(i, e)] = out[i][e];
			from = next;
		}
	}
}
