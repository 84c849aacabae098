/*
 * Drawing tokens from logits, one group a draw. What leaves the device is ids and what was asked for.
 *
 * The raw logits give the log-probabilities. A draw then takes, in this order: repetition, presence and
 * frequency penalties, banned ids, temperature, min_p, top_k, top_p (as vLLM does). min_p, top_k and top_p
 * each keep all tokens at or above a threshold, so they reduce to one number, found bit by bit on
 * e = exp(x - max): 31 passes that count or add, no sort. The draw inverts the cumulative sum of the kept e at
 * a number from Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") keyed by
 * (seed), at the counter (choice, position): nobody else in the step has a say. Temperature 0 is the argmax,
 * ties going to the smaller id.
 *
 * logits [rows, LD(VOCAB)] float; work [draws, LD(VOCAB)] float, scratch; counts [seats, VOCAB] uint, bit 31: in
 * the prompt, the rest: times generated. draws [n, DRAW_INTS] in the step table. result: ids [n] int, then
 * at each draw's own offset, if asked for: log-probability, then the n_top best ids, then their
 * log-probabilities (floats as bits).
 *
 * score (one group a token): nothing is drawn, the token is given, and what is asked for is how likely it was:
 * logits [n, LD(VOCAB)], scores [n, SCORE_INTS] in the step table; at the score's offset in the result: its rank
 * (1: the best; of equal ones the smaller id comes first), then what a draw reports, by the same code.
 *
 * seat_reset (one group a seat): counts of a sequence that begins, or comes back.
 * Options: VOCAB. Reference: reference_distribution, reference_logprobs.
 */
#include "common.clh"

#define DRAW_INTS   17
#define DRAW_ROW    0
#define DRAW_TEMPERATURE 1
#define DRAW_TOP_K  2
#define DRAW_TOP_P  3
#define DRAW_MIN_P  4
#define DRAW_PRESENCE 5
#define DRAW_FREQUENCY 6
#define DRAW_REPETITION 7
#define DRAW_SEED   8 /* and 9 */
#define DRAW_CHOICE 10
#define DRAW_POSITION 11
#define DRAW_SEAT   12 /* -1: no penalties */
#define DRAW_TOP    13 /* best tokens wanted */
#define DRAW_BANNED 14
#define DRAW_BANNED_COUNT 15
#define DRAW_EXTRA  16 /* where log-probabilities go in the result, 0: not wanted */

#define IN_PROMPT 0x80000000u

/* The best (value, id) that comes strictly behind (after, after_id) in the order of falling values and rising
 * ids; id -1 when there is none. Columns past VOCAB are not looked at. */
GROUP_FUNCTION int next_best(__global const float *x, float after, int after_id, float *value
#if LANES > 1
			    , __local float *scratch, __local int *ids
#define BEST_SCRATCH , scratch, ids
#else
#define BEST_SCRATCH
#endif
)
{
	floatv best = -INFINITY;
	intv best_id = -1;
	float most = -INFINITY;
	int id = INT_MAX;

	FOR_COLUMNS (c, LD(VOCAB)) {
		intv i = (int)c + LANE_INDEX;
		floatv v = V_LOAD(x + c);
		intv good = (i < VOCAB) & ((v < after) | ((v == after) & (i > after_id))) &
			    ((v > best) | ((best_id < 0) & (v == best)));

		best = good ? v : best;
		best_id = good ? i : best_id;
	}
#if VEC == 1
	most = best;
	id = best_id < 0 ? INT_MAX : best_id;
#else
	float b[VEC];
	int n[VEC];

	vstore16(best, 0, b);
	vstore16(best_id, 0, n);
	for (uint i = 0; i < VEC; i++)
		if (n[i] >= 0 && (id == INT_MAX || b[i] > most || (b[i] == most && n[i] < id))) {
			most = b[i];
			id = n[i];
		}
#endif
	GROUP_BEST(most, id, scratch, ids);
	*value = most;
	return id == INT_MAX ? -1 : id;
}

/* One 24-bit number in [0, 1) of the stream `seed` at (choice, position). */
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

/* The largest t with measure({e >= t}) >= want, over the e that are at least `floor_`. The measure is their number,
 * or (want is a share) their part of the sum. Bits of a non-negative float order like the number itself. */
GROUP_FUNCTION float threshold(__global const float *e, float floor_, float want, bool share
#if LANES > 1
			       , __local float *scratch
#define THRESHOLD_SCRATCH , scratch
#else
#define THRESHOLD_SCRATCH
#endif
)
{
	uint t = 0;

	for (int bit = 31; bit >= 0; bit--) { /* 31: all of them */
		uint candidate = bit == 31 ? 0 : t | 1u << bit;
		float limit = fmax(as_float(candidate), floor_);
		floatv sum = 0;
		float measure;

		FOR_COLUMNS (c, LD(VOCAB)) {
			floatv v = V_LOAD(e + c);

			sum += v >= limit ? (share ? v : (floatv)1.0f) : (floatv)0.0f;
		}
		measure = group_sum(v_sum(sum), scratch);
		if (bit == 31)
			want *= share ? measure : 1.0f;
		else if (measure >= want && candidate <= 0x7f800000u)
			t = candidate;
	}
	return as_float(t);
}

/* An id drawn from the e that are at least `limit`, at u of their sum. The order of the cumulative sum is lane
 * by lane, each lane's columns ascending. */
GROUP_FUNCTION int draw(__global const float *e, float limit, float u
#if LANES > 1
		       , __local float *scratch, __local int *ids
#endif
)
{
	float sum = 0, before = 0, target;
	int id = -1;

	FOR_COLUMNS (c, LD(VOCAB)) {
		floatv v = V_LOAD(e + c);

		sum += v_sum(v >= limit ? v : (floatv)0.0f);
	}
#if LANES == 1
	target = u * sum;
#else
	float total = 0;

	scratch[LANE] = sum;
	ids[LANE] = -1;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (uint i = 0; i < LANES; i++) {
		if (i == LANE)
			before = total;
		total += scratch[i];
	}
	target = u * total;
#endif
	/* This lane's part of the sum covers target, or is the last with any weight before it. */
	sum = 0;
	FOR_COLUMNS (c, LD(VOCAB)) {
		floatv v = V_LOAD(e + c);
		floatv w = v >= limit ? v : (floatv)0.0f;
		float part = v_sum(w);

		if (part > 0 && before + sum <= target) {
#if VEC == 1
			id = (int)c;
#else
			float a[VEC], inner = 0;

			vstore16(w, 0, a);
			for (uint i = 0; i < VEC; i++)
				if (a[i] > 0 && before + sum + inner <= target) {
					id = (int)(c + i);
					inner += a[i];
				}
#endif
		}
		sum += part;
	}
#if LANES > 1
	ids[LANE] = id;
	barrier(CLK_LOCAL_MEM_FENCE);
	id = -1;
	for (uint i = 0; i < LANES; i++)
		if (ids[i] >= 0)
			id = ids[i];
	barrier(CLK_LOCAL_MEM_FENCE);
#endif
	return id;
}

/* The log-probability of id among the logits x, then the n_top best ids, then their log-probabilities. */
GROUP_FUNCTION void report(__global const float *x, int id, int n_top, __global int *out
#if LANES > 1
			   , __local float *scratch, __local int *ids
#endif
)
{
	floatv sum = 0;
	float value, lse;
	int best = next_best(x, INFINITY, -1, &value BEST_SCRATCH);

	FOR_COLUMNS (c, LD(VOCAB)) {
		intv in = (int)c + LANE_INDEX < VOCAB;
		floatv v = exp(V_LOAD(x + c) - value);

		sum += in ? v : (floatv)0.0f;
	}
	lse = value + log(group_sum(v_sum(sum), scratch));
	if (LANE == 0)
		out[0] = as_int(x[id] - lse);
	for (int i = 0; i < n_top; i++) {
		if (LANE == 0) {
			out[1 + i] = best;
			out[1 + n_top + i] = as_int(value - lse);
		}
		best = next_best(x, value, best, &value BEST_SCRATCH);
	}
}

__kernel GROUP_SIZE void sample(__global const int *restrict step, int draws_at,
				__global const float *restrict logits, __global float *restrict work,
				__global uint *restrict counts, __global int *restrict result)
{
	__global const int *d = step + draws_at + get_group_id(0) * DRAW_INTS;
	__global const float *x = logits + (ulong)d[DRAW_ROW] * LD(VOCAB);
	__global float *e = work + (ulong)get_group_id(0) * LD(VOCAB);
	__global uint *seen = counts + (ulong)MAX_(d[DRAW_SEAT], 0) * VOCAB;
	float temperature = as_float(d[DRAW_TEMPERATURE]);
	bool changed = d[DRAW_SEAT] >= 0 || d[DRAW_BANNED_COUNT] > 0;
	float most;
	int id;
	GROUP_SCRATCH(scratch);
	GROUP_INT_SCRATCH(ids);

	if (changed) {
		float repetition = as_float(d[DRAW_REPETITION]);
		float presence = as_float(d[DRAW_PRESENCE]), frequency = as_float(d[DRAW_FREQUENCY]);

		FOR_ITEMS (i, LD(VOCAB)) {
			float v = i < VOCAB ? x[i] : -INFINITY;
			uint n = d[DRAW_SEAT] >= 0 && i < VOCAB ? seen[i] : 0;

			if (n)
				v = v > 0 ? v / repetition : v * repetition;
			if (n & ~IN_PROMPT)
				v -= presence + frequency * (float)(n & ~IN_PROMPT);
			e[i] = v;
		}
	}
	BARRIER();
	FOR_ITEMS (i, d[DRAW_BANNED_COUNT])
		e[step[d[DRAW_BANNED] + i]] = -INFINITY;
	BARRIER();
	id = next_best(changed ? e : x, INFINITY, -1, &most BEST_SCRATCH);
	if (id < 0)
		id = 0; /* logits that are not numbers: any id is as good */
	else if (temperature > 0) {
		float limit = as_float(d[DRAW_MIN_P]);
		__global const float *from = changed ? e : x;

		FOR_COLUMNS (c, LD(VOCAB)) {
			intv in = (int)c + LANE_INDEX < VOCAB;
			floatv v = exp((V_LOAD(from + c) - most) / temperature);

			V_STORE(in ? v : (floatv)0.0f, e + c);
		}
		limit = fmax(limit, FLT_MIN); /* what underflowed is not drawn */
		for (int cut = 0; cut < 2; cut++) {
			bool share = cut == 1;

			if (share ? as_float(d[DRAW_TOP_P]) < 1.0f : d[DRAW_TOP_K] > 0 && d[DRAW_TOP_K] < VOCAB)
				limit = fmax(limit,
					     threshold(e, limit, share ? as_float(d[DRAW_TOP_P]) : (float)d[DRAW_TOP_K],
						       share THRESHOLD_SCRATCH));
		}
		int drawn = draw(e, fmin(limit, 1.0f), /* the best one's e is 1: it is always kept */
				 philox_uniform((uint)d[DRAW_SEED], (uint)d[DRAW_SEED + 1],
						(uint)d[DRAW_CHOICE], (uint)d[DRAW_POSITION]) BEST_SCRATCH);

		id = drawn < 0 ? id : drawn; /* an infinite logit */
	}
	if (LANE == 0) {
		result[get_group_id(0)] = id;
		if (d[DRAW_SEAT] >= 0)
			seen[id]++;
	}
	if (d[DRAW_EXTRA])
		report(x, id, d[DRAW_TOP], result + d[DRAW_EXTRA] BEST_SCRATCH);
}

#define SCORE_INTS  3
#define SCORE_TOKEN 0
#define SCORE_TOP   1
#define SCORE_AT    2 /* in the result */

__kernel GROUP_SIZE void score(__global const int *restrict step, int scores_at,
			       __global const float *restrict logits, __global int *restrict result)
{
	__global const int *s = step + scores_at + get_group_id(0) * SCORE_INTS;
	__global const float *x = logits + (ulong)get_group_id(0) * LD(VOCAB);
	__global int *out = result + s[SCORE_AT];
	int id = s[SCORE_TOKEN];
	float value = x[id], rank;
	floatv ahead = 0;
	GROUP_SCRATCH(scratch);
	GROUP_INT_SCRATCH(ids);

	FOR_COLUMNS (c, LD(VOCAB)) {
		intv i = (int)c + LANE_INDEX;
		floatv v = V_LOAD(x + c);
		intv better = (i < VOCAB) & ((v > value) | ((v == value) & (i < id)));

		ahead += better ? (floatv)1.0f : (floatv)0.0f;
	}
	rank = group_sum(v_sum(ahead), scratch); /* whole numbers below 2^24: exact */
	if (LANE == 0)
		out[0] = 1 + (int)rank;
	report(x, id, s[SCORE_TOP], out + 1 BEST_SCRATCH);
}

#define RESET_INTS 5 /* seat, prompt at, prompt length, generated at, generated length */

__kernel GROUP_SIZE void seat_reset(__global const int *restrict step, int resets_at,
				    __global uint *restrict counts)
{
	__global const int *r = step + resets_at + get_group_id(0) * RESET_INTS;
	__global uint *seen = counts + (ulong)r[0] * VOCAB;

	FOR_ITEMS (i, VOCAB)
		seen[i] = 0;
	BARRIER();
	FOR_ITEMS (i, r[2])
		seen[step[r[1] + i]] = IN_PROMPT; /* lanes that meet here write the same */
	BARRIER();
	if (LANE == 0)
		for (int i = 0; i < r[4]; i++)
			seen[step[r[3] + i]]++;
}
