/* attention.cl and attention_decode.cl: preparation of q, k, v, and attention over paged keys and values. */
#include <math.h>
#include <string.h>

#include "kernels/step.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/harness.h"

#define BOUND		1e-6
#define WEIGHT_BOUND	0x1p-8 /* a weight rounded to bf16; the reference's queries are rounded, too */
#define SPLIT_BOUND	2e-5 /* a query and a weight are two bf16 numbers each */
#define ATTENTION_BOUND 5e-6 /* an error of a score is one of its weight, and scores are large */

enum { ROWS_MAX = 8, SPARE_PAGES = 3, TENSOR_HEADS = 3 /* the last ones of all_heads */ };

/* Ratios of query heads to KV heads from 1 to 32, head sizes from 16 to 256; with an output gate and without; with norms
 * of queries and keys, and with biases in their place; pages of elements and of int8. */
static const struct heads {
	uint32_t heads, kv_heads, head_dim, rotary_dim, page_tokens;
	bool gate;
	bool small;  /* also under oclgrind */
	bool biased; /* biases, and no norms */
	/* not 0: a sliding window of so many keys, with angles of its own; then score_dim is another than head_dim */
	uint32_t window;
	bool int8; /* pages have int8 with scales */
} all_heads[] = {
	{2, 2, 16, 6, 64, true, true},
	{4, 2, 64, 16, 128, true, false},
	{4, 1, 80, 16, 64, true, true},
	{8, 1, 128, 6, 64, true, false},
	{4, 1, 256, 64, 192, true, false},
	{2, 1, 16, 16, 64, false, true, true, 21},
	{4, 2, 128, 128, 64, false, false, false, 70},
	{32, 1, 16, 16, 64, false, false},
	{4, 1, 80, 16, 64, true, true, false, 0, true},
	{6, 3, 16, 16, 64, false, false, true, 21, true},
	{8, 1, 128, 6, 192, true, false, false, 0, true},
	/* for nvidia alone, which has blocks of 64 dimensions and 8 query heads: odd numbers of both, and the most */
	{2, 2, 64, 6, 64, false, false, false, 200},
	{3, 1, 192, 16, 64, true, false},
	{8, 1, 256, 64, 64, true, false},
};

/* A row of a step: n tokens from position start on. */
struct row {
	uint32_t start, n;
};
static const struct row all_rows[] = {{0, 70}, {64, 131}, {128, 1}, {0, 1},
				      {62, 1}, {63, 1},	  {64, 1},  {200, 1}};
static const struct row small_rows[] = {{63, 2}, {0, 1}};
/* Rows that generate: around the ends of pages and of splits. */
static const struct row decode_rows[] = {{0, 1},   {63, 1},  {64, 1},  {127, 1},
					 {128, 1}, {129, 1}, {255, 1}, {600, 1}};
static const struct row small_decode_rows[] = {{3, 1}, {130, 1}};

/* A step table and the pages behind it. Page p of a row holds positions p * PAGE and on. */
struct setup {
	struct kernels *k;
	const struct kernel_shape *s;
	const struct row *rows;
	uint32_t n_rows, n_tokens, n_pages, n_tiles;
	uint32_t first[ROWS_MAX]; /* a row's first token in the step */
	int32_t *table;
	uint32_t rows_at, token_rows_at, tiles_at, ints;
	uint32_t
		query_ld; /* columns of a query head in the projection: the query and, where there is one, its gate */
	float *rope, *inv_freq; /* [T, ropes, ROT], [ROT / 2] */
	bool sliding;		/* the layer has a sliding window */
};

static int32_t *row_of(const struct setup *u, uint32_t r)
{
	return u->table + u->rows_at + r * ROW_INTS;
}

/* Returns the first position that a query at `position` sees. */
static uint32_t first_seen(const struct setup *u, uint32_t position)
{
	return u->sliding && position >= u->s->window ? position - u->s->window + 1 : 0;
}

static uint32_t page_of(const struct setup *u, uint32_t r, uint32_t position)
{
	return (uint32_t)
		u->table[(uint32_t)row_of(u, r)[ROW_PAGES_AT] + position / u->s->page_tokens];
}

/* Lays out the rows, their pages in random order among spare ones, and tiles of at most tile_tokens. */
static struct setup make_setup(struct kernels *k, bool sliding, const struct row *rows,
			       uint32_t n_rows, uint32_t tile_tokens)
{
	struct setup u = {
		.k = k, .s = kernels_shape(k), .rows = rows, .n_rows = n_rows, .sliding = sliding};
	uint32_t P = u.s->page_tokens, at, pages = 0, *order;

	for (uint32_t r = 0; r < n_rows; r++) {
		u.first[r] = u.n_tokens;
		u.n_tokens += rows[r].n;
		u.n_pages += CEIL_DIV(rows[r].start + rows[r].n, P);
		u.n_tiles += CEIL_DIV(rows[r].n, tile_tokens);
	}
	order = case_alloc(u.n_pages + SPARE_PAGES, sizeof(*order));
	random_permutation(order, u.n_pages + SPARE_PAGES);
	u.query_ld = (u.s->attention_gate ? 2 : 1) * u.s->head_dim;
	u.token_rows_at = 5; /* nothing is at 0 */
	u.rows_at = u.token_rows_at + u.n_tokens;
	u.tiles_at = u.rows_at + n_rows * ROW_INTS + u.n_pages;
	u.ints = u.tiles_at + u.n_tiles * QUERY_TILE_INTS;
	u.table = CASE_INTS(u.ints);
	memset(u.table, 0xff, u.ints * sizeof(*u.table));
	at = u.tiles_at;
	for (uint32_t r = 0; r < n_rows; r++) {
		uint32_t pages_at = u.rows_at + n_rows * ROW_INTS + pages;
		const int32_t row[ROW_INTS] = {
			[ROW_TOKEN] = (int32_t)u.first[r],
			[ROW_COUNT] = (int32_t)rows[r].n,
			[ROW_START] = (int32_t)rows[r].start,
			[ROW_STATE_SRC] = -1,
			[ROW_STATE_DST] = -1,
			[ROW_PAGES_AT] = (int32_t)pages_at,
		};

		memcpy(row_of(&u, r), row, sizeof(row));
		for (uint32_t p = 0; p < CEIL_DIV(rows[r].start + rows[r].n, P); p++)
			u.table[pages_at + p] = (int32_t)order[pages++];
		for (uint32_t t = 0; t < rows[r].n; t++)
			u.table[u.token_rows_at + u.first[r] + t] = (int32_t)r;
		for (uint32_t t = 0; t < rows[r].n; t += tile_tokens, at += QUERY_TILE_INTS) {
			u.table[at + QUERY_TILE_ROW] = (int32_t)r;
			u.table[at + QUERY_TILE_TOKEN] = (int32_t)(u.first[r] + t);
			u.table[at + QUERY_TILE_COUNT] = (int32_t)MIN(tile_tokens, rows[r].n - t);
		}
	}
	u.n_pages += SPARE_PAGES;
	return u;
}

static uint64_t page_elements(const struct setup *u)
{
	return (uint64_t)u->s->kv_heads * u->s->head_dim * u->s->page_tokens;
}

static uint64_t key_at(const struct setup *u, uint32_t page, uint32_t g, uint32_t slot, uint32_t d)
{
	return page * page_elements(u) + (g * u->s->head_dim + d) * u->s->page_tokens + slot;
}

static uint64_t value_at(const struct setup *u, uint32_t page, uint32_t g, uint32_t slot,
			 uint32_t d)
{
	return page * page_elements(u) + (g * u->s->page_tokens + slot) * u->s->head_dim + d;
}

/* ---- pages of int8 (kernels/generic/int8.clh) ---- */

/* Returns where number d of a row lies in pages of int8, as offset in bytes. Slots and KV heads of all pages are counted
 * through: row = (page * kv_heads + g) * page_tokens + slot. */
static uint64_t code_at(const struct setup *u, bool keys, uint64_t row, uint32_t d)
{
	uint32_t P = u->s->page_tokens, hd = u->s->head_dim;
	uint64_t slot = row % P, head = row / P * (hd + 4) * P;

	return head + (keys ? d * P + slot : slot * hd + d);
}

static uint64_t scale_at(const struct setup *u, uint64_t row)
{
	uint32_t P = u->s->page_tokens, hd = u->s->head_dim;

	return row / P * (hd + 4) * P + (uint64_t)hd * P + row % P * 4;
}

static uint64_t all_rows_of(const struct setup *u)
{
	return (uint64_t)u->n_pages * u->s->kv_heads * u->s->page_tokens;
}

/* Returns where number d of a row lies among the floats of all pages. */
static uint64_t float_at(const struct setup *u, bool keys, uint64_t row, uint32_t d)
{
	uint32_t P = u->s->page_tokens, hd = u->s->head_dim;

	return row / P * hd * P + (keys ? d * P + row % P : row % P * hd + d);
}

/* Returns a buffer of pages, those of keys or of values. Rounds v to the numbers that the pages have. */
static cl_mem put_pages(const struct way *w, const struct setup *u, bool keys, float *v)
{
	uint32_t hd = u->s->head_dim;
	uint64_t bytes = all_rows_of(u) * (hd + 4);
	char *out;

	if (!u->s->kv_int8)
		return buffer_elements(w, v, u->n_pages * page_elements(u));
	out = case_alloc(bytes, 1);
	for (uint64_t row = 0; row < all_rows_of(u); row++) {
		float most = 0, scale;

		for (uint32_t d = 0; d < hd; d++)
			most = fmaxf(most, fabsf(v[float_at(u, keys, row, d)]));
		/* numbers of a row are NaN all together */
		scale = isnan(v[float_at(u, keys, row, 0)]) ? NAN : most / 127;
		memcpy(out + scale_at(u, row), &scale, sizeof(scale));
		for (uint32_t d = 0; d < hd; d++) {
			float *x = &v[float_at(u, keys, row, d)];
			char code = most > 0 ? (char)lrintf(*x * (127 / most)) : 0;

			out[code_at(u, keys, row, d)] = code;
			*x = (float)code * scale;
		}
	}
	return buffer_ints((const int32_t *)out, bytes / 4);
}

static cl_mem new_pages(const struct way *w, const struct setup *u)
{
	return u->s->kv_int8 ? buffer_out(all_rows_of(u) * (u->s->head_dim + 4))
			     : buffer_out_elements(w, u->n_pages * page_elements(u));
}

/* Returns the numbers of pages. A number is poison if it was never written; all numbers of a row of int8 are, if all of
 * its bytes are. */
static float *get_pages(const struct way *w, const struct setup *u, bool keys, cl_mem mem)
{
	uint32_t hd = u->s->head_dim;
	uint64_t n = u->n_pages * page_elements(u);
	const char *bytes;
	float *v;

	if (!u->s->kv_int8)
		return read_elements(w, mem, n);
	bytes = (const char *)read_ints(mem, all_rows_of(u) * (hd + 4) / 4);
	v = CASE_FLOATS(n);
	for (uint64_t row = 0; row < all_rows_of(u); row++) {
		const char *word = bytes + scale_at(u, row);
		float scale;
		bool untouched;

		memcpy(&scale, word, sizeof(scale));
		untouched = is_poison(scale);
		for (uint32_t d = 0; d < hd; d++) {
			uint64_t at = code_at(u, keys, row, d);

			untouched = untouched && bytes[at] == word[at % 4];
		}
		for (uint32_t d = 0; d < hd; d++)
			v[float_at(u, keys, row, d)] =
				untouched	   ? scale
				: is_poison(scale) ? INFINITY /* codes without a scale */
						   : (float)bytes[code_at(u, keys, row, d)] * scale;
	}
	return v;
}

/* Checks a row of int8 against the numbers that it stands for: no number is off by more than half a step, and the
 * largest magnitude has the code 127. If a number is not finite, all are NaN. */
static void near_int8(const float *got, const double *want, uint32_t n)
{
	double most = 0, largest = 0;
	bool finite = true;

	for (uint32_t d = 0; d < n; d++) {
		finite &= isfinite(want[d]);
		most = fmax(most, fabs(want[d]));
		largest = fmax(largest, fabs((double)got[d]));
	}
	for (uint32_t d = 0; d < n; d++)
		check(finite ? fabs((double)got[d] - want[d]) <= most / 127 * 0.5001
			     : isnan(got[d]));
	check(!finite || fabs(largest - most) <= most * 1e-6);
}

static void compare_row(const struct way *w, const struct setup *u, const float *got,
			const double *want, double bound)
{
	if (u->s->kv_int8)
		near_int8(got, want, u->s->head_dim);
	else
		near_elements(w, got, want, u->s->head_dim, bound);
}

/* ---- attention_prepare ---- */

static void normed_and_turned(const struct setup *u, const float *x, const float *bias,
			      const float *w, uint32_t position, double *out)
{
	if (u->s->qk_norm)
		reference_rms_norm(x, w, u->s->head_dim, (double)u->s->eps, out);
	for (uint32_t d = 0; d < u->s->head_dim && u->s->qkv_bias; d++)
		out[d] = (double)x[d] + (double)bias[d];
	reference_rope(out, position, u->inv_freq, u->s->rotary_dim);
}

static void prepare(const struct way *w, struct kernels *k, bool sliding, const struct row *rows,
		    uint32_t n_rows, unsigned number)
{
	struct setup u = make_setup(k, sliding, rows, n_rows, kernels_tile_tokens(k, 1));
	const struct kernel_shape *s = u.s;
	uint32_t H = s->heads, G = s->kv_heads, hd = s->head_dim, ld = kernels_attention_ld(s);
	uint32_t T = u.n_tokens, rot = s->rotary_dim, ropes = MAX(s->ropes, 1u);
	uint64_t n = u.n_pages * page_elements(&u), written = 0;
	float *proj = case_matrix(T, ld, ld, -3, 3), *q, *keys, *values;
	float *wq = case_matrix(1, hd, hd, 0, 2), *wk = case_matrix(1, hd, hd, 0, 2);
	float *bias = case_matrix(1, ld, ld, -1, 1);
	float *rope = case_matrix(T * ropes, rot, rot, -1,
				  1); /* one table of each token is another layer's */
	double *want = CASE_DOUBLES(hd), *angles = CASE_DOUBLES(rot), *row_v = CASE_DOUBLES(hd);
	float *row_k = CASE_FLOATS(hd);
	cl_mem S = buffer_ints(u.table, u.ints), P;
	cl_mem Q = buffer_out((uint64_t)T * H * hd * 4), K = new_pages(w, &u);
	cl_mem V = new_pages(w, &u), Q1 = buffer_out((uint64_t)H * hd * 4), WQ, WK, A, A1, P1,
	       B = buffer_floats(bias, ld);
	uint32_t alone = u.first[n_rows - 1]; /* the last row has one token */

	/* values that are all zero, and one that is not finite */
	for (uint32_t d = 0; d < hd && s->kv_int8; d++)
		proj[H * u.query_ld + G * hd + d] =
			s->qkv_bias ? -bias[H * u.query_ld + G * hd + d] : 0;
	if (s->kv_int8)
		proj[ld + H * u.query_ld + G * hd + hd / 2] = INFINITY;
	P = buffer_floats(proj, (uint64_t)T * ld);
	u.inv_freq = CASE_FLOATS(rot / 2);
	for (uint32_t j = 0; j < rot / 2; j++)
		u.inv_freq[j] = 1 / powf(sliding ? 500 : 10000, (float)(2 * j) / (float)rot);
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t i = 0; i < rows[r].n; i++) {
			reference_rope_angles(rows[r].start + i, u.inv_freq, rot, angles);
			for (uint32_t j = 0; j < rot; j++)
				rope[((u.first[r] + i) * ropes + sliding) * rot + j] =
					(float)angles[j];
		}
	WQ = buffer_floats(wq, hd);
	WK = buffer_floats(wk, hd);
	A = buffer_floats(rope, (uint64_t)T * ropes * rot);
	kernel_attention_prepare(k, S, (cl_int)u.rows_at, (cl_int)u.token_rows_at, P, B, WQ, WK, A,
				 Q, K, V, sliding, T);
	P1 = buffer_floats(proj + (size_t)alone * ld, ld);
	A1 = buffer_floats(rope + alone * ropes * rot, ropes * rot);
	set_finish(k);

	q = read_floats(Q, (uint64_t)T * H * hd);
	keys = get_pages(w, &u, true, K);
	values = get_pages(w, &u, false, V);
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t i = 0; i < rows[r].n; i++) {
			uint32_t t = u.first[r] + i, position = rows[r].start + i;
			uint32_t page = page_of(&u, r, position), slot = position % s->page_tokens;
			const float *in = proj + (size_t)t * ld;

			for (uint32_t head = 0; head < H; head++) {
				normed_and_turned(&u, in + head * u.query_ld,
						  bias + head * u.query_ld, wq, position, want);
				near(q + ((size_t)t * H + head) * hd, want, hd, BOUND);
			}
			for (uint32_t g = 0; g < G; g++) {
				uint32_t key = H * u.query_ld + g * hd, value = key + G * hd;

				normed_and_turned(&u, in + key, bias + key, wk, position, want);
				for (uint32_t d = 0; d < hd; d++) {
					row_k[d] = keys[key_at(&u, page, g, slot, d)];
					row_v[d] = in[value + d];
					if (s->qkv_bias)
						row_v[d] = in[value + d] + bias[value + d];
				}
				compare_row(w, &u, row_k, want, BOUND);
				compare_row(w, &u, values + value_at(&u, page, g, slot, 0), row_v,
					    0);
			}
			written += (uint64_t)G * hd;
		}
	for (uint64_t i = 0; i < n && !harness_small(); i++)
		written -= (uint64_t)!is_poison(keys[i]);
	check(harness_small() || written == 0); /* nothing else was written */

	/* The last row in a step of its own. */
	u.table[u.token_rows_at] = (int32_t)(n_rows - 1);
	row_of(&u, n_rows - 1)[ROW_TOKEN] = 0;
	buffer_write(S, u.table, u.ints * sizeof(*u.table));
	kernel_attention_prepare(k, S, (cl_int)u.rows_at, (cl_int)u.token_rows_at, P1, B, WQ, WK,
				 A1, Q1, K, V, sliding, 1);
	set_finish(k);
	check(same_bits(read_floats(Q1, H * hd), q + (size_t)alone * H * hd, H * hd));
	check(same_bits(get_pages(w, &u, true, K), keys, n));
	check(same_bits(get_pages(w, &u, false, V), values, n));
	same_as_generic(w, "prepare", number, q, (size_t)T * H * hd * 4);
	case_end();
}

/* ---- attention ---- */

/* Fills the pages: random keys and values at every position that a row's tokens may see, and before it in the same page.
 * Elsewhere NaN: nothing else is read, not even pages that lie before the window of all of the row's tokens. */
static void fill_pages(const struct setup *u, float *keys, float *values)
{
	uint64_t n = u->n_pages * page_elements(u);

	for (uint64_t i = 0; i < n; i++)
		keys[i] = values[i] = NAN;
	for (uint32_t r = 0; r < u->n_rows; r++)
		for (uint32_t p = first_seen(u, u->rows[r].start) / u->s->page_tokens *
				  u->s->page_tokens;
		     p < u->rows[r].start + u->rows[r].n; p++)
			for (uint32_t g = 0; g < u->s->kv_heads; g++)
				for (uint32_t d = 0; d < u->s->head_dim; d++) {
					uint32_t page = page_of(u, r, p),
						 slot = p % u->s->page_tokens;

					keys[key_at(u, page, g, slot, d)] = random_uniform(-2, 2);
					values[value_at(u, page, g, slot, d)] =
						random_uniform(-1, 1);
				}
}

/* Begins to note launches (kernels/profile.h). */
static void note(const struct setup *u)
{
	struct err e = {0};

	check(kernels_profile(u->k, true, &e) == 0);
}

/* Checks the launches that were noted, and ends the noting: a launch of each of two kernels (second NULL: of one), in a
 * layer with or without a window. Each has these rows of the step; n_rows 0: all. */
static void check_noted(const struct setup *u, const char *first, const char *second,
			uint32_t first_row, uint32_t n_rows)
{
	const struct kernel_timing *t = NULL;
	struct err e = {0};
	size_t n = 0;

	check(kernels_profile_take(u->k, &t, &n, &e) == 0 && n == (second ? 2 : 1));
	for (size_t i = 0; i < n; i++) {
		const char *kernel = i ? second : first;

		check(kernel && !strcmp(t[i].kernel, kernel) && t[i].sliding == u->sliding);
		check(t[i].first_row == first_row && t[i].n_rows == n_rows);
	}
	check(kernels_profile(u->k, false, &e) == 0);
}

/* Computes how far each of the outputs `want` [hd] of a query over n keys may be off if the softmax weights p are rounded
 * to bf16, and their sum is not. Each weight is off by a part e of itself, at most WEIGHT_BOUND either way, so output d
 * is off by the sum of e p v_d: at most WEIGHT_BOUND times the sum of |p v_d|. The parts e are as good as random, and
 * their standard deviation is at most WEIGHT_BOUND / sqrt(3). So with many keys the limit is seven standard deviations of
 * the sum, where a key too few or too many still shows. In both the sums over v_d do not cancel, as that of the output
 * may do: a limit that followed from the outputs would be passed now and then. */
static void flash_limits(const float *query, const float *gate, const float *k, const float *v,
			 uint32_t n, uint32_t hd, const double *want, double *limits)
{
	double *p = CASE_DOUBLES(n), most = -INFINITY, total = 0, largest = 0;

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t d = 0; d < hd; d++)
			p[i] += (double)query[d] * (double)k[i * hd + d];
		p[i] /= sqrt(hd);
		most = fmax(most, p[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		total += p[i] = exp(p[i] - most);
	for (uint32_t d = 0; d < hd; d++)
		largest = fmax(largest, fabs(want[d]));
	for (uint32_t d = 0; d < hd; d++) {
		double sum = 0, squares = 0, open = gate ? reference_sigmoid((double)gate[d]) : 1;

		for (uint32_t i = 0; i < n; i++) {
			double x = p[i] / total * (double)v[i * hd + d];

			sum += fabs(x);
			squares += x * x;
		}
		limits[d] = WEIGHT_BOUND * fmin(sum, 7 / sqrt(3) * sqrt(squares)) * open +
			    4 * ATTENTION_BOUND * largest;
	}
}

/* flash: as attention_flash.cl computes it; then `bound` does not count. */
static void compare_token(const struct way *w, const struct setup *u, const float *q,
			  const float *proj, const float *keys, const float *values, uint32_t r,
			  uint32_t position, const float *got, bool flash, double bound)
{
	const struct kernel_shape *s = u->s;
	uint32_t hd = s->head_dim, repeat = s->heads / s->kv_heads;
	uint32_t from = first_seen(u, position), n = position + 1 - from;
	float *k = CASE_FLOATS((size_t)n * hd), *v = CASE_FLOATS((size_t)n * hd);
	float *query = CASE_FLOATS(hd);
	double *want = CASE_DOUBLES(hd), *limits = CASE_DOUBLES(hd);
	/* The reference multiplies scores by hd^-1/2. */
	const double scale = s->score_dim ? sqrt((double)hd / s->score_dim) : 1;

	for (uint32_t g = 0; g < s->kv_heads; g++) {
		for (uint32_t p = 0; p < n; p++)
			for (uint32_t d = 0; d < hd; d++) {
				uint32_t page = page_of(u, r, from + p);
				uint32_t slot = (from + p) % s->page_tokens;

				k[p * hd + d] = keys[key_at(u, page, g, slot, d)];
				v[p * hd + d] = values[value_at(u, page, g, slot, d)];
			}
		for (uint32_t head = g * repeat; head < (g + 1) * repeat; head++) {
			const float *gate =
				s->attention_gate ? proj + head * u->query_ld + hd : NULL;

			for (uint32_t d = 0; d < hd; d++)
				query[d] = (float)(q[head * hd + d] * scale);
			reference_attention(query, gate, k, v, n, hd, want);
			if (flash) {
				flash_limits(query, gate, k, v, n, hd, want, limits);
				near_bf16(got + head * hd, want, limits, hd);
			} else {
				near_elements(w, got + head * hd, want, hd, bound);
			}
		}
	}
}

static void attention(const struct way *w, struct kernels *k, bool sliding, const struct row *rows,
		      uint32_t n_rows, unsigned number)
{
	struct setup u = make_setup(k, sliding, rows, n_rows, kernels_tile_tokens(k, 1)), one;
	const struct kernel_shape *s = u.s;
	uint32_t T = u.n_tokens, ld = kernels_attention_ld(s), width = s->heads * s->head_dim;
	uint64_t n = u.n_pages * page_elements(&u);
	/* the shapes of attention_flash.cl */
	bool flash = w->variant == KERNELS_NVIDIA && w->bf16 && !s->kv_int8 &&
		     s->head_dim % 16 == 0 && s->page_tokens % 32 == 0;
	float *proj = case_matrix(T, ld, ld, -3, 3), *q = case_matrix(T, width, width, -2, 2);
	float *keys = CASE_FLOATS(n), *values = CASE_FLOATS(n), *out;
	cl_mem S = buffer_ints(u.table, u.ints), P = buffer_floats(proj, (uint64_t)T * ld);
	cl_mem Q = buffer_floats(q, (uint64_t)T * width), K, V, out1;
	cl_mem O = buffer_out_elements(w, (uint64_t)T * width);

	fill_pages(&u, keys, values);
	K = put_pages(w, &u, true, keys);
	V = put_pages(w, &u, false, values);
	note(&u);
	kernel_attention(k, S, (cl_int)u.rows_at, (cl_int)u.tiles_at, P, Q, K, V, O, sliding,
			 u.n_tiles, 1);
	set_finish(k);
	check_noted(&u, "attention", NULL, 0, 0);
	check(kernels_tensor(k).attention == flash);
	out = read_elements(w, O, (uint64_t)T * width);
	for (uint64_t i = 0; flash && i < (uint64_t)T * width; i++)
		q[i] = bf16_rounded(q[i]);
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t i = 0; i<rows[r].n; i += rows[r].n> 8 ? 5 : 1) {
			size_t t = u.first[r] + i;

			compare_token(w, &u, q + t * width, proj + t * ld, keys, values, r,
				      rows[r].start + i, out + t * width, flash, ATTENTION_BOUND);
		}
	same_as_generic(w, "attention", number, out, (size_t)T * width * 4);

	/* The first row alone, in tiles of one token: the bits do not depend on the tile. */
	one = u;
	one.n_tiles = rows[0].n;
	one.table = CASE_INTS(u.ints + one.n_tiles * QUERY_TILE_INTS);
	memcpy(one.table, u.table, u.ints * sizeof(*u.table));
	for (uint32_t t = 0; t < rows[0].n; t++) {
		const int32_t tile[QUERY_TILE_INTS] = {
			[QUERY_TILE_TOKEN] = (int32_t)t, [QUERY_TILE_COUNT] = 1};

		memcpy(one.table + u.ints + QUERY_TILE_INTS * t, tile, sizeof(tile));
	}
	out1 = buffer_out_elements(w, (uint64_t)rows[0].n * width);
	kernel_attention(k, buffer_ints(one.table, u.ints + one.n_tiles * QUERY_TILE_INTS),
			 (cl_int)u.rows_at, (cl_int)u.ints, P, Q, K, V, out1, sliding, one.n_tiles,
			 1);
	set_finish(k);
	check(same_bits(read_elements(w, out1, (uint64_t)rows[0].n * width), out,
			rows[0].n * width));
	case_end();
}

/* ---- attention of rows that generate ---- */

/* Runs the rows from first_row on as one batch, with their splits behind a copy of the table. Returns all outputs. */
static float *decode_batch(const struct way *w, struct setup u, uint32_t first_row, cl_mem P,
			   cl_mem Q, cl_mem K, cl_mem V)
{
	const struct kernel_shape *s = u.s;
	uint64_t width = (uint64_t)s->heads * s->head_dim;
	uint64_t floats = (uint64_t)kernels_split_slots(u.k) * s->heads;
	uint32_t n = 0, most = 0;
	cl_mem S, O = buffer_out_elements(w, u.n_tokens * width);
	int32_t *split;

	for (uint32_t r = first_row; r < u.n_rows; r++)
		most += u.rows[r].start / SPLIT_TOKENS + 1;
	split = CASE_INTS(u.ints + (size_t)most * SPLIT_INTS);
	memcpy(split, u.table, u.ints * sizeof(*split));
	u.table = split;
	split += u.ints;
	for (uint32_t r = first_row; r < u.n_rows; r++) {
		row_of(&u, r)[ROW_SPLITS_AT] = (int32_t)n;
		for (uint32_t i = 0; i <= u.rows[r].start / SPLIT_TOKENS; i++, n++) {
			split[n * SPLIT_INTS + SPLIT_ROW] = (int32_t)r;
			split[n * SPLIT_INTS + SPLIT_NUMBER] = (int32_t)i;
		}
	}
	S = buffer_ints(u.table, u.ints + n * SPLIT_INTS);
	note(&u);
	kernel_attention_decode(u.k, S, (cl_int)u.rows_at, (cl_int)u.ints, n, first_row,
				u.n_rows - first_row, P, Q, K, V,
				buffer_out(floats * s->head_dim * 4), buffer_out(floats * 2 * 4), O,
				u.sliding);
	set_finish(u.k);
	check_noted(&u, "attention_split", "attention_combine", first_row, u.n_rows - first_row);
	return read_elements(w, O, u.n_tokens * width);
}

static void decode(const struct way *w, struct kernels *k, bool sliding)
{
	const struct row *rows = harness_small() ? small_decode_rows : decode_rows;
	uint32_t n_rows = harness_small() ? ARRAY_SIZE(small_decode_rows) : ARRAY_SIZE(decode_rows);
	struct setup u = make_setup(k, sliding, rows, n_rows, 1);
	const struct kernel_shape *s = u.s;
	uint32_t T = u.n_tokens, ld = kernels_attention_ld(s), width = s->heads * s->head_dim;
	uint64_t n = u.n_pages * page_elements(&u);
	float *proj = case_matrix(T, ld, ld, -3, 3), *q = case_matrix(T, width, width, -2, 2);
	float *keys = CASE_FLOATS(n), *values = CASE_FLOATS(n), *out, *last;
	/* the shapes of nvidia/attention_decode.cl */
	bool tensor = w->variant == KERNELS_NVIDIA && w->bf16 && !s->kv_int8 &&
		      s->head_dim % 64 == 0 && s->head_dim <= 256 && s->heads / s->kv_heads <= 8;
	cl_mem P = buffer_floats(proj, (uint64_t)T * ld), Q = buffer_floats(q, (uint64_t)T * width);
	cl_mem K, V;

	fill_pages(&u, keys, values);
	K = put_pages(w, &u, true, keys);
	V = put_pages(w, &u, false, values);
	check(kernels_tensor(k).splits == tensor);
	out = decode_batch(w, u, 0, P, Q, K, V);
	for (uint32_t r = 0; r < n_rows; r++)
		compare_token(w, &u, q + (size_t)r * width, proj + (size_t)r * ld, keys, values, r,
			      rows[r].start, out + (size_t)r * width, false,
			      tensor ? SPLIT_BOUND : ATTENTION_BOUND);
	last = decode_batch(w, u, n_rows - 1, P, Q, K, V) + (size_t)(n_rows - 1) * width;
	check(same_bits(last, out + (size_t)(n_rows - 1) * width, width));
	case_end();
}

static void test(const struct way *w)
{
	const struct row *rows = harness_small() ? small_rows : all_rows;
	uint32_t n_rows = harness_small() ? ARRAY_SIZE(small_rows) : ARRAY_SIZE(all_rows);

	for (unsigned i = 0; i < ARRAY_SIZE(all_heads); i++) {
		const struct heads *h = &all_heads[i];
		struct kernel_shape shape = common_shape();
		struct kernels *k;

		if (harness_small() && !h->small)
			continue;
		if (i >= ARRAY_SIZE(all_heads) - TENSOR_HEADS && w->variant != KERNELS_NVIDIA)
			continue;
		/* A compiler takes most of the time. What is left out here runs in floats, and in bf16 at the CPU's width. */
		if (harness_emulates(w) && w->bf16 && !h->int8 && i % 2)
			continue;
		shape.n_mlps = 0;
		shape.heads = h->heads;
		shape.kv_heads = h->kv_heads;
		shape.head_dim = h->head_dim;
		shape.rotary_dim = h->rotary_dim;
		shape.page_tokens = h->page_tokens;
		shape.attention_gate = h->gate;
		shape.qk_norm = !h->biased;
		shape.qkv_bias = h->biased;
		shape.window = h->window;
		shape.kv_int8 = h->int8;
		shape.ropes = h->window ? 2 : 1;
		shape.score_dim = h->window ? h->head_dim * 3 / 2 : 0;
		shape.max_context = 1024;
		k = set_open(w, shape);
		if (!k)
			return;
		for (unsigned sliding = 0; sliding <= (h->window > 0); sliding++) {
			random_seed(i + sliding * 100);
			prepare(w, k, sliding, rows, n_rows, i + sliding * 100);
			attention(w, k, sliding, rows, n_rows, i + sliding * 100);
			if (kernels_split_slots(k))
				decode(w, k, sliding);
		}
		ok_way(w, "%u heads for %u, of %u, %u of them turned, pages of %u%s%s%s%s",
		       h->heads, h->kv_heads, h->head_dim, h->rotary_dim, h->page_tokens,
		       h->gate ? "" : ", no gate", h->biased ? ", biases and no norms" : "",
		       h->window ? ", with a window and without" : "", h->int8 ? ", in int8" : "");
		kernels_close(k);
	}
}

const struct kernel_test kernel_test = {
	.programs = "attention.cl attention_decode.cl attention_flash.cl attention_wide.cl",
	.way = test};
