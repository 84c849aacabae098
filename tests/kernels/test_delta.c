/*
 * delta_prefill.cl and delta_decode.cl: rows of prompts in chunks and rows of one generated token, against
 * the rule applied token by token. The chunk form is another order of summation, hence its own bound.
 */
#include <math.h>
#include <string.h>

#include "kernels/step.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

/* Relative to the output: the gated norm brings it to the size of 1, however small the sums before it are. */
#define BOUND	    4e-6
#define CHUNK_BOUND 2e-5
/* nvidia/delta_tensor.cl rounds the operands of its products to bf16, which has 8 bits. */
#define TENSOR_BOUND 1e-2

enum { ROWS_MAX = 8, ZERO = ROW_STATE_ZERO, KEPT_MAX = ROW_SNAPSHOTS_MAX };

/* Head counts with one to three value heads a key head, equal and unequal sizes, two to five taps. */
static const struct heads {
	uint32_t key_heads, value_heads, key_dim, value_dim, conv;
	/* The ways of bf16 that have this shape. Only the store of the outputs depends on the elements, and a shape
	 * takes seconds to compile. */
	enum { EVERY_BF16, NOT_EMULATED, NO_BF16 } bf16;
	/* SMALL: also under oclgrind; SMALL_ONLY: there alone; TENSOR: only where delta_tensor.cl may be used */
	enum { FULL, SMALL, SMALL_ONLY, TENSOR } size;
	/* Where a GPU's width is slow, snapshots are left out: they are saved by the functions that save the state and
	 * the inputs at a row's end, which `prefill` checks. */
	bool few;
} all_heads[] = {
	{1, 1, 16, 16, 2, NO_BF16, SMALL},
	{2, 4, 64, 48, 4, EVERY_BF16, FULL},
	{2, 6, 48, 32, 3, NOT_EMULATED, FULL, .few = true},
	{1, 3, 16, 80, 5, NO_BF16, FULL},
	{1, 2, 128, 128, 4, NOT_EMULATED, FULL},
	{2, 4, 16, 32, 5, NO_BF16, SMALL_ONLY},
	{2, 4, 64, 64, 4, NO_BF16, FULL, .few = true},
	{1, 3, 64, 80, 5, EVERY_BF16, TENSOR},
	{1, 1, 128, 16, 2, EVERY_BF16, TENSOR},
};

/* A row: n tokens from position start; the state is read from slot src and left in slot dst, and, after `at` of these
 * tokens, in each slot of kept. */
struct row {
	uint32_t start, n;
	int32_t src;
	uint32_t dst;
	uint32_t n_kept;
	struct {
		uint32_t at, slot;
	} kept[KEPT_MAX];
};
enum { SLOTS = 14 };
static const struct row prefill_rows[] = {
	{0, 1, ZERO, 0},  /* shorter than the convolution */
	{0, 64, ZERO, 1}, /* one chunk, to its end */
	{64, 70, 2, 2},	  /* a chunk and a short one, in place */
	{128, 130, 3, 4}, /* two chunks and a very short one, to another slot */
	{192, 2, 5, 6},	  /* two tokens alone, and a ring that is carried over */
};
static const struct row kept_rows[] = {
	{0,
	 300,
	 ZERO,
	 0,
	 4,
	 {{64, 1}, {128, 2}, {192, 3}, {256, 13}}}, /* as many as a row may keep */
	{64, 130, 5, 6, 2, {{64, 7}, {128, 8}}},    /* to another slot */
	{128, 192, 9, 9, 1, {{128, 10}}}, /* in place; kept at one of two ends of chunks */
	{0, 65, ZERO, 4, 1, {{64, 12}}},
	{192, 20, 11, 11},
};
static const struct row decode_rows[] = {
	{0, 1, ZERO, 0}, {1, 1, 1, 1}, {77, 1, 2, 3}, {258, 1, 4, 4}, {64, 1, 5, 7},
};
static const struct row small_prefill[] = {{0, 2, ZERO, 0}, {64, 1, 1, 2}};
static const struct row small_kept[] = {{0, 65, ZERO, 0, 1, {{64, 1}}}};
static const struct row small_decode[] = {{3, 1, 0, 0}, {0, 1, ZERO, 1}, {64, 1, 2, 3}};

/* One layer's weights, a step's inputs, the rings and the states of all slots. */
struct setup {
	const struct way *w;
	struct kernels *k;
	const struct kernel_shape *s;
	const struct row *rows;
	uint32_t n_rows, n_tokens, first[ROWS_MAX];
	uint32_t channels, ld;
	float *conv, *neg_a, *dt_bias, *norm; /* conv [CONV, CHANNELS] */
	float *proj, *ring, *state;
	int32_t *table;
	uint32_t rows_at, token_rows_at, ints;
};

static uint64_t ring_floats(const struct setup *u)
{
	return (uint64_t)SLOTS * u->s->conv * u->channels;
}

static uint64_t slot_floats(const struct setup *u)
{
	return (uint64_t)u->s->value_heads * u->s->key_dim * u->s->value_dim;
}

static struct setup make_setup(const struct way *w, struct kernels *k, const struct row *rows,
			       uint32_t n_rows)
{
	struct setup u = {.w = w, .k = k, .s = kernels_shape(k), .rows = rows, .n_rows = n_rows};
	const struct kernel_shape *s = u.s;
	uint32_t HV = s->value_heads;

	for (uint32_t r = 0; r < n_rows; r++) {
		u.first[r] = u.n_tokens;
		u.n_tokens += rows[r].n;
	}
	u.channels = 2 * s->key_heads * s->key_dim + HV * s->value_dim;
	u.ld = kernels_delta_ld(s);
	u.conv = case_matrix(s->conv, u.channels, u.channels, -1, 1);
	u.neg_a = case_matrix(1, HV, KERNEL_LD(HV), -2, -0.01f);
	u.dt_bias = case_matrix(1, HV, KERNEL_LD(HV), -3, 1);
	u.norm = case_matrix(1, s->value_dim, s->value_dim, 0.5f, 2);
	u.proj = case_matrix(u.n_tokens, u.ld, u.ld, -2, 2);
	u.ring = case_matrix(SLOTS * s->conv, u.channels, u.channels, -2, 2);
	u.state = case_matrix(SLOTS, slot_floats(&u), slot_floats(&u), -1, 1);
	/* One gate gets a large argument of softplus. */
	u.proj[u.ld - KERNEL_LD(HV)] = 30;
	/* Slots that no row reads hold NaN, as recycled memory may. */
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		bool read = false;

		for (uint32_t r = 0; r < n_rows; r++)
			read |= rows[r].src == (int32_t)slot;
		for (uint64_t i = 0; !read && i < slot_floats(&u); i++)
			u.state[slot * slot_floats(&u) + i] = NAN;
		for (uint64_t i = 0; !read && i < (uint64_t)s->conv * u.channels; i++)
			u.ring[(uint64_t)slot * s->conv * u.channels + i] = NAN;
	}
	u.token_rows_at = 3;
	u.rows_at = u.token_rows_at + u.n_tokens;
	u.ints = u.rows_at + n_rows * ROW_INTS;
	u.table = CASE_INTS(u.ints);
	memset(u.table, 0xff, u.ints * sizeof(*u.table));
	for (uint32_t r = 0; r < n_rows; r++) {
		int32_t *row = u.table + u.rows_at + r * ROW_INTS; /* all its ints are -1 */

		row[ROW_TOKEN] = (int32_t)u.first[r];
		row[ROW_COUNT] = (int32_t)rows[r].n;
		row[ROW_START] = (int32_t)rows[r].start;
		row[ROW_STATE_SRC] = rows[r].src;
		row[ROW_STATE_DST] = (int32_t)rows[r].dst;
		row[ROW_SNAPSHOTS] = (int32_t)rows[r].n_kept;
		for (uint32_t i = 0; i < rows[r].n_kept; i++) {
			row[ROW_SNAPSHOT_TOKENS(i)] = (int32_t)rows[r].kept[i].at;
			row[ROW_SNAPSHOT_SLOT(i)] = (int32_t)rows[r].kept[i].slot;
		}
		for (uint32_t t = 0; t < rows[r].n; t++)
			u.table[u.token_rows_at + u.first[r] + t] = (int32_t)r;
	}
	return u;
}

/* ---- the reference: token by token ---- */

/* The input of a channel at a position of row r: from the projection, the ring, or before the beginning. */
static float input_at(const struct setup *u, uint32_t r, int64_t position, uint32_t channel)
{
	const struct row *row = &u->rows[r];
	uint32_t taps = u->s->conv;

	if (position >= (int64_t)row->start)
		return u->proj[(u->first[r] + position - row->start) * u->ld + channel];
	if (row->src == ZERO)
		return 0;
	return u->ring[((uint64_t)row->src * taps + (uint64_t)(position + taps) % taps) *
			       u->channels +
		       channel];
}

static double convolved(const struct setup *u, uint32_t r, uint32_t position, uint32_t channel)
{
	float inputs[8], weights[8];
	uint32_t taps = u->s->conv;

	for (uint32_t i = 0; i < taps; i++) {
		inputs[i] = input_at(u, r, (int64_t)position - taps + 1 + i, channel);
		weights[i] = u->conv[i * u->channels + channel];
	}
	return reference_conv(inputs, weights, taps);
}

struct want {
	double *out;		   /* [T, HV * DV] */
	double *state;		   /* [rows, HV, DK, DV] after the row */
	double *kept;		   /* [rows, KEPT_MAX, HV, DK, DV] at the snapshots */
	double *q, *k, *v, *gates; /* [T, ...] as delta_conv leaves them */
};

static struct want expect(const struct setup *u)
{
	const struct kernel_shape *s = u->s;
	uint32_t HK = s->key_heads, HV = s->value_heads, dk = s->key_dim, dv = s->value_dim,
		 T = u->n_tokens;
	struct want want = {CASE_DOUBLES((size_t)T * HV * dv),
			    CASE_DOUBLES(u->n_rows * slot_floats(u)),
			    CASE_DOUBLES(u->n_rows * KEPT_MAX * slot_floats(u)),
			    CASE_DOUBLES((size_t)T * HK * dk),
			    CASE_DOUBLES((size_t)T * HK * dk),
			    CASE_DOUBLES((size_t)T * HV * dv),
			    CASE_DOUBLES((size_t)T * HV * 2)};
	double *o = CASE_DOUBLES(dv);

	for (uint32_t r = 0; r < u->n_rows; r++)
		for (uint32_t i = 0; i < u->rows[r].n; i++) {
			uint32_t p = u->rows[r].start + i;
			size_t t = u->first[r] + i;

			for (uint32_t h = 0; h < HK; h++) {
				double *q = want.q + (t * HK + h) * dk,
				       *k = want.k + (t * HK + h) * dk;

				for (uint32_t d = 0; d < dk; d++) {
					q[d] = convolved(u, r, p, h * dk + d);
					k[d] = convolved(u, r, p, (HK + h) * dk + d);
				}
				reference_l2_norm(q, dk);
				reference_l2_norm(k, dk);
				for (uint32_t d = 0; d < dk; d++)
					q[d] /= sqrt(dk);
			}
			for (uint32_t c = 0; c < HV * dv; c++)
				want.v[t * HV * dv + c] = convolved(u, r, p, 2 * HK * dk + c);
		}
	for (uint32_t r = 0; r < u->n_rows; r++)
		for (uint32_t h = 0; h < HV; h++) {
			double *S = want.state + r * slot_floats(u) + (uint64_t)h * dk * dv;

			for (uint64_t i = 0; i < (uint64_t)dk * dv && u->rows[r].src != ZERO; i++)
				S[i] = u->state[(uint32_t)u->rows[r].src * slot_floats(u) +
						h * dk * dv + i];
			for (uint32_t i = 0; i < u->rows[r].n; i++) {
				size_t t = u->first[r] + i;
				size_t kh = t * HK + (s->tiled_heads ? h % HK : h / (HV / HK));
				const float *in = u->proj + t * u->ld,
					    *z = in + u->channels + h * dv;
				const float *b = in + u->channels + HV * dv, *a = b + KERNEL_LD(HV);
				double *gate = want.gates + (t * HV + h) * 2;

				gate[0] = reference_sigmoid((double)b[h]);
				gate[1] = reference_delta_gate(a[h], u->neg_a[h], u->dt_bias[h]);
				reference_delta_step(S, want.q + kh * dk, want.k + kh * dk,
						     want.v + (t * HV + h) * dv, gate[0], gate[1],
						     dk, dv, o);
				reference_gated_norm(o, u->norm, z, dv, (double)s->eps,
						     want.out + (t * HV + h) * dv);
				for (uint32_t j = 0; j < u->rows[r].n_kept; j++)
					if (u->rows[r].kept[j].at == i + 1)
						memcpy(want.kept +
							       (r * KEPT_MAX + j) * slot_floats(u) +
							       (uint64_t)h * dk * dv,
						       S, (size_t)dk * dv * sizeof(*S));
			}
		}
	return want;
}

/* ---- running ---- */

struct pools {
	cl_mem step, proj, conv, neg_a, dt_bias, norm, ring, state, out;
	cl_mem q, k, v, gates;
};

static struct pools upload(const struct setup *u)
{
	const struct kernel_shape *s = u->s;
	uint64_t T = u->n_tokens, HV = s->value_heads, key = (uint64_t)s->key_heads * s->key_dim;

	return (struct pools){
		.step = buffer_ints(u->table, u->ints),
		.proj = buffer_floats(u->proj, T * u->ld),
		.conv = buffer_floats(u->conv, (uint64_t)s->conv * u->channels),
		.neg_a = buffer_floats(u->neg_a, KERNEL_LD(HV)),
		.dt_bias = buffer_floats(u->dt_bias, KERNEL_LD(HV)),
		.norm = buffer_floats(u->norm, s->value_dim),
		.ring = buffer_floats(u->ring, ring_floats(u)),
		.state = buffer_floats(u->state, SLOTS * slot_floats(u)),
		.out = buffer_out_elements(u->w, T * HV * s->value_dim),
		.q = buffer_out(T * key * 4),
		.k = buffer_out(T * key * 4),
		.v = buffer_out(T * HV * s->value_dim * 4),
		.gates = buffer_out(T * HV * 2 * 4),
	};
}

static void run_conv(const struct setup *u, const struct pools *p)
{
	kernel_delta_conv(u->k, p->step, (cl_int)u->rows_at, (cl_int)u->token_rows_at, p->proj,
			  p->conv, p->neg_a, p->dt_bias, p->ring, p->q, p->k, p->v, p->gates,
			  u->n_tokens);
}

static void run_prefill(const struct setup *u, const struct pools *p)
{
	cl_mem work = buffer_out(kernels_delta_scratch(u->k, u->n_tokens, u->n_rows) * 4);

	run_conv(u, p);
	kernel_delta_prefill(u->k, p->step, (cl_int)u->rows_at, u->n_rows, u->n_tokens, p->proj,
			     p->q, p->k, p->v, p->gates, p->norm, p->ring, p->state, work, p->out);
}

static void run_decode(const struct setup *u, const struct pools *p)
{
	kernel_delta_decode(u->k, p->step, (cl_int)u->rows_at, 0, u->n_rows, p->proj, p->conv,
			    p->neg_a, p->dt_bias, p->norm, p->ring, p->state, p->out);
}

/* The expected content of a slot: the state after n tokens of row r. r is n_rows if the slot is not written. */
struct written {
	uint32_t r, n;
	const double *state;
};

static struct written written_by(const struct setup *u, const struct want *want, uint32_t slot)
{
	for (uint32_t r = 0; r < u->n_rows; r++) {
		const struct row *row = &u->rows[r];

		if (row->dst == slot)
			return (struct written){r, row->n, want->state + r * slot_floats(u)};
		for (uint32_t i = 0; i < row->n_kept; i++)
			if (row->kept[i].slot == slot)
				return (struct written){r, row->kept[i].at,
							want->kept + (r * KEPT_MAX + i) *
									     slot_floats(u)};
	}
	return (struct written){.r = u->n_rows};
}

/* Checks that slots that a row writes hold its state and its last inputs, and that the others are unchanged. */
static void check_pools(const struct setup *u, const struct want *want, const float *ring,
			const float *state, double bound)
{
	uint32_t taps = u->s->conv;

	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		const float *S = state + slot * slot_floats(u);
		const float *R = ring + (uint64_t)slot * taps * u->channels;
		struct written by = written_by(u, want, slot);

		if (by.r == u->n_rows) {
			check(same_bits(S, u->state + slot * slot_floats(u), slot_floats(u)));
			check(same_bits(R, u->ring + (uint64_t)slot * taps * u->channels,
					taps * u->channels));
			continue;
		}
		near(S, by.state, slot_floats(u), bound);
		for (uint32_t back = 1; back < taps; back++)
			for (uint32_t c = 0; c < u->channels; c++) {
				int64_t p = (int64_t)u->rows[by.r].start + by.n - back;

				check(R[(uint64_t)(p + taps) % taps * u->channels + c] ==
				      input_at(u, by.r, p, c));
			}
	}
}

/* Row r alone gives the same bits: outputs and state. */
static void check_alone(const struct setup *all, uint32_t r, bool decode, const float *out,
			const float *state)
{
	struct setup u = *all;
	uint32_t width = u.s->value_heads * u.s->value_dim, slot = u.rows[r].dst;
	struct pools p;

	u.rows += r;
	u.n_rows = 1;
	u.n_tokens = u.rows->n;
	u.proj += (size_t)all->first[r] * u.ld;
	u.table = CASE_INTS(u.ints);
	u.rows_at = u.token_rows_at + u.n_tokens;
	memcpy(u.table + u.rows_at, all->table + all->rows_at + r * ROW_INTS,
	       ROW_INTS * sizeof(*u.table));
	u.table[u.rows_at + ROW_TOKEN] = 0; /* token_rows are 0 already */
	p = upload(&u);
	(decode ? run_decode : run_prefill)(&u, &p);
	set_finish(u.k);
	check(same_bits(read_elements(u.w, p.out, (uint64_t)u.n_tokens * width),
			out + (size_t)all->first[r] * width, (size_t)u.n_tokens * width));
	check(same_bits(read_floats(p.state, SLOTS * slot_floats(&u)) + slot * slot_floats(&u),
			state + slot * slot_floats(&u), slot_floats(&u)));
}

static double chunk_bound(const struct kernels *k)
{
	return kernels_delta_input_bytes(k) == 2 ? TENSOR_BOUND : CHUNK_BOUND;
}

/* Checks an input of the chunks, which delta_conv has written. */
static void near_input(const struct setup *u, cl_mem got, const double *want, size_t n)
{
	if (kernels_delta_input_bytes(u->k) == 2)
		near_elements(u->w, read_elements(u->w, got, n), want, n, BOUND);
	else
		near(read_floats(got, n), want, n, BOUND);
}

static void prefill(const struct way *w, struct kernels *k, unsigned number)
{
	/* A chunk under oclgrind takes long: there only the first shape has all rows, a later one the row of two
	 * tokens. */
	const struct row *rows = harness_small() ? small_prefill : prefill_rows;
	const uint32_t n_small = number ? 1 : ARRAY_SIZE(small_prefill);
	uint32_t n = harness_small() ? n_small : ARRAY_SIZE(prefill_rows);
	struct setup u = make_setup(w, k, rows, n);
	const struct kernel_shape *s = u.s;
	uint64_t key = (uint64_t)u.n_tokens * s->key_heads * s->key_dim;
	uint64_t value = (uint64_t)u.n_tokens * s->value_heads * s->value_dim;
	struct want want = expect(&u);
	struct pools p = upload(&u);
	float *out, *state;

	run_conv(&u, &p);
	set_finish(k);
	near_input(&u, p.q, want.q, key);
	near_input(&u, p.k, want.k, key);
	near_input(&u, p.v, want.v, value);
	near(read_floats(p.gates, (uint64_t)u.n_tokens * s->value_heads * 2), want.gates,
	     (size_t)u.n_tokens * s->value_heads * 2, BOUND);
	run_prefill(&u, &p);
	set_finish(k);
	out = read_elements(w, p.out, value);
	state = read_floats(p.state, SLOTS * slot_floats(&u));
	near_elements(w, out, want.out, value, chunk_bound(k));
	check_pools(&u, &want, read_floats(p.ring, ring_floats(&u)), state, chunk_bound(k));
	same_as_generic(w, "prefill", number, out, value * sizeof(*out));
	if (!harness_small())
		check_alone(&u, n - 1, false, out, state);
	case_end();
}

/* Returns whether two slots hold the same state and the same inputs for the next token. */
static bool same_slot(const struct setup *u, const struct pools *a, uint32_t slot_a,
		      const struct pools *b, uint32_t slot_b, uint32_t position)
{
	uint64_t ring = (uint64_t)u->s->conv * u->channels, state = slot_floats(u);
	const float *Ra = read_floats(a->ring, ring_floats(u)) + slot_a * ring;
	const float *Rb = read_floats(b->ring, ring_floats(u)) + slot_b * ring;
	bool same = same_bits(read_floats(a->state, SLOTS * state) + slot_a * state,
			      read_floats(b->state, SLOTS * state) + slot_b * state, state);

	for (uint32_t entry = 0; entry < u->s->conv; entry++)
		if (entry != position % u->s->conv)
			same &= same_bits(Ra + entry * u->channels, Rb + entry * u->channels,
					  u->channels);
	return same;
}

/* A snapshot has the bits of a row that ends there, and snapshots change no other result. */
static void prefill_kept(const struct way *w, struct kernels *k, unsigned number)
{
	const struct row *rows = harness_small() ? small_kept : kept_rows;
	uint32_t n = harness_small() ? ARRAY_SIZE(small_kept) : ARRAY_SIZE(kept_rows);
	const uint32_t rounds = harness_small() ? 0 : KEPT_MAX + 1;
	struct setup u = make_setup(w, k, rows, n), v = u;
	uint64_t value = (uint64_t)u.n_tokens * u.s->value_heads * u.s->value_dim;
	struct want want = expect(&u);
	struct pools p = upload(&u), one;
	float *out, *state;

	run_prefill(&u, &p);
	set_finish(k);
	out = read_elements(w, p.out, value);
	state = read_floats(p.state, SLOTS * slot_floats(&u));
	near_elements(w, out, want.out, value, chunk_bound(k));
	check_pools(&u, &want, read_floats(p.ring, ring_floats(&u)), state, chunk_bound(k));
	same_as_generic(w, "kept", number, state, SLOTS * slot_floats(&u) * sizeof(*state));
	/* The same rows without snapshots, each up to its j-th snapshot. In the last round (KEPT_MAX) each row goes to
	 * its own end. Not under oclgrind, which has seen these chunks. Where it is slow, the first and the last round
	 * only. */
	v.table = CASE_INTS(u.ints);
	for (uint32_t j = 0; j < rounds; j++) {
		bool any = j == KEPT_MAX;

		if (harness_emulates(w) && j && !any)
			continue;
		memcpy(v.table, u.table, u.ints * sizeof(*u.table));
		for (uint32_t r = 0; r < n; r++) {
			int32_t *row = v.table + v.rows_at + r * ROW_INTS;

			if (j < rows[r].n_kept)
				row[ROW_COUNT] = (int32_t)rows[r].kept[j].at;
			row[ROW_SNAPSHOTS] = 0;
			any |= j < rows[r].n_kept;
		}
		if (!any)
			continue;
		one = upload(&v);
		run_prefill(&v, &one);
		set_finish(k);
		for (uint32_t r = 0; r < n; r++) {
			bool kept = j < rows[r].n_kept;

			check(same_slot(&u, &p, kept ? rows[r].kept[j].slot : rows[r].dst, &one,
					rows[r].dst,
					rows[r].start + (kept ? rows[r].kept[j].at : rows[r].n)));
		}
		if (j == KEPT_MAX)
			check(same_bits(read_elements(w, one.out, value), out, value));
	}
	case_end();
}

/* A prompt cut at a multiple of 64 gives the bits of the whole: positions 64 .. 192 and then the rest. */
static void prefill_cut(const struct way *w, struct kernels *k)
{
	static const struct row whole[] = {{64, 150, 0, 1}}, head[] = {{64, 128, 0, 2}},
				tail[] = {{192, 22, 2, 2}};
	struct setup u = make_setup(w, k, whole, 1), v = u;
	uint32_t width = u.s->value_heads * u.s->value_dim;
	struct pools p = upload(&u), one;
	float *out, *state, *cut_state;

	run_prefill(&u, &p);
	set_finish(k);
	out = read_elements(w, p.out, (uint64_t)u.n_tokens * width);
	state = read_floats(p.state, SLOTS * slot_floats(&u));

	for (int part = 0; part < 2; part++) {
		v.rows = part ? tail : head;
		v.n_tokens = v.rows->n;
		v.proj = u.proj + (part ? (size_t)head->n * u.ld : 0);
		v.table[u.rows_at + 1] = (int32_t)v.rows->n;
		v.table[u.rows_at + 2] = (int32_t)v.rows->start;
		v.table[u.rows_at + 3] = v.rows->src;
		v.table[u.rows_at + 4] = (int32_t)v.rows->dst;
		one = upload(&v);
		run_prefill(&v, &one);
		set_finish(k);
		v.ring = read_floats(one.ring, ring_floats(&u));
		v.state = read_floats(one.state, SLOTS * slot_floats(&u));
		check(same_bits(read_elements(w, one.out, (uint64_t)v.n_tokens * width),
				out + (part ? head->n * width : 0), (size_t)v.n_tokens * width));
	}
	cut_state = v.state;
	check(same_bits(cut_state + 2 * slot_floats(&u), state + slot_floats(&u), slot_floats(&u)));
	case_end();
}

static void decode(const struct way *w, struct kernels *k, unsigned number)
{
	const struct row *rows = harness_small() ? small_decode : decode_rows;
	uint32_t n = harness_small() ? ARRAY_SIZE(small_decode) : ARRAY_SIZE(decode_rows);
	struct setup u = make_setup(w, k, rows, n);
	uint64_t value = (uint64_t)u.n_tokens * u.s->value_heads * u.s->value_dim;
	struct want want = expect(&u);
	struct pools p = upload(&u);
	float *out, *state;

	run_decode(&u, &p);
	set_finish(k);
	out = read_elements(w, p.out, value);
	state = read_floats(p.state, SLOTS * slot_floats(&u));
	near_elements(w, out, want.out, value, BOUND);
	check_pools(&u, &want, read_floats(p.ring, ring_floats(&u)), state, BOUND);
	same_as_generic(w, "decode", number, out, value * sizeof(*out));
	check_alone(&u, n - 1, true, out, state);
	case_end();
}

static bool has_shape(const struct way *w, const struct heads *h)
{
	if (w->bf16 && (h->bf16 == NO_BF16 || (h->bf16 == NOT_EMULATED && harness_emulates(w))))
		return false;
	if (h->size == TENSOR)
		return w->bf16 && w->variant == KERNELS_NVIDIA;
	return h->size != (harness_small() ? FULL : SMALL_ONLY);
}

static void test_shape(const struct way *w, unsigned number, bool tiled)
{
	/* In this way snapshots and cut prompts run the programs of the float way on the same numbers, except for
	 * delta_norm, whose outputs `prefill` checks. Which key head a value head uses makes no difference to them. */
	const bool again = tiled || (w->bf16 && harness_emulates(w));
	const struct heads *h = &all_heads[number];
	struct kernel_shape shape = common_shape();
	struct kernels *k;

	shape.n_mlps = 0;
	shape.key_heads = h->key_heads;
	shape.value_heads = h->value_heads;
	shape.tiled_heads = tiled;
	shape.key_dim = h->key_dim;
	shape.value_dim = h->value_dim;
	shape.conv = h->conv;
	k = set_open(w, shape);
	if (!k)
		return;
	number += tiled * ARRAY_SIZE(all_heads);
	random_seed(number);
	decode(w, k, number);
	ok_way(w, "decode, %u value heads for %u%s, %u x %u, %u taps", h->value_heads, h->key_heads,
	       tiled ? " in turn" : "", h->key_dim, h->value_dim, h->conv);
	prefill(w, k, number);
	if (!harness_small() && !again)
		prefill_cut(w, k);
	ok_way(w, "prefill, the same");
	/* Under oclgrind the smallest shape is enough. */
	if (!again && !(h->few && harness_emulates(w)) && (!harness_small() || !number)) {
		prefill_kept(w, k, number);
		ok_way(w, "prefill that keeps states on its way");
	}
	kernels_close(k);
}

static void test(const struct way *w)
{
	for (unsigned i = 0; i < ARRAY_SIZE(all_heads); i++) {
		const struct heads *h = &all_heads[i];

		if (!has_shape(w, h))
			continue;
		test_shape(w, i, false);
		/* With one key head, or one value head for each, both ways to share key heads are the same. */
		if (h->key_heads > 1 && h->value_heads > h->key_heads)
			test_shape(w, i, true);
	}
}

const struct kernel_test kernel_test = {
	.programs =
		"delta_conv.cl delta_conv_gpu.cl delta_prefill.cl delta_chunks.cl delta_scan.cl delta_scan_wide.cl delta_tensor.cl delta_decode.cl delta_token.cl",
	.way = test};
