/* sample.cl: drawing tokens, log-probabilities, and the counts that penalties need. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/reference.h"
#include "base/bits.h"
#include "kernels/step.h"
#include "tests/kernels/harness.h"

#define LOGPROB_BOUND 2e-6

enum { TOP = 20, EXTRA = REPORT_INTS(TOP), BANNED_MAX = 8, BIASES_MAX = 6 };

/* A draw; run() fills its row of the step table. */
struct draw {
	uint32_t row;
	struct reference_draw how;
	uint64_t seed;
	uint32_t choice, position;
	int32_t seat; /* -1: no penalties */
	int32_t top;  /* best tokens wanted, -1: no log-probabilities */
	int32_t banned[BANNED_MAX];
};

static struct draw plain_draw(uint32_t row, float temperature)
{
	return (struct draw){.row = row,
			     .how = {.temperature = temperature, .top_p = 1, .repetition = 1},
			     .seat = -1,
			     .top = -1};
}

/* ---- running ---- */

/* The results of some draws. */
struct drawn {
	int32_t *ids;
	int32_t *extra;	  /* [n, EXTRA]: reports */
	uint32_t *counts; /* [seats, vocab] afterwards */
};

static struct drawn run(struct kernels *k, const struct draw *draws, uint32_t n,
			const float *logits, uint32_t rows, const uint32_t *counts, uint32_t seats)
{
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab), at;
	uint32_t words = PLAN_MASK_WORDS(vocab), extra = RESULT_IDS + n;
	uint32_t ints = 1 + n * (DRAW_INTS + BANNED_MAX + BIASES_MAX * BIAS_INTS + words);
	int32_t *table = CASE_INTS(ints), *result;
	struct drawn out = {.ids = CASE_INTS(n), .extra = CASE_INTS((size_t)n * EXTRA)};
	cl_mem L = buffer_floats(logits, (uint64_t)rows * ld),
	       work = buffer_out(n * kernels_sample_floats(kernels_shape(k)) * 4);
	cl_mem C = buffer_ints((const int32_t *)counts, (uint64_t)seats * vocab), R;

	at = 1 + n * DRAW_INTS;
	for (uint32_t i = 0; i < n; i++) {
		const struct draw *d = &draws[i];
		const int32_t row[DRAW_INTS] = {
			[DRAW_LOGITS] = (int32_t)d->row,
			[DRAW_TEMPERATURE] = (int32_t)float_bits(d->how.temperature),
			[DRAW_TOP_K] = d->how.top_k,
			[DRAW_TOP_P] = (int32_t)float_bits(d->how.top_p),
			[DRAW_MIN_P] = (int32_t)float_bits(d->how.min_p),
			[DRAW_PRESENCE] = (int32_t)float_bits(d->how.presence),
			[DRAW_FREQUENCY] = (int32_t)float_bits(d->how.frequency),
			[DRAW_REPETITION] = (int32_t)float_bits(d->how.repetition),
			[DRAW_SEED_LOW] = (int32_t)(uint32_t)d->seed,
			[DRAW_SEED_HIGH] = (int32_t)(uint32_t)(d->seed >> 32),
			[DRAW_CHOICE] = (int32_t)d->choice,
			[DRAW_POSITION] = (int32_t)d->position,
			[DRAW_SEAT] = d->seat,
			[DRAW_TOP] = MAX(d->top, 0),
			[DRAW_BANNED_AT] = (int32_t)at,
			[DRAW_BANNED_COUNT] = (int32_t)d->how.n_banned,
			[DRAW_REPORT_AT] = d->top < 0 ? 0 : (int32_t)extra,
			[DRAW_BIASES_AT] = (int32_t)(at + d->how.n_banned),
			[DRAW_BIAS_COUNT] = (int32_t)d->how.n_biases,
			[DRAW_MASK_AT] = DRAW_MASK_NONE,
		};

		memcpy(table + 1 + i * DRAW_INTS, row, sizeof(row));
		memcpy(table + at, d->banned, d->how.n_banned * sizeof(*table));
		at += d->how.n_banned;
		for (uint32_t b = 0; b < d->how.n_biases; b++, at += BIAS_INTS) {
			table[at + BIAS_TOKEN] = d->how.biases[b].token;
			table[at + BIAS_VALUE] = (int32_t)float_bits(d->how.biases[b].value);
		}
		if (d->how.allowed) {
			table[1 + i * DRAW_INTS + DRAW_MASK_AT] = (int32_t)at;
			memcpy(table + at, d->how.allowed, words * sizeof(*table));
			at += words;
		}
		extra += d->top < 0 ? 0 : REPORT_INTS((uint32_t)d->top);
	}
	R = buffer_out((uint64_t)extra * 4);
	kernel_sample(k, buffer_ints(table, ints), 1, L, work, C, R, n);
	set_finish(k);
	result = read_ints(R, extra);
	memcpy(out.ids, result + RESULT_IDS, n * sizeof(*result));
	extra = RESULT_IDS + n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t size = draws[i].top < 0 ? 0 : REPORT_INTS((uint32_t)draws[i].top);

		memcpy(out.extra + (size_t)i * EXTRA, result + extra, size * sizeof(*result));
		extra += size;
	}
	out.counts = (uint32_t *)read_ints(C, (uint64_t)seats * vocab);
	return out;
}

/* ---- the reference's answer ---- */

static double uniform_of(const struct draw *d)
{
	const uint32_t counter[4] = {d->position, d->choice, 0, 0};
	const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
	uint32_t out[4];

	reference_philox(counter, key, out);
	return (double)(out[0] >> 8) * 0x1p-24;
}

/* Returns whether the distribution p gives the id at u; near the edge between two ids either will do. */
static bool id_fits(const double *p, uint32_t vocab, double u, int32_t id)
{
	double before = 0;

	if (id < 0 || (uint32_t)id >= vocab || p[id] <= 0)
		return false;
	for (uint32_t i = 0; i < (uint32_t)id; i++)
		before += p[i];
	return u >= before - 1e-5 && u <= before + p[id] + 1e-5;
}

static void check_id(const struct draw *d, const float *logits, uint32_t vocab,
		     const uint32_t *counts, int32_t id)
{
	struct reference_draw how = d->how;
	double *p = CASE_DOUBLES(vocab);

	how.counts = d->seat >= 0 ? counts + (uint32_t)d->seat * vocab : NULL;
	how.banned = d->banned;
	reference_distribution(logits + d->row * KERNEL_LD(vocab), vocab, &how, p);
	if (!id_fits(p, vocab, d->how.temperature > 0 ? uniform_of(d) : 0.5, id))
		failed("id %d does not fit: temperature %g, top_k %d, top_p %g, min_p %g, seat %d",
		       id, d->how.temperature, d->how.top_k, d->how.top_p, d->how.min_p, d->seat);
}

static void check_logprobs(const float *logits, uint32_t vocab, int32_t id, int32_t top,
			   const int32_t *extra)
{
	double *lp = CASE_DOUBLES(vocab);

	reference_logprobs(logits, vocab, lp);
	check(fabs(bits_float((uint32_t)extra[REPORT_LOGPROB]) - lp[id]) <=
	      LOGPROB_BOUND * (1 + fabs(lp[id])));
	for (int32_t i = 0; i < top; i++) {
		int32_t best = extra[REPORT_TOP_ID(i)];

		if (!check(best >= 0 && (uint32_t)best < vocab))
			return;
		check(fabs(bits_float((uint32_t)extra[REPORT_TOP_LOGPROB(i, top)]) - lp[best]) <=
		      LOGPROB_BOUND * (1 + fabs(lp[best])));
		/* No better token is left out: exactly i tokens are better than entry i (from 0). */
		for (uint32_t j = 0, ahead = 0; j <= vocab; j++) {
			if (j == vocab)
				check(ahead == (uint32_t)i);
			else
				ahead += logits[j] > logits[best] ||
					 (logits[j] == logits[best] && j < (uint32_t)best);
		}
	}
}

/* Runs the draws together and checks ids, log-probabilities and counts, then the first and the last alone. */
static void check_draws(struct kernels *k, const struct draw *draws, uint32_t n,
			const float *logits, uint32_t rows, const uint32_t *counts, uint32_t seats)
{
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab);
	uint32_t *want = case_alloc((size_t)seats * vocab, sizeof(*want));
	struct drawn all = run(k, draws, n, logits, rows, counts, seats), one;

	memcpy(want, counts, (size_t)seats * vocab * sizeof(*want));
	for (uint32_t i = 0; i < n; i++) {
		const struct draw *d = &draws[i];

		check_id(d, logits, vocab, counts, all.ids[i]);
		if (d->top >= 0)
			check_logprobs(logits + d->row * ld, vocab, all.ids[i], d->top,
				       all.extra + (size_t)i * EXTRA);
		if (d->seat >= 0)
			want[(uint32_t)d->seat * vocab + (uint32_t)all.ids[i]]++;
	}
	check(!memcmp(want, all.counts, (size_t)seats * vocab * sizeof(*want)));
	for (uint32_t i = 0; i < n; i += n - 1 ? n - 1 : 1) { /* the first and the last */
		one = run(k, draws + i, 1, logits, rows, counts, seats);
		check(one.ids[0] == all.ids[i]);
		check(!memcmp(one.extra, all.extra + (size_t)i * EXTRA,
			      EXTRA * sizeof(*one.extra)));
	}
}

/* ---- cases ---- */

static float *random_logits(uint32_t rows, uint32_t vocab)
{
	uint32_t ld = KERNEL_LD(vocab);
	float *x = case_matrix(rows, vocab, ld, -6, 6);

	/* The padding must have no influence: it is the largest. */
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t c = vocab; c < ld; c++)
			x[r * ld + c] = 100;
	return x;
}

static void greedy(struct kernels *k)
{
	enum { ROWS = 6 };
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab);
	float *x = random_logits(ROWS, vocab);
	uint32_t *counts = case_alloc(vocab, sizeof(*counts));
	struct draw draws[ROWS];
	struct drawn out;

	for (uint32_t i = 0; i < vocab; i++) {
		x[0 * ld + i] = 1; /* all equal */
		x[1 * ld + i] = -3e38f;
		x[2 * ld + i] = (float)(int)random_below(2); /* many equal */
	}
	x[3 * ld + vocab - 1] = 50; /* the last */
	x[4 * ld + vocab / 2] = x[4 * ld + vocab / 3] = 60;
	for (uint32_t r = 0; r < ROWS; r++) {
		draws[r] = plain_draw(r, 0);
		draws[r].top = r == 1 ? -1 : (int32_t)(r * 4);
	}
	check_draws(k, draws, ROWS, x, ROWS, counts, 1);
	out = run(k, draws, ROWS, x, ROWS, counts, 1);
	check(out.ids[0] == 0);
	check(out.ids[3] == (int32_t)vocab - 1 && out.ids[4] == (int32_t)(vocab / 3));
	case_end();
}

/* Rows with logits that are not finite. A draw fails, at every temperature, if a logit is NaN or +infinity, or if all
 * are -infinity. A single token with -infinity, as a penalty may make it, is no failure. */
static void not_finite(struct kernels *k)
{
	enum { ROWS = 6 };
	static const float values[ROWS] = {NAN, NAN, INFINITY, -INFINITY, -INFINITY, -NAN};
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab);
	float *x = random_logits(ROWS, vocab);
	uint32_t *counts = case_alloc(vocab, sizeof(*counts));
	struct draw draws[4 * ROWS];
	struct drawn out;

	for (uint32_t r = 0; r < ROWS; r++) {
		bool all = r == 1 || r == 4; /* the other rows have one such logit */

		for (uint32_t i = 0; i < vocab; i++)
			if (all || i == vocab / (r + 1) - 1)
				x[r * ld + i] = values[r];
	}
	for (uint32_t i = 0; i < 4 * ROWS; i++) {
		draws[i] = plain_draw(i % ROWS, i / ROWS % 2 ? 0.9f : 0);
		draws[i].top = i / ROWS / 2 ? 5 : -1;
		draws[i].how.top_k = i / ROWS == 3 ? 7 : 0;
	}
	out = run(k, draws, 4 * ROWS, x, ROWS, counts, 1);
	for (uint32_t i = 0; i < 4 * ROWS; i++)
		check(i % ROWS == 3 ? out.ids[i] >= 0 && out.ids[i] < (int32_t)vocab
				    : out.ids[i] == -1);
	case_end();
}

/* Temperatures and cuts in all combinations, several draws a row. */
static void cuts(struct kernels *k)
{
	static const float temperatures[] = {0.1f, 1, 2.5f}, top_ps[] = {1, 0.9f, 0.3f, 0};
	static const float min_ps[] = {0, 0.05f, 1};
	static const int32_t top_ks[] = {0, 1, 5, 40};
	enum { ROWS = 3, MOST = 3 * 4 * 3 * 4 };
	uint32_t vocab = kernels_shape(k)->vocab, n = 0, few = harness_small() ? 7 : 1;
	float *x = random_logits(ROWS, vocab);
	uint32_t *counts = case_alloc(vocab, sizeof(*counts));
	struct draw *draws = case_alloc(MOST, sizeof(*draws));

	for (uint32_t i = 0; i < MOST; i += few) {
		struct draw *d = &draws[n];

		*d = plain_draw(n % ROWS, temperatures[i % 3]);
		d->how.top_p = top_ps[i / 3 % 4];
		d->how.min_p = min_ps[i / 12 % 3];
		d->how.top_k = top_ks[i / 36];
		d->seed = (uint64_t)random_below(UINT32_MAX) << 32 | random_below(UINT32_MAX);
		d->choice = random_below(8);
		d->position = random_below(100000);
		d->top = n % 5 ? -1 : (int32_t)(n % TOP);
		n++;
	}
	check_draws(k, draws, n, x, ROWS, counts, 1);
	case_end();
}

static void penalties(struct kernels *k)
{
	enum { SEATS = 4, DRAWS = 8 };
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab);
	float *x = random_logits(DRAWS, vocab);
	uint32_t *counts = case_alloc((size_t)SEATS * vocab, sizeof(*counts));
	struct draw draws[DRAWS];

	for (uint32_t i = 0; i < SEATS * vocab; i++)
		counts[i] = (random_below(3) ? 0 : 0x80000000u) +
			    (random_below(3) ? 0 : random_below(5));
	for (uint32_t i = 0; i < DRAWS; i++) {
		struct draw *d = &draws[i];

		*d = plain_draw(i, i % 2 ? 0.8f : 0);
		d->how.presence = i & 1 ? 1.5f : 0;
		d->how.frequency = i & 2 ? 0.7f : 0;
		d->how.repetition = i & 4 ? 1.3f : 1;
		d->seat = i < SEATS ? (int32_t)i : -1; /* a seat has one draw a step */
		d->seed = i;
		d->position = i * 7;
		d->top = (int32_t)i;
		/* The banned tokens are the best of the row. */
		for (uint32_t b = 0; b < i % 4; b++) {
			d->banned[b] = (int32_t)random_below(vocab);
			x[i * ld + (uint32_t)d->banned[b]] = 9;
			d->how.n_banned++;
		}
	}
	check_draws(k, draws, DRAWS, x, DRAWS, counts, SEATS);
	case_end();
}

/* Token masks and biases, with and without penalties, bans and cuts. */
static void masks_and_biases(struct kernels *k)
{
	enum { ROWS = 3, DRAWS = 36 };
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab);
	uint32_t words = PLAN_MASK_WORDS(vocab), n = 0;
	float *x = random_logits(ROWS, vocab);
	uint32_t *counts = case_alloc((size_t)DRAWS * vocab, sizeof(*counts));
	uint32_t *masks = case_alloc((size_t)DRAWS * words, sizeof(*masks));
	struct plan_bias *biases = case_alloc((size_t)DRAWS * BIASES_MAX, sizeof(*biases));
	struct draw draws[DRAWS];

	for (uint32_t i = 0; i < DRAWS * vocab; i++)
		counts[i] = random_below(9) ? 0 : random_below(4);
	for (uint32_t i = 0; i < DRAWS; i++) {
		struct draw *d = &draws[n];
		uint32_t *mask = masks + (size_t)i * words, last = vocab - 1;
		struct plan_bias *bias = biases + (size_t)i * BIASES_MAX;

		*d = plain_draw(i % ROWS, i % 2 ? 0.9f : 0);
		d->how.top_k = i % 5 ? 0 : 7;
		d->how.top_p = i % 7 ? 1 : 0.8f;
		d->how.repetition = 1.3f;
		d->how.frequency = 0.3f;
		d->seat = i % 3 == 2 ? (int32_t)i : -1;
		d->seed = i;
		d->position = i * 3;
		d->top = i % 4 ? -1 : (int32_t)(i % TOP);
		/* No mask; one token; the last tokens; a few; nearly all. */
		if (i % 6)
			d->how.allowed = mask;
		for (uint32_t t = 0; t < vocab; t++)
			if (i % 6 == 1	 ? t == vocab / 3
			    : i % 6 == 2 ? t + 5 > vocab
			    : i % 6 == 3 ? t == last || !random_below(20)
					 : random_below(20) > 0)
				mask[t / 32] |= 1u << t % 32;
		mask[last / 32] |= i % 6 == 4 ? ~0u << last % 32 : 0; /* bits behind the end */
		/* The first and the last token, the best one of the row, and neighbours. */
		d->how.biases = bias;
		for (uint32_t t = 0; i % 4 && t < vocab && d->how.n_biases < BIASES_MAX - 1; t++)
			if (!t || t == 17 || t == 18 || t == vocab / 2)
				bias[d->how.n_biases++] =
					(struct plan_bias){.token = (int32_t)t,
							   .value = t == vocab / 2 ? -100
								    : i % 4 == 1   ? 8
										   : 100};
		if (i % 4)
			bias[d->how.n_biases++] =
				(struct plan_bias){.token = (int32_t)last, .value = 7.5f};
		x[d->row * ld + vocab / 2] = 20;
		/* A banned token stays banned, whatever its bias and mask say. */
		d->how.n_banned = i % 6 == 1 ? 0 : i % 3;
		d->banned[0] = 0;
		d->banned[1] = 17;
		n++;
		if (harness_small())
			i += 6;
	}
	check_draws(k, draws, n, x, ROWS, counts, DRAWS);
	case_end();
}

/* Draws at consecutive positions of one stream follow the distribution. */
static void frequencies(const struct way *w, struct kernels *k, float top_p)
{
	/* PoCL compiles a kernel anew for launches of 65,536 work-items or more. */
	enum { DRAWS = 2000, AT_ONCE = 250 };
	/* Where a draw takes milliseconds there are fewer. `cuts` holds each draw to its own random number there too. */
	const uint32_t n_draws = harness_emulates(w) ? DRAWS / 4 : DRAWS;
	uint32_t vocab = kernels_shape(k)->vocab;
	float *x = random_logits(1, vocab);
	uint32_t *counts = case_alloc(vocab, sizeof(*counts)), seen[64] = {0}, degrees = 0;
	struct draw *draws = case_alloc(DRAWS, sizeof(*draws));
	double *p = CASE_DOUBLES(vocab), chi = 0, rest = 1;
	uint32_t others = n_draws;

	for (uint32_t i = 0; i < n_draws; i++) {
		draws[i] = plain_draw(0, 3);
		draws[i].how.top_p = top_p;
		draws[i].seed = 12345;
		draws[i].position = i;
	}
	reference_distribution(x, vocab, &draws[0].how, p);
	for (uint32_t at = 0; at < n_draws; at += AT_ONCE) {
		struct drawn out = run(k, draws + at, AT_ONCE, x, 1, counts, 1);

		for (uint32_t i = 0; i < AT_ONCE; i++)
			if (check(out.ids[i] >= 0 && out.ids[i] < (int32_t)ARRAY_SIZE(seen)))
				seen[out.ids[i]]++;
	}
	for (uint32_t i = 0; i < vocab; i++) {
		double expected = p[i] * n_draws;

		check(p[i] > 0 || !seen[i]);
		if (expected < 5)
			continue;
		chi += (seen[i] - expected) * (seen[i] - expected) / expected;
		degrees++;
		others -= seen[i];
		rest -= p[i];
	}
	if (rest * n_draws >= 5)
		chi += (others - rest * n_draws) * (others - rest * n_draws) / (rest * n_draws);
	/* The mean of chi is the number of degrees, its variance twice that. */
	check(degrees > 5 && chi < degrees + 4 * sqrt(2 * degrees));
	case_end();
}

/* Rows of many blocks: flat; with few likely tokens, as models have them; of few values, so that most tie. */
static void blocks(const struct way *w, struct kernels *k)
{
	static const struct reference_draw hows[] = {
		{.temperature = 0, .top_p = 1},
		{.temperature = 1, .top_p = 1},
		{.temperature = 0.7f, .top_p = 1},
		{.temperature = 1, .top_p = 0.9f},
		{.temperature = 1, .top_p = 0.99f},
		{.temperature = 0.7f, .top_p = 0.3f},
		{.temperature = 1, .top_p = 0},
		{.temperature = 1, .top_p = 0.95f, .top_k = 40},
		{.temperature = 1.5f, .top_p = 1, .top_k = 5},
		{.temperature = 1, .top_p = 0.9f, .top_k = 2000},
		{.temperature = 1, .top_p = 1, .min_p = 0.05f},
		{.temperature = 1, .top_p = 0.9f, .min_p = 0.001f},
		{.temperature = 1, .top_p = 0.9f, .top_k = 30, .min_p = 0.3f},
	};
	enum { ROWS = 3, HOWS = ARRAY_SIZE(hows), DRAWS = 2 * ROWS * HOWS };
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab), n = 0;
	float *x = random_logits(ROWS, vocab);
	uint32_t *counts = case_alloc((size_t)DRAWS * vocab, sizeof(*counts));
	struct draw draws[DRAWS];
	struct drawn out;

	for (uint32_t i = 0; i < 100; i++)
		x[ld + random_below(vocab)] = 14 - 0.08f * (float)i;
	x[ld + vocab - 1] = 14;
	for (uint32_t i = 0; i < vocab; i++)
		x[2 * ld + i] = (float)(int)random_below(4);
	for (uint32_t i = 0; i < DRAWS; i++) {
		struct draw *d = &draws[n];

		*d = plain_draw(i % ROWS, 0);
		d->how = hows[i / ROWS % HOWS];
		d->how.repetition = 1;
		d->seed = i;
		d->position = random_below(100000);
		d->top = n % 3 ? -1 : (int32_t)(n % (TOP + 1));
		if (i / ROWS >=
		    HOWS) { /* the same again, with penalties, or with bans, or with both */
			d->seat = i % 2 ? (int32_t)i : -1;
			d->how.repetition = 1.2f;
			d->how.frequency = 0.4f;
			d->how.n_banned = i % 4 == 1 ? 0 : BANNED_MAX;
			for (uint32_t b = 0; b < BANNED_MAX; b++)
				d->banned[b] = (int32_t)(b ? random_below(vocab) : vocab - 1);
		}
		n++;
		if (harness_small())
			i += 6;
	}
	for (uint32_t i = 0; i < DRAWS * vocab; i++)
		counts[i] = random_below(50) ? 0 : 0x80000000u * random_below(2) + random_below(4);
	check_draws(k, draws, n, x, ROWS, counts, DRAWS);
	out = run(k, draws, n, x, ROWS, counts, DRAWS);
	same_as_generic(w, "blocks", vocab, out.ids, n * sizeof(*out.ids));
	same_as_generic(w, "blocks' log-probabilities", vocab, out.extra,
			(size_t)n * EXTRA * sizeof(*out.extra));
	case_end();
}

/* Scores given tokens: any, the best, the worst, and some among equals. */
static void scores(struct kernels *k)
{
	enum { ROWS = 7, EACH = SCORE_RESULT_INTS(TOP), AT = 3 };
	uint32_t vocab = kernels_shape(k)->vocab, ld = KERNEL_LD(vocab), at = 5;
	float *x = random_logits(ROWS, vocab);
	int32_t *table = CASE_INTS(AT + ROWS * SCORE_INTS), *result;
	cl_mem R = buffer_out((5 + (uint64_t)ROWS * EACH) * 4);

	for (uint32_t i = 0; i < vocab; i++)
		x[5 * ld + i] = (float)(int)random_below(2);
	for (uint32_t r = 0; r < ROWS; r++) {
		const int32_t top[ROWS] = {0, 1, 5, 20, 3, 20, 2};
		int32_t *s = table + AT + r * SCORE_INTS;

		s[SCORE_TOKEN] = (int32_t)random_below(vocab);
		if (r == 1 || r == 2)
			x[r * ld + (uint32_t)s[SCORE_TOKEN]] = r == 1 ? 7 : -7;
		s[SCORE_TOP] = MIN(top[r], (int32_t)vocab);
		s[SCORE_RESULT_AT] = (int32_t)at;
		at += SCORE_RESULT_INTS((uint32_t)s[SCORE_TOP]);
	}
	{
		cl_mem L = buffer_floats(x, (uint64_t)ROWS * ld);
		cl_mem T = buffer_ints(table, AT + ROWS * SCORE_INTS);
		cl_mem work = buffer_out(ROWS * kernels_score_floats(kernels_shape(k)) * 4);

		kernel_score(k, T, AT, L, work, R, ROWS);
	}
	set_finish(k);
	result = read_ints(R, at);
	for (uint32_t r = 0; r < ROWS; r++) {
		const int32_t *s = table + AT + r * SCORE_INTS, *got = result + s[SCORE_RESULT_AT];
		const float *row = x + r * ld;
		int32_t rank = 1;

		for (uint32_t i = 0; i < vocab; i++)
			rank += row[i] > row[s[SCORE_TOKEN]] ||
				(row[i] == row[s[SCORE_TOKEN]] && (int32_t)i < s[SCORE_TOKEN]);
		check(got[SCORE_RANK] == rank);
		check(r != 1 || rank == 1);
		check(r != 2 || rank == (int32_t)vocab);
		check_logprobs(row, vocab, s[SCORE_TOKEN], s[SCORE_TOP], got + SCORE_REPORT);
		/* The given token is in the list at its rank, and nowhere else. */
		for (int32_t i = 0; i < s[SCORE_TOP]; i++)
			check((got[SCORE_REPORT + REPORT_TOP_ID(i)] == s[SCORE_TOKEN]) ==
			      (i + 1 == rank));
	}
	case_end();
}

static void seat_reset(struct kernels *k)
{
	enum { SEATS = 5, RESETS = 3, MOST = 400 };
	uint32_t vocab = kernels_shape(k)->vocab, at = 2 + RESETS * RESET_INTS;
	uint32_t *counts = case_alloc((size_t)SEATS * vocab, sizeof(*counts)), *got;
	static const uint32_t seats[RESETS] = {4, 0, 2}, prompts[RESETS] = {130, 0, 7},
			      generated[RESETS] = {5, 390, 0};
	int32_t *table = CASE_INTS(at + RESETS * 2 * MOST);
	cl_mem C;

	for (uint32_t i = 0; i < SEATS * vocab; i++)
		counts[i] = 0xdeadbeef;
	C = buffer_ints((const int32_t *)counts, (uint64_t)SEATS * vocab);
	for (uint32_t r = 0; r < RESETS; r++) {
		uint32_t *seen = counts + seats[r] * vocab;
		const int32_t reset[RESET_INTS] = {
			[RESET_SEAT] = (int32_t)seats[r],
			[RESET_PROMPT_AT] = (int32_t)at,
			[RESET_PROMPT_COUNT] = (int32_t)prompts[r],
			[RESET_GENERATED_AT] = (int32_t)(at + prompts[r]),
			[RESET_GENERATED_COUNT] = (int32_t)generated[r],
		};

		memcpy(table + 2 + r * RESET_INTS, reset, sizeof(reset));
		memset(seen, 0, vocab * sizeof(*seen));
		for (uint32_t i = 0; i < prompts[r]; i++) {
			uint32_t id = random_below(i % 3 ? 5 : vocab);

			table[at++] = (int32_t)id;
			seen[id] = 0x80000000u;
		}
		for (uint32_t i = 0; i < generated[r]; i++) {
			uint32_t id = random_below(i % 2 ? 5 : vocab);

			table[at++] = (int32_t)id;
			seen[id]++;
		}
	}
	kernel_seat_reset(k, buffer_ints(table, at), 2, C, RESETS);
	set_finish(k);
	got = (uint32_t *)read_ints(C, (uint64_t)SEATS * vocab);
	check(!memcmp(got, counts, (size_t)SEATS * vocab * sizeof(*got)));
	case_end();
}

/* The reference itself, against the vectors published with Random123 (kat_vectors). */
static void philox_vectors(const struct way *w)
{
	static const struct {
		uint32_t counter[4], key[2], out[4];
	} known[] = {
		{{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{~0u, ~0u, ~0u, ~0u},
		 {~0u, ~0u},
		 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		uint32_t out[4];

		reference_philox(known[i].counter, known[i].key, out);
		check(!memcmp(out, known[i].out, sizeof(out)));
	}
	ok_way(w, "the reference's Philox gives the published numbers");
}

static void test(const struct way *w, struct kernels *k)
{
	uint32_t vocab = kernels_shape(k)->vocab;

	random_seed(vocab);
	greedy(k);
	ok_way(w, "greedy, %u tokens", vocab);
	not_finite(k);
	ok_way(w, "logits that are not finite, %u tokens", vocab);
	cuts(k);
	ok_way(w, "temperature, top_k, top_p, min_p, %u tokens", vocab);
	penalties(k);
	ok_way(w, "penalties and bans, %u tokens", vocab);
	masks_and_biases(k);
	ok_way(w, "token masks and biases, %u tokens", vocab);
	scores(k);
	ok_way(w, "given tokens, %u tokens", vocab);
	seat_reset(k);
	ok_way(w, "seats change hands");
	if (vocab <= 64 && !harness_small()) {
		frequencies(w, k, 1);
		frequencies(w, k, 0.7f);
		ok_way(w, "draws follow the distribution");
	}
}

static void test_many(const struct way *w)
{
	struct kernel_shape s = common_shape();
	struct kernels *k;
	static bool once;

	if (!once)
		philox_vectors(w);
	once = true;
	s.vocab = harness_small() ? 300 : 20011;
	k = set_open(w, s);
	if (!k)
		return;
	random_seed(2);
	blocks(w, k);
	ok_way(w, "many blocks, %u tokens", s.vocab);
	greedy(k);
	scores(k);
	ok_way(w, "greedy and given tokens, %u tokens", s.vocab);
	cuts(k);
	penalties(k);
	masks_and_biases(k);
	ok_way(w, "temperature, top_k, top_p, min_p, penalties, bans, masks and biases, %u tokens",
	       s.vocab);
	kernels_close(k);
}

const struct kernel_test kernel_test = {.programs = "sample.cl",
					.floats = true,
					.way = test_many,
					.shape = test};
