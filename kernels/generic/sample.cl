/* Draws tokens from logits. Only the ids, and the reports and scores that were asked for, leave the device.
 *
 * sample: draws a token. Its report's log-probabilities are those of the raw logits. The draw applies, in this order,
 * biases, repetition, presence and frequency penalties, banned ids and the token mask, temperature, min_p, top_k, top_p
 * (as vLLM does). With
 *
 *     e = exp((logit - max) / temperature)
 *
 * min_p, top_k and top_p each keep all tokens at or above a threshold: of e, or (top_k) of the logit. The draw
 * inverts the cumulative sum of the kept e, ids ascending, at a number from Philox 4x32-10 (Salmon et al. 2011,
 * "Parallel random numbers: as easy as 1, 2, 3"). Its key is the seed, its counter (position, choice), so no other row
 * of the step has an influence. Temperature 0 is the argmax, ties going to the smaller id.
 *
 * First sample_blocks reads the row of logits, by blocks (vocabulary.clh), in many groups. Then sample draws, in one
 * group, from the numbers kept of each block. On a CPU, where a row's blocks are one group's work, sample reads them
 * itself, which saves a launch:
 *
 *     nothing cut   the blocks' sums choose a block, and its logits, read again, choose the token
 *     top_k         all kept tokens are in the blocks whose best logit is at or above the top_k-th largest of the
 *                   blocks' best logits
 *     min_p         all kept tokens are in the blocks whose best is kept
 *     top_p alone   the sum over all tokens is known. The tokens at or above a threshold t are in the blocks whose best
 *                   is at or above t. If these tokens have the share top_p of the sum, no token below t is kept. The
 *                   first t is the largest at which these blocks, with all their tokens, have the share. If the tokens
 *                   at or above t do not have the share, t falls until there are twice as many blocks, and so on. The
 *                   blocks are few for the peaked distributions of models, and all blocks at worst
 *
 * The thresholds of top_k and top_p are then found among the tokens of these blocks alone.
 *
 * score_blocks, score: draw no token; compute the log-probability and the rank of a given token.
 *
 * seat_reset: sets the counts of a sequence that begins or comes back, from its prompt and its generated tokens.
 *
 *     step      the step table (kernels/step.h): draws at draws_at, scores at scores_at. For seat_reset the table of a
 *               seat reset at resets_at; in
 *     logits    [rows, LD(VOCAB)] float; in. Draw i reads row DRAW_LOGITS, score i row i
 *     work      [draws, SAMPLE_FLOATS] or [scores, SCORE_FLOATS] float, scratch (kernels/sample.h)
 *     counts    [seats, VOCAB] uint, bit 31: in the prompt, the rest: times generated; in and out
 *     alone     1: no sample_blocks ran before; in, on a CPU alone
 *     result    int; at RESULT_IDS ids [draws], -1 where a logit is NaN or infinity or all are -infinity; reports and
 *               scores' results at their offsets (kernels/step.h); out
 *
 * Sums are in float, in an order on which the other draws and the number of groups have no influence. Global size:
 * sample_blocks and score_blocks draws (scores) x parts, where a part is a group's share of the blocks; a block's
 * numbers do not depend on the part that took the block. sample and score: a group for each draw (score). seat_reset: a
 * group for each seat that is reset. Options: VOCAB. Reference: reference_adjust, reference_distribution,
 * reference_logprobs, reference_philox. */
#include "common.clh"
#include "vocabulary.clh"

/* FOR_PART_BLOCKS loops over the share that the lane's team has of the blocks of this group, which is group PART of the
 * PARTS groups of its draw. All teams of a group take as many rounds, since there are barriers in them: a team without
 * a block takes the last one, and writes the same numbers as another team. */
#define PART       ((uint)get_group_id(1))
#define PARTS      ((uint)get_num_groups(1))
#define PART_FIRST (PART * BLOCKS / PARTS)
#define PART_END   ((PART + 1) * BLOCKS / PARTS)
#if LANES == 1
#define FOR_PART_BLOCKS(b) for (uint b = PART_FIRST; b < PART_END; b++)
#else
#define FOR_PART_BLOCKS(b)                                                                         \
	for (uint round_ = PART_FIRST, b; b = MIN_(round_ + LANE / 16, PART_END - 1), round_ < PART_END; \
	     round_ += TEAMS)
#endif

/* Returns a random number of 24 bits in [0, 1), which depends on the seed, the choice and the position alone. */
static inline float philox_uniform(uint seed_lo, uint seed_hi, uint choice, uint position)
{
	uint4 x = (uint4)(position, choice, 0, 0);
	uint k0 = seed_lo, k1 = seed_hi;

	for (uint round = 0; round < 10; round++) {
		uint hi0 = mul_hi(0xD2511F53u, x.s0), lo0 = 0xD2511F53u * x.s0;
		uint hi1 = mul_hi(0xCD9E8D57u, x.s2), lo1 = 0xCD9E8D57u * x.s2;

		x = (uint4)(hi1 ^ x.s1 ^ k0, lo1, hi0 ^ x.s3 ^ k1, lo0);
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return (float)(x.s0 >> 8) * 0x1p-24f;
}

/* Returns the float of a key. Keys are unsigned numbers in the order of their floats. */
static inline float of_key(uint key)
{
	return as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* Floats of a group's scratch memory: group_sum, sum_of_four and sum_parts take it in turns. */
#define GROUP_FLOATS MAX_(4 * LANES, MAX_(LIST, (uint)BLOCK) / 16)

/* Returns group_sum of each of the four numbers. scratch: [GROUP_FLOATS] */
GROUP_FUNCTION float4 sum_of_four(float4 x, LOCAL float *scratch)
{
#if LANES == 1
	return x;
#else
	LOCAL float4 *sums = (LOCAL float4 *)scratch;

	sums[LANE] = x;
	LOCAL_BARRIER();
	for (uint s = LANES / 2; s; s >>= 1) {
		if (LANE < s)
			sums[LANE] += sums[LANE + s];
		LOCAL_BARRIER();
	}
	x = sums[0];
	LOCAL_BARRIER();
	return x;
#endif
}

/* Returns the largest t such that the weights of the values at or above t add up to `want` or more; -INFINITY if there
 * is no finite t. Every value weighs 1 if weights is 0. n is a multiple of 16. A pass finds two bits of t's key.
 * scratch: [GROUP_FLOATS] */
GROUP_FUNCTION float threshold(__global const float *values, __global const float *weights, uint n, float want,
			       LOCAL float *scratch)
{
	uint t = 0;

	for (int shift = 30; shift >= 0; shift -= 2) {
		float limit1 = of_key(t | 1u << shift), limit2 = of_key(t | 2u << shift), limit3 = of_key(t | 3u << shift);
		floatv sum1 = 0, sum2 = 0, sum3 = 0;
		float4 sums;

		FOR_COLUMNS (c, n) {
			floatv v = V_LOAD(values + c), w = weights ? V_LOAD(weights + c) : (floatv)1.0f;

			sum1 += v >= limit1 ? w : (floatv)0.0f;
			sum2 += v >= limit2 ? w : (floatv)0.0f;
			sum3 += v >= limit3 ? w : (floatv)0.0f;
		}
		sums = sum_of_four((float4)(v_sum(sum1), v_sum(sum2), v_sum(sum3), 0), scratch);
		t |= (sums.z >= want ? 3u : sums.y >= want ? 2u : sums.x >= want ? 1u : 0u) << shift;
	}
	return t < 0x00800000u ? -INFINITY : of_key(t); /* smaller keys: -infinity and NaN */
}

/* Writes to parts[i] the sum of the weights 16 i to 16 i + 15 that are at or above limit. n is a multiple of 16. parts:
 * [GROUP_FLOATS] */
GROUP_FUNCTION void sum_parts(__global const float *weights, uint n, float limit, LOCAL float *parts)
{
	BARRIER();
	FOR_ITEMS (i, n / 16) {
		float16 w = vload16(i, weights);

		parts[i] = sum_of_16(w >= limit ? w : (float16)0.0f);
	}
	BARRIER();
}

/* Returns the sum of n weights, in the order in which choose adds them. n is a multiple of 16. parts: [GROUP_FLOATS] */
GROUP_FUNCTION float total(__global const float *weights, uint n, LOCAL float *parts)
{
	float sum = 0;

	sum_parts(weights, n, 0, parts);
	for (uint i = 0; i < n / 16; i++)
		sum += parts[i];
	BARRIER();
	return sum;
}

/* Chooses the last of n weights for which the sum of the weights before it is at most `target`. Returns its index, and
 * that sum in *before; -1: there is none. Weights of 0 or below limit are left out. n is a multiple of 16. All lanes
 * get the same. parts: [GROUP_FLOATS] */
GROUP_FUNCTION int choose(__global const float *weights, uint n, float limit, float target, float *before,
			  LOCAL float *parts)
{
	float sum = 0, a[16];
	int at = -1, id = -1;

	sum_parts(weights, n, limit, parts);
	for (uint i = 0; i < n / 16 && sum <= target; i++) {
		float part = parts[i];

		if (part > 0) {
			at = (int)(i * 16);
			*before = sum;
		}
		sum += part;
	}
	BARRIER();
	if (at < 0)
		return -1;
	sum = *before;
	vstore16(vload16(0, weights + at), 0, a);
	for (int i = 0; i < 16; i++)
		if (a[i] >= limit && a[i] > 0 && sum <= target) {
			id = at + i;
			*before = sum;
			sum += a[i];
		}
	return id;
}

/* Lists the blocks whose value is at least `least`, in ascending order. Returns their number. */
GROUP_FUNCTION uint list_blocks(__global const float *values, float least, __global int *listed, LOCAL int *ids)
{
	const uint section = CEIL_(BLOCKS, (uint)LANES), first = MIN_(LANE * section, BLOCKS);
	const uint end = MIN_(first + section, BLOCKS);
	uint n = 0, at = 0;

	for (uint b = first; b < end; b++)
		n += values[b] >= least;
#if LANES > 1
	barrier(CLK_LOCAL_MEM_FENCE);
	ids[LANE] = (int)n;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (uint i = 0; i < LANE; i++)
		at += (uint)ids[i];
	n = 0;
	for (uint i = 0; i < LANES; i++)
		n += (uint)ids[i];
	barrier(CLK_LOCAL_MEM_FENCE);
#endif
	for (uint b = first; b < end; b++)
		if (values[b] >= least)
			listed[at++] = (int)b;
	BARRIER();
	return n;
}

/* Copies the logits of n listed blocks to out, one block behind the other. */
GROUP_FUNCTION void gather(const struct view *w, __global const int *listed, uint n, __global float *out)
{
	BARRIER(); /* the memory's earlier content has been read */
	FOR_COLUMNS (i, n * BLOCK) {
		uint c = (uint)listed[i / BLOCK] * BLOCK + i % BLOCK;

		V_STORE(c < LD(VOCAB) ? view_load(w, c) : (floatv)-INFINITY, out + i);
	}
	BARRIER();
}

/* Replaces each of n gathered logits by its e (top of this file), or by 0 if the logit is below `least` or e is below
 * `floor_`. Returns the sum. */
GROUP_FUNCTION float weigh(__global float *v, uint n, float most, float inverse, float least, float floor_,
			   LOCAL float *scratch)
{
	float16 sum = 0;

	BARRIER(); /* every lane has read the logits */
	FOR_ITEMS (i, n / 16) {
		float16 x = vload16(0, v + i * 16), e = exp((x - most) * inverse);

		e = ((x >= least) & (e >= floor_)) ? e : (float16)0.0f;
		vstore16(e, 0, v + i * 16);
		sum += e;
	}
	BARRIER();
	return group_sum(sum_of_16(sum), scratch);
}

/* Writes the weight of each block to out [LIST]: the e of its best logit, times its sum unless sums is 0. */
GROUP_FUNCTION void block_weights(__global const float *best, __global const float *sums, float most, float inverse,
				  __global float *out)
{
	FOR_COLUMNS (i, LIST) {
		floatv e = exp((V_LOAD(best + i) - most) * inverse);

		V_STORE(sums ? e * V_LOAD(sums + i) : e, out + i);
	}
	BARRIER();
}

/* Marks the banned tokens in the blocks of this group: those of the list, and those that are not in the mask. mask 0:
 * there is none. */
GROUP_FUNCTION void mark_banned(__global const int *tokens, int n, __global const int *mask, __global uint *banned)
{
	const uint words = BLOCK / 32, first = PART_FIRST * BLOCK, end = PART_END * BLOCK;

	FOR_ITEMS (i, (PART_END - PART_FIRST) * words) {
		uint at = PART_FIRST * words + i;

		banned[at] = mask && at < (VOCAB + 31) / 32 ? ~(uint)mask[at] : 0;
	}
	BARRIER();
	FOR_ITEMS (i, n) {
		uint t = (uint)tokens[i];

		if (t >= first && t < end)
			atomic_or((volatile __global uint *)&banned[t / 32], 1u << t % 32);
	}
	BARRIER();
}

/* Says which tokens a draw leaves out, and has the draw's temperature. (Not the cuts of tuning tables.) */
struct cuts {
	float inverse; /* 1 / temperature */
	float min_p, top_p;
	int top_k; /* 0: all tokens */
};

/* Returns whether a draw needs the sum of e over all tokens: a draw with top_k or min_p does not. */
static inline bool needs_sum(const struct cuts *k)
{
	return !k->top_k && k->min_p <= 0;
}

/* Returns the smallest e that can be drawn. An e that underflowed is 0 and is not drawn. The best token has the e 1 and
 * can always be drawn. */
static inline float least_weight(const struct cuts *k)
{
	return fmin(fmax(k->min_p, FLT_MIN), 1.0f);
}

/* Lists the blocks of the kept tokens, and gathers the e of their tokens, with 0 for tokens that min_p and top_k drop.
 * Returns the number of blocks; 0: the draw drops no tokens. If the draw needs the sum of all e (needs_sum), it is in
 * *sum and stays there. Otherwise *sum becomes the sum over the tokens that min_p and top_k keep. */
GROUP_FUNCTION uint keep_blocks(const struct view *w, __global float *work, const struct cuts *k, float most,
				float *sum, LOCAL float *scratch, LOCAL int *ids)
{
	const bool whole = needs_sum(k), cut = !whole || k->top_p < 1;
	__global const float *best = work + SAMPLE_BEST(VOCAB), *order = best;
	__global float *mass = work + SAMPLE_MASS(VOCAB), *e = work + SAMPLE_LOGITS(VOCAB);
	__global int *listed = (__global int *)(work + SAMPLE_LISTED(VOCAB));
	__global const float *weights = k->top_k ? 0 : mass;
	const float floor_ = least_weight(k);
	float want = k->top_k ? (float)k->top_k : k->top_p * *sum;
	uint n = 0;

	for (bool more = cut; more;) {
		float least = fmin(threshold(best, weights, LIST, want, scratch), most), kept;

		if (!whole && !k->top_k) {
			/* chosen by e; exp may give e slightly out of order, so some more blocks are listed */
			order = mass;
			least = 0.999f * floor_;
		}
		n = list_blocks(order, least, listed, ids);
		gather(w, listed, n, e);
		if (WORTH(k->top_k)) {
			float kth = threshold(e, 0, k->top_k ? n * BLOCK : 0, (float)MAX_(k->top_k, 1), scratch);

			least = whole ? least : kth;
		}
		least = whole || k->top_k ? least : -INFINITY;
		kept = weigh(e, n * BLOCK, most, k->inverse, least, floor_, scratch);
		more = whole && kept < k->top_p * *sum && least > -INFINITY;
		*sum = whole ? *sum : kept;
		weights = 0; /* twice as many blocks */
		want = (float)(2 * n);
	}
	return n;
}

/* Writes to sums[b] the sum of those e [n][BLOCK] of gathered block b that are at or above limit. Past n it writes
 * zeros, up to a multiple of 16. */
GROUP_FUNCTION void sum_blocks(__global const float *e, uint n, float limit, __global float *sums)
{
	FOR_ITEMS (b, ROUND_UP_(n, 16)) {
		float16 s = 0;

		for (uint c = 0; b < n && c < BLOCK; c += 16) {
			float16 v = vload16(0, e + b * BLOCK + c);

			s += v >= limit ? v : (float16)0.0f;
		}
		sums[b] = sum_of_16(s);
	}
	BARRIER();
}

/* Returns the id that is drawn at u in [0, 1); -1: no token has a weight. most: the largest logit. sums: the blocks'
 * sums; 0: they are not needed. */
GROUP_FUNCTION int draw(const struct view *w, __global float *work, const struct cuts *k, float most,
			__global const float *sums, float u, LOCAL float *scratch, LOCAL int *ids)
{
	const bool cut = !needs_sum(k) || k->top_p < 1;
	__global float *mass = work + SAMPLE_MASS(VOCAB), *e = work + SAMPLE_LOGITS(VOCAB);
	__global int *listed = (__global int *)(work + SAMPLE_LISTED(VOCAB));
	const float floor_ = least_weight(k);
	float limit = floor_, sum, before = 0;
	int block, at, id;
	uint n;

	block_weights(work + SAMPLE_BEST(VOCAB), sums, most, k->inverse, mass);
	sum = total(mass, LIST, scratch);
	n = keep_blocks(w, work, k, most, &sum, scratch, ids);
	BARRIER();
	if (WORTH(k->top_p < 1)) {
		float t = threshold(e, e, k->top_p < 1 ? n * BLOCK : 0, k->top_p * sum, scratch);

		limit = k->top_p < 1 ? fmin(t, 1.0f) : limit;
	}
	sum_blocks(e, n, limit, mass);
	n = cut ? ROUND_UP_(n, 16) : LIST;
	u *= total(mass, n, scratch);
	block = choose(mass, n, 0, u, &before, scratch);
	if (LANE == 0 && !cut)
		listed[0] = block;
	BARRIER();
	gather(w, listed, !cut && block >= 0, e);
	weigh(e, !cut && block >= 0 ? BLOCK : 0, most, k->inverse, -INFINITY, floor_, scratch);
	at = cut ? MAX_(block, 0) : 0;
	id = choose(e + (uint)at * BLOCK, BLOCK, limit, u - before, &before, scratch);
	return block < 0 || id < 0 ? -1 : listed[at] * BLOCK + id;
}

/* A draw of the step table and its memory. */
struct drawing {
	__global int *d;       /* its row of the table */
	__global float *work;  /* its scratch */
	__global uint *banned; /* the bits of its banned tokens there */
	bool warm, extra; /* it has a temperature above 0; it has a report */
	struct cuts cuts;
	struct view raw, view; /* its logits; with biases, penalties and bans */
	/* Lists of the blocks' numbers (vocabulary.clh), of the view and of the raw logits. sum is 0 if the draw does
	 * not need it. The raw logits have lists of their own only if the report needs other numbers. */
	__global float *best, *sum, *raw_best, *raw_sum;
};

/* Returns the group's draw. The view's bits of banned tokens are those that sample_blocks has written (mark_banned). */
static inline struct drawing drawing_of(__global int *step, int draws_at, __global const float *logits,
					__global float *work, __global const uint *counts)
{
	__global int *d = step + draws_at + GROUP_X * DRAW_INTS;
	__global float *w = work + (ulong)GROUP_X * SAMPLE_FLOATS(VOCAB);
	const float temperature = as_float(d[DRAW_TEMPERATURE]);
	const bool warm = temperature > 0, extra = d[DRAW_REPORT_AT] != 0;
	const bool bans = d[DRAW_BANNED_COUNT] > 0 || d[DRAW_MASK_AT] != DRAW_MASK_NONE;
	const bool changed = d[DRAW_SEAT] >= 0 || bans || d[DRAW_BIAS_COUNT] > 0;
	struct drawing r = {
		.d = d,
		.work = w,
		.banned = (__global uint *)(w + SAMPLE_BANNED(VOCAB)),
		.warm = warm,
		.extra = extra,
		.cuts = {warm ? 1.0f / temperature : 1.0f, warm ? as_float(d[DRAW_MIN_P]) : 0,
			 warm ? as_float(d[DRAW_TOP_P]) : 1,
			 warm && d[DRAW_TOP_K] > 0 && d[DRAW_TOP_K] < VOCAB ? d[DRAW_TOP_K] : 0},
		.raw = view_of(logits + (ulong)d[DRAW_LOGITS] * LD(VOCAB), VOCAB),
		.best = w + SAMPLE_BEST(VOCAB),
	};

	r.sum = warm && needs_sum(&r.cuts) ? w + SAMPLE_SUM(VOCAB) : 0;
	r.raw_best = extra && changed ? w + SAMPLE_RAW_BEST(VOCAB) : r.best;
	r.raw_sum = extra && (changed || !r.sum || temperature != 1.0f) ? w + SAMPLE_RAW_SUM(VOCAB) : r.sum;
	r.view = r.raw;
	r.view.biases = step + d[DRAW_BIASES_AT];
	r.view.n_biases = d[DRAW_BIAS_COUNT];
	r.view.banned = bans ? r.banned : 0;
	if (d[DRAW_SEAT] >= 0) {
		r.view.seen = counts + (ulong)d[DRAW_SEAT] * VOCAB;
		r.view.repetition = as_float(d[DRAW_REPETITION]);
		r.view.presence = as_float(d[DRAW_PRESENCE]);
		r.view.frequency = as_float(d[DRAW_FREQUENCY]);
	}
	return r;
}

/* Writes the numbers of the blocks that this group has of its draw. scratch: [LANES] */
GROUP_FUNCTION void read_blocks(__global const int *step, const struct drawing *r, LOCAL float *scratch)
{
	__global const int *d = r->d;

	if (WORTH(r->view.banned != 0))
		mark_banned(step + d[DRAW_BANNED_AT], d[DRAW_BANNED_COUNT],
			    d[DRAW_MASK_AT] != DRAW_MASK_NONE ? step + d[DRAW_MASK_AT] : 0, r->banned);
	FOR_PART_BLOCKS (b) {
		float best = block_best(&r->view, b, scratch), sum;

		r->best[b] = best;
		if (WORTH(r->sum != 0)) {
			sum = block_sum(&r->view, b, best, r->cuts.inverse, scratch);
			if (r->sum)
				r->sum[b] = sum;
		}
		if (WORTH(r->raw_best != r->best)) {
			best = block_best(&r->raw, b, scratch);
			if (r->raw_best != r->best)
				r->raw_best[b] = best;
		}
		if (WORTH(r->raw_sum != r->sum)) {
			sum = block_sum(&r->raw, b, best, 1.0f, scratch);
			if (r->raw_sum != r->sum)
				r->raw_sum[b] = sum;
		}
	}
	if (PART == 0) {
		pad_list(r->best, r->sum);
		pad_list(r->raw_best, r->raw_sum);
	}
}

__kernel GROUP_SIZE void sample_blocks(__global int *step, int draws_at, __global const float *restrict logits,
				       __global float *work, __global const uint *restrict counts)
{
	const struct drawing r = drawing_of(step, draws_at, logits, work, counts);
	LOCAL float scratch[LANES];

	read_blocks(step, &r, scratch);
}

__kernel GROUP_SIZE void sample(__global int *step, int draws_at, __global const float *restrict logits,
				__global float *work, __global uint *counts, __global int *restrict result, uint alone)
{
	const struct drawing r = drawing_of(step, draws_at, logits, work, counts);
	__global int *d = r.d;
	float most, value;
	int block, id = -1;
	bool finite;
	LOCAL float scratch[GROUP_FLOATS] __attribute__((aligned(16)));
	GROUP_INT_SCRATCH(ids);

#if LANES == 1
	if (alone)
		read_blocks(step, &r, scratch);
#endif
	block = best_block(r.best, &most, scratch, ids);
	finite = fabs(most) <= FLT_MAX;
	if (WORTH(r.warm)) {
		float u = philox_uniform((uint)d[DRAW_SEED_LOW], (uint)d[DRAW_SEED_HIGH], (uint)d[DRAW_CHOICE],
					 (uint)d[DRAW_POSITION]);
		int drawn = draw(&r.view, r.work, &r.cuts, most, r.sum, u, scratch, ids);

		id = r.warm ? drawn : -1;
		finite = finite && (!r.warm || drawn >= 0);
	}
	if (WORTH(id < 0)) { /* the argmax; also if nothing could be drawn, as with an infinite logit */
		int first = next_best(&r.view, (uint)MAX_(block, 0) * BLOCK, block_end((uint)MAX_(block, 0)), INFINITY,
				      -1, &value, scratch, ids);

		id = id < 0 ? first : id;
	}
	id = MAX_(id, 0); /* if the draw failed, any id will do for the counts and the report */
	BARRIER();	  /* every lane has read the counts */
	if (LANE == 0) {
		result[RESULT_IDS + GROUP_X] = finite ? id : -1;
		if (d[DRAW_SEAT] >= 0)
			counts[(ulong)d[DRAW_SEAT] * VOCAB + (uint)id]++;
	}
	if (WORTH(r.extra))
		report(r.raw.x, id, r.extra ? d[DRAW_TOP] : 0, r.raw_best, r.extra ? r.raw_sum : r.best,
		       r.extra ? result + d[DRAW_REPORT_AT] : 0, scratch, ids);
}

/* Returns the number of logits of a block that come before (value, id) in the order of next_best. */
GROUP_FUNCTION float block_ahead(const struct view *w, uint block, float value, int id, LOCAL float *scratch)
{
	floatv ahead = 0;

	FOR_BLOCK (c, block) {
		intv t = (int)c + LANE_INDEX;
		floatv v = view_load(w, c);

		ahead += ((v > value) | ((v == value) & (t < id))) ? (floatv)1.0f : (floatv)0.0f;
	}
	return team_sum(ahead, scratch);
}

__kernel GROUP_SIZE void score_blocks(__global const int *restrict step, int scores_at,
				      __global const float *restrict logits, __global float *work)
{
	__global const int *s = step + scores_at + GROUP_X * SCORE_INTS;
	__global float *w = work + (ulong)GROUP_X * SCORE_FLOATS(VOCAB);
	__global float *best = w + SAMPLE_BEST(VOCAB), *sum = w + SAMPLE_SUM(VOCAB);
	const struct view v = view_of(logits + (ulong)GROUP_X * LD(VOCAB), VOCAB);
	int id = s[SCORE_TOKEN];
	LOCAL float scratch[LANES];

	FOR_PART_BLOCKS (b) {
		float most = block_best(&v, b, scratch);

		best[b] = most;
		sum[b] = block_sum(&v, b, most, 1.0f, scratch);
		w[SAMPLE_MASS(VOCAB) + b] = block_ahead(&v, b, v.x[id], id, scratch);
	}
	if (PART == 0)
		pad_list(best, sum);
}

__kernel GROUP_SIZE void score(__global const int *restrict step, int scores_at, __global const float *restrict logits,
			       __global float *work, __global int *restrict result)
{
	__global const int *s = step + scores_at + GROUP_X * SCORE_INTS;
	__global int *out = result + s[SCORE_RESULT_AT];
	__global const float *x = logits + (ulong)GROUP_X * LD(VOCAB);
	__global float *w = work + (ulong)GROUP_X * SCORE_FLOATS(VOCAB);
	float rank = 0;
	LOCAL float scratch[GROUP_FLOATS] __attribute__((aligned(16)));
	GROUP_INT_SCRATCH(ids);

	FOR_ITEMS (b, BLOCKS)
		rank += w[SAMPLE_MASS(VOCAB) + b];
	rank = group_sum(rank, scratch); /* whole numbers below 2^24: exact */
	if (LANE == 0)
		out[SCORE_RANK] = 1 + (int)rank;
	report(x, s[SCORE_TOKEN], s[SCORE_TOP], w + SAMPLE_BEST(VOCAB), w + SAMPLE_SUM(VOCAB), out + SCORE_REPORT,
	       scratch, ids);
}

__kernel GROUP_SIZE void seat_reset(__global const int *restrict step, int resets_at,
				    __global uint *restrict counts)
{
	__global const int *r = step + resets_at + get_group_id(0) * RESET_INTS;
	__global uint *seen = counts + (ulong)r[RESET_SEAT] * VOCAB;

	FOR_ITEMS (i, VOCAB)
		seen[i] = 0;
	BARRIER();
	FOR_ITEMS (i, r[RESET_PROMPT_COUNT])
		seen[step[r[RESET_PROMPT_AT] + i]] = IN_PROMPT; /* lanes with the same token write the same number */
	BARRIER();
	FOR_ITEMS (i, r[RESET_GENERATED_COUNT])
		atomic_inc((volatile __global uint *)&seen[step[r[RESET_GENERATED_AT] + i]]);
}
