/*
 * Full attention over a paged KV cache: the preparation of q, k and v, and the attention itself.
 *
 * attention_prepare (one group for each token and head; first the HEADS query heads, then the KV_HEADS KV heads):
 *
 *     q = rope(norm(q, wq)), k = rope(norm(k, wk)), v as it is; with QKV_BIAS their biases are added first
 *
 *     norm is RMSNorm over HD, and left out without QK_NORM; rope turns the pairs (j, j + ROT/2) of the first ROT
 *     dimensions. q goes to a buffer of floats; k and v go into their pages, rounded to kv_t. A gate stays where the
 *     projection left it.
 *
 * attention (one group for each tile and KV head; a tile is at most TILE_TOKENS consecutive tokens of a row):
 *
 *     out = softmax(q k^T * SCORE_DIM^-1/2, causal) v * sigmoid(gate)
 *
 *     Without ATTENTION_GATE the last factor is left out. Online softmax over blocks of 64 keys at absolute positions,
 *     ascending (Milakov and Gimelshein 2018, arXiv:1805.02867). The HEADS / KV_HEADS query heads of a KV head share
 *     its keys. Keys past a query's own position, and those before its window, weigh exactly 0 and leave the running
 *     maximum alone, so a query's bits do not depend on the tile. Blocks before the window of the tile's first query
 *     are not read.
 *
 *     step        the step table (kernels/step.h): rows at rows_at, token rows at token_rows_at, tiles at tiles_at; in
 *     proj        [T, ATTENTION_LD] float (attention.clh); in
 *     biases      [ATTENTION_LD] float, those of the columns of proj; in, with QKV_BIAS
 *     wq, wk      [HD] float, the norms' weights as they are multiplied; in, with QK_NORM
 *     rope        [T, ROPES, ROT] float: cos [ROT/2] | sin [ROT/2] (embed.cl); in
 *     q           [T, HEADS * HD] float; out of attention_prepare, into attention
 *     k_pages, v_pages  pages of keys and of values, kv_t (attention.clh); written, then read
 *     out         [T, HEADS * HD] elem_t; out
 *
 * All sums are in float: a score is one chain over the head's dimensions, an output one chain over the keys.
 * Global size: attention_prepare T x (HEADS + KV_HEADS) groups, attention tiles x KV_HEADS.
 * Options: attention.clh, QK_NORM (0 or 1), ROT (rotary dimensions), EPS, TILE_TOKENS, REGISTER_SUMS (gemm_core.clh).
 * Reference: reference_rms_norm, reference_rope, reference_attention.
 */
#include "attention.clh"

#if KV_INT8
/* Returns the scale of a row (int8.clh), and in *inverse the factor that makes codes of its numbers. most, check: those
 * of this lane's share of the row. */
GROUP_FUNCTION float row_scale(floatv most, floatv check, float *inverse, LOCAL float *scratch)
{
	float all = group_max(v_max(most), scratch), bad = group_sum(v_sum(check), scratch);

	*inverse = int8_inverse(all, bad);
	return int8_scale(all, bad);
}
#endif

/* Prepares one head of token t (head HEADS + g is KV head g). out [HD]: work space. */
GROUP_FUNCTION void attention_prepare_group(ulong t, uint head, __global const int *step, int rows_at,
					    int token_rows_at, __global const float *proj,
					    __global const float *biases, __global const float *wq, __global const float *wk,
					    __global const float *rope, __global float *q,
					    __global kv_t *k_pages, __global kv_t *v_pages, uint sliding,
					    LOCAL float *out, LOCAL float *scratch)
{
	bool query = head < HEADS;
	uint g = query ? 0 : head - HEADS;
	const uint column = query ? head * QUERY_LD : KEYS_AT + g * HD;
	__global const float *in = proj + t * ATTENTION_LD + column;
	__global const float *angle = ANGLES(rope, t, sliding);
#if QK_NORM
	__global const float *w = query ? wq : wk;
	floatv sum = 0;
	float scale;

	FOR_COLUMNS (c, HD) {
		floatv v = BIASED(V_LOAD(in + c), V_LOAD(biases + column + c));

		sum = fma(v, v, sum);
	}
	scale = 1.0f / sqrt(group_sum(v_sum(sum), scratch) / HD + EPS);
	FOR_COLUMNS (c, HD)
		V_STORE(BIASED(V_LOAD(in + c), V_LOAD(biases + column + c)) * scale * V_LOAD(w + c), out + c);
#else
	FOR_COLUMNS (c, HD)
		V_STORE(BIASED(V_LOAD(in + c), V_LOAD(biases + column + c)), out + c);
#endif
	BARRIER();
	FOR_ITEMS (j, ROT / 2) {
		float a = out[j], b = out[j + ROT / 2];
		float co = angle[j], si = angle[ROT / 2 + j];

		out[j] = a * co - b * si;
		out[j + ROT / 2] = b * co + a * si;
	}
	BARRIER();
/* The value's numbers from column c on; LOAD loads one, or as many as FOR_COLUMNS has. */
#define VALUE(LOAD, c) BIASED(LOAD(in + VALUES_AT - KEYS_AT + (c)), LOAD(biases + VALUES_AT + g * HD + (c)))
#if KV_INT8
	/* Groups of query heads take part, with numbers that nothing uses, because a branch may have no barrier. */
	floatv key_most = 0, key_check = 0, value_most = 0, value_check = 0;
	float key_scale, key_inverse, value_scale, value_inverse;

	FOR_COLUMNS (c, HD) {
		floatv x = V_LOAD(out + c), y = VALUE(V_LOAD, c);

		key_most = fmax(key_most, fabs(x));
		key_check += x - x;
		value_most = fmax(value_most, fabs(y));
		value_check += y - y;
	}
	key_scale = row_scale(key_most, key_check, &key_inverse, scratch);
	value_scale = row_scale(value_most, value_check, &value_inverse, scratch);
#endif
	if (query) {
		FOR_COLUMNS (c, HD)
			V_STORE(V_LOAD(out + c), q + (t * HEADS + head) * HD + c);
	} else {
		__global const int *row = step + rows_at + step[token_rows_at + t] * ROW_INTS;
		uint position = (uint)(row[ROW_START] + ((int)t - row[ROW_TOKEN]));
		ulong page = (ulong)step[row[ROW_PAGES_AT] + position / PAGE];
		uint slot = position % PAGE;
		__global kv_t *k = k_pages + (page * KV_HEADS + g) * KV_STRIDE;
		__global kv_t *v = v_pages + (page * KV_HEADS + g) * KV_STRIDE;

#if KV_INT8
		FOR_ITEMS (c, HD) {
			k[slot + c * PAGE] = (char)INT8_CODE(out[c], key_inverse, as_int);
			v[slot * HD + c] = (char)INT8_CODE(VALUE(*, c), value_inverse, as_int);
		}
		if (LANE == 0) {
			KV_SCALES(k)[slot] = key_scale;
			KV_SCALES(v)[slot] = value_scale;
		}
#else
		FOR_ITEMS (c, HD)
			E_STORE(out[c], k + slot + c * PAGE);
		FOR_COLUMNS (c, HD)
			EV_STORE(VALUE(V_LOAD, c), v + slot * HD + c);
#endif
	}
}

#define QUERIES      (TILE_TOKENS * SHARERS)    /* queries of a tile, token by token, SHARERS of each */
#define PASS_QUERIES MIN_(QUERIES, REGISTER_SUMS < 16 ? 2 : 4) /* queries that share one pass over a block's keys */
#define KEYS      64
#define KEY_STEPS CEIL_(KEYS, WIDTH)
#define HD_STEPS  CEIL_(HD, WIDTH)
#define UNROLL    (REGISTER_SUMS < 16 ? 2 : 4)         /* vectors of a query that a pass sums up at the same time */
#define KEY_UNROLL MIN_(KEY_STEPS, UNROLL)
#define HD_UNROLL  MIN_(HD_STEPS, UNROLL)

/*
 * Prefetches n elements on an x86 CPU, elsewhere does nothing. A page of a KV head is PAGE x HD neighbouring elements,
 * too few for the processor's own prefetcher. A block's values are prefetched while its keys are used, and the next
 * block's keys while its values are used.
 */
#if LANES == 1 && defined(__x86_64__)
#define FETCH(p, n)                                                                                \
	do {                                                                                       \
		for (uint f_ = 0; f_ < (n); f_ += 64 / sizeof(kv_t))                               \
			__asm__ volatile("prefetcht0 %0" ::"m"((p)[f_]));                          \
	} while (0)
#else
#define FETCH(p, n) (void)(p)
#endif

/* Computes attention of tile `index` to KV head g. p [QUERIES][KEYS]: work space, the scores of a block, then the
 * weights. */
GROUP_FUNCTION void attention_group(uint index, uint g, __global const int *step, int rows_at, int tiles_at,
				    __global const float *proj, __global const float *q,
				    __global const kv_t *k_pages, __global const kv_t *v_pages,
				    __global elem_t *out, uint sliding, LOCAL float (*p)[KEYS],
				    LOCAL float *scratch)
{
	__global const int *tile = step + tiles_at + index * QUERY_TILE_INTS;
	__global const int *row = step + rows_at + tile[QUERY_TILE_ROW] * ROW_INTS;
	uint token = (uint)tile[QUERY_TILE_TOKEN], n_queries = (uint)tile[QUERY_TILE_COUNT] * SHARERS;
	uint position = (uint)row[ROW_START] + token - (uint)row[ROW_TOKEN];
	uint last = position + (uint)tile[QUERY_TILE_COUNT] - 1;
	const float scale = 1.0f / sqrt((float)SCORE_DIM);
	float most[QUERIES], total[QUERIES];
	floatv acc[QUERIES][HD_STEPS];

	for (uint i = 0; i < QUERIES; i++) {
		most[i] = -INFINITY;
		total[i] = 0;
		for (uint s = 0; s < HD_STEPS; s++)
			acc[i][s] = 0;
	}
	for (uint block = FIRST_SEEN(position, sliding) / KEYS * KEYS; block <= last; block += KEYS) {
		ulong page = (ulong)step[row[ROW_PAGES_AT] + block / PAGE];
		__global const kv_t *head_k = k_pages + (page * KV_HEADS + g) * KV_STRIDE, *k = head_k + block % PAGE;
		__global const kv_t *head_v = v_pages + (page * KV_HEADS + g) * KV_STRIDE, *v = head_v + block % PAGE * HD;
		uint keys = MIN_(last + 1 - block, (uint)KEYS), next = MIN_(block + KEYS, last / KEYS * KEYS);
		__global const kv_t *next_k = k_pages + ((ulong)step[row[ROW_PAGES_AT] + next / PAGE] * KV_HEADS + g) * KV_STRIDE +
					      next % PAGE;

		/* Scores: for each query and key one chain over the head's dimensions. */
		for (uint i0 = 0; i0 < n_queries; i0 += PASS_QUERIES)
			for (uint j0 = 0; j0 < KEY_STEPS; j0 += KEY_UNROLL) {
				__global const float *qi[PASS_QUERIES];
				floatv s[PASS_QUERIES][KEY_UNROLL];

#pragma unroll
				for (uint i = 0; i < PASS_QUERIES; i++) {
					uint r = MIN_(i0 + i, n_queries - 1);

					qi[i] = q + ((ulong)(token + r / SHARERS) * HEADS + g * SHARERS + r % SHARERS) * HD;
#pragma unroll
					for (uint j = 0; j < KEY_UNROLL; j++)
						s[i][j] = 0;
				}
				for (uint d = 0; d < HD; d++) {
					floatv kd[KEY_UNROLL];

					if (i0 == 0 && j0 == 0)
						FETCH(v + d * KEYS, KEYS);

#pragma unroll
					for (uint j = 0; j < KEY_UNROLL; j++)
						kd[j] = KV_LOAD(k + d * PAGE + (j0 + j) * WIDTH + LANE * VEC);
#pragma unroll
					for (uint i = 0; i < PASS_QUERIES; i++)
#pragma unroll
						for (uint j = 0; j < KEY_UNROLL; j++)
							s[i][j] = fma((floatv)qi[i][d], kd[j], s[i][j]);
				}
#pragma unroll
				for (uint i = 0; i < PASS_QUERIES; i++)
					if (i0 + i < n_queries)
#pragma unroll
						for (uint j = 0; j < KEY_UNROLL; j++) {
							uint c = (j0 + j) * WIDTH + LANE * VEC;

							V_STORE(KV_SCALED(s[i][j] * scale, head_k, block % PAGE + c),
								p[i0 + i] + c);
						}
			}
		/* Weights: exp(s - running maximum). A lane reads back only its own writes. */
		for (uint i = 0; i < n_queries; i++) {
			/* the number, counted from the block's first key, of the last key that the query may see */
			int visible = (int)(position + i / SHARERS) - (int)block;
#if WINDOW
			int from = (int)FIRST_SEEN(position + i / SHARERS, sliding) - (int)block;
#endif
			floatv best = -INFINITY, sum = 0;
			float now, base, shrink;

			for (uint j = 0; j < KEY_STEPS; j++) {
				uint c = j * WIDTH + LANE * VEC;
				intv seen = (int)c + LANE_INDEX <= visible;
#if WINDOW
				seen &= (int)c + LANE_INDEX >= from;
#endif
				floatv s = seen ? V_LOAD(p[i] + c) : (floatv)-INFINITY;

				V_STORE(s, p[i] + c);
				best = fmax(best, s);
			}
			now = fmax(most[i], group_max(v_max(best), scratch));
			/* A block before the query's window has no key for it, and the maximum is none yet. */
			base = WINDOW && now == -INFINITY ? 0.0f : now;
			shrink = exp(most[i] - base);
			for (uint j = 0; j < KEY_STEPS; j++) {
				uint c = j * WIDTH + LANE * VEC;
				floatv w = exp(V_LOAD(p[i] + c) - base);

				sum += w;
				V_STORE(KV_SCALED(w, head_v, block % PAGE + c), p[i] + c);
			}
			total[i] = total[i] * shrink + group_sum(v_sum(sum), scratch);
			most[i] = now;
			for (uint s = 0; s < HD_STEPS; s++)
				acc[i][s] *= shrink;
		}
		BARRIER(); /* the weights are read by every lane */
		for (uint s0 = 0; s0 < HD_STEPS; s0 += HD_UNROLL)
			for (uint i0 = 0; i0 < n_queries; i0 += PASS_QUERIES) {
				floatv o[PASS_QUERIES][HD_UNROLL];

#pragma unroll
				for (uint i = 0; i < PASS_QUERIES; i++)
#pragma unroll
					for (uint s = 0; s < HD_UNROLL; s++)
						o[i][s] = i0 + i < n_queries && s0 + s < HD_STEPS
								  ? acc[i0 + i][s0 + s]
								  : (floatv)0;
				for (uint key = 0; key < keys; key++) {
					floatv vk[HD_UNROLL];

					if (i0 == 0 && s0 == 0) /* the next block's keys: all of them if keys is PAGE */
						FETCH(next_k + key * HD, HD);

#pragma unroll
					for (uint s = 0; s < HD_UNROLL; s++) {
						uint c = (s0 + s) * WIDTH + LANE * VEC;

						vk[s] = c < HD ? KV_LOAD(v + key * HD + c) : (floatv)0;
					}
#pragma unroll
					for (uint i = 0; i < PASS_QUERIES; i++)
#pragma unroll
						for (uint s = 0; s < HD_UNROLL; s++)
							o[i][s] = fma((floatv)p[MIN_(i0 + i, n_queries - 1)][key],
								      vk[s], o[i][s]);
				}
#pragma unroll
				for (uint i = 0; i < PASS_QUERIES; i++)
#pragma unroll
					for (uint s = 0; s < HD_UNROLL; s++)
						if (i0 + i < n_queries && s0 + s < HD_STEPS)
							acc[i0 + i][s0 + s] = o[i][s];
			}
		BARRIER(); /* every lane has read the weights before the next block's scores replace them */
	}
	for (uint i = 0; i < n_queries; i++) {
		ulong t = token + i / SHARERS;
		uint head = g * SHARERS + i % SHARERS;
		__global const float *gate = proj + t * ATTENTION_LD + head * QUERY_LD + HD;

		for (uint s = 0; s < HD_STEPS; s++) {
			uint c = s * WIDTH + LANE * VEC;

			if (c < HD) {
				floatv o = acc[i][s] / total[i];

				if (ATTENTION_GATE)
					o *= sigmoid_v(V_LOAD(gate + c));
				EV_STORE(o, IN_ROW(out, t, HEADS * HD) + head * HD + c);
			}
		}
		in_quantise(IN_ROW(out, t, HEADS * HD), HEADS * HD, head * HD, (head + 1) * HD);
	}
}

#ifndef STEP
__kernel GROUP_SIZE void attention_prepare(__global const int *restrict step, int rows_at,
					   int token_rows_at, __global const float *restrict proj,
					   __global const float *restrict biases,
					   __global const float *restrict wq,
					   __global const float *restrict wk,
					   __global const float *restrict rope,
					   __global float *restrict q, __global kv_t *restrict k_pages,
					   __global kv_t *restrict v_pages, uint sliding)
{
	LOCAL float out[HD];
	GROUP_SCRATCH(scratch);

	attention_prepare_group(GROUP_X, GROUP_Y, step, rows_at, token_rows_at, proj, biases, wq, wk, rope, q,
				k_pages, v_pages, sliding, out, scratch);
}

__kernel GROUP_SIZE void attention(__global const int *restrict step, int rows_at, int tiles_at,
				   __global const float *restrict proj,
				   __global const float *restrict q,
				   __global const kv_t *restrict k_pages,
				   __global const kv_t *restrict v_pages,
				   __global elem_t *restrict out, uint sliding)
{
	LOCAL float p[QUERIES][KEYS];
	GROUP_SCRATCH(scratch);

	attention_group(GROUP_X, GROUP_Y, step, rows_at, tiles_at, proj, q, k_pages, v_pages, out, sliding, p,
			scratch);
}
#endif
