#include "daemon/cli/tune/measure.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/cli/bench/load.h"
#include "daemon/cli/samples.h"
#include "engine/profile.h"

enum {
	PAGE = 64,
	STREAMS = 64,  /* most streams of a decode step */
	CONTEXT = 192, /* tokens of each stream before the measured token */
	SAMPLES = 20,  /* pairs (struct series) that a place needs for a result */
	SAMPLES_MAX = 1024,
	ROUNDS_MAX = 20, /* most pairs of steps of one kind */
	SERIES_MAX = 256,
	FORCED_ROWS = 3 * (TUNING_FAMILIES - 1),
};

/* The pairs that were measured at one place: pairs of launches, or of decode steps that are one launch. */
struct series {
	struct tuning_place place;
	/* default_us: the time with the default cut. ratio: the time with the measured cut, divided by default_us */
	double default_us[SAMPLES_MAX], ratio[SAMPLES_MAX];
	uint32_t n;
};

struct measuring {
	struct tune_options *options;
	struct tuning_cut cut;
	struct engine *engine;
	struct load *load;
	struct peaks *peaks; /* NULL: they are not measured */
	struct peak best, known;
	struct series *series; /* [SERIES_MAX] */
	uint32_t n_series;
	struct kernel_timing *first; /* owned: launches of the first step of a pair */
	size_t first_cap;
	uint64_t until; /* no pair of steps begins later */
	uint64_t seed;	/* of the tokens */
	bool differs;	/* some bit differed */
};

static bool is_default(const struct measuring *m)
{
	static const struct tuning_cut nothing;

	return tuning_equal(&m->cut, &nothing);
}

static int look_at_peaks(struct measuring *m, struct err *e)
{
	struct peak now;
	int r = m->peaks ? peaks_measure(m->peaks, &now, e) : 0;

	if (r == 0 && m->peaks)
		m->best = peak_best(m->best, now);
	return r;
}

/* Returns whether the measured cut changes the launches at a place of a tuning table (tuning.h). If the default cut
 * itself is measured, returns whether the launches there have cuts at all. Makes launches use the measured cut from now
 * on, because kernels_tuned looks at the cuts that are in use. */
static bool concerned(struct measuring *m, const struct tuning_place *p)
{
	kernels_use_default_cuts(engine_kernels(m->engine), false);
	return p->family != TUNING_NONE &&
	       (is_default(m) || kernels_tuned(engine_kernels(m->engine), p));
}

static int add_sample(struct measuring *m, const struct tuning_place *p, double default_us,
		      double us, struct err *e)
{
	struct series *s = m->series;

	while (s < m->series + m->n_series && (s->place.family != p->family || s->place.n != p->n ||
					       s->place.k != p->k || s->place.m != p->m))
		s++;
	if (s == m->series + m->n_series) {
		if (m->n_series == SERIES_MAX)
			return err_set(e, E2BIG, "more than %d places", SERIES_MAX);
		m->n_series++;
		s->place = *p;
		s->n = 0;
	}
	if (s->n < SAMPLES_MAX && default_us > 0) {
		s->default_us[s->n] = default_us;
		s->ratio[s->n++] = us / default_us;
	}
	return 0;
}

/* ---- steps ---- */

/* decode: runs `steps` steps of M streams, which begin behind `context` tokens; a step has one token of every stream.
 * Otherwise runs a prompt of M tokens. *ret_us: the time of the whole run in microseconds, by the host's clock. */
static int step(struct measuring *m, bool decode, uint32_t M, uint32_t context, uint32_t steps,
		double *ret_us, struct err *e)
{
	struct load_result result = {0};
	int r = decode ? load_decode(m->load, M, context, steps, 0, &result, e)
		       : load_prefill(m->load, M, 0, &result, e);

	*ret_us = result.seconds * 1e6;
	return r;
}

/* Computes the same tokens from nothing with both cuts, and notes in m->differs whether the results differ. */
static int compare_bits(struct measuring *m, bool decode, uint32_t M, struct err *e)
{
	struct hash128 h[2] = {HASH128_INIT, HASH128_INIT};
	double us;
	int r = 0;

	m->seed++;
	for (int tuned = 0; r == 0 && tuned < 2; tuned++) {
		kernels_use_default_cuts(engine_kernels(m->engine), !tuned);
		load_seed(m->load, m->seed, true);
		/* With `decode` there are two steps: the second reads the pages and states that the first has
		 * written. */
		r = step(m, decode, M, 0, 2, &us, e);
		if (r == 0)
			r = load_digest(m->load, decode ? M : 1, &h[tuned], e);
	}
	load_seed(m->load, m->seed, false);
	m->differs |= h[0].value != h[1].value;
	return r;
}

static int keep_first(struct measuring *m, const struct kernel_timing *t, size_t n, struct err *e)
{
	if (n > m->first_cap) {
		struct kernel_timing *first = reallocarray(m->first, n, sizeof(*first));

		if (!first)
			return err_no_memory(e);
		m->first = first;
		m->first_cap = n;
	}
	memcpy(m->first, t, n * sizeof(*t));
	return 0;
}

/* Adds a sample of each launch that the cut changes (concerned). Both steps of the pair launched the same kernels in
 * the same order. Launches of attention count only in prompts: in a decode step their tiles have one token, whatever
 * the cut. */
static int add_pairs(struct measuring *m, bool decode, const struct kernel_timing *t, size_t n,
		     bool tuned_first, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		double a = (double)m->first[i].ns / 1e3, b = (double)t[i].ns / 1e3;

		if (concerned(m, &t[i].place) && !(decode && t[i].place.family == TUNING_ATTENTION))
			r = add_sample(m, &t[i].place, tuned_first ? b : a, tuned_first ? a : b, e);
	}
	return r;
}

/* Runs one step with each of the two cuts, and compares the steps launch by launch. */
static int pair_of_launches(struct measuring *m, bool decode, uint32_t M, bool tuned_first,
			    struct err *e)
{
	const struct kernel_timing *t;
	size_t n = 0, n_first = 0;
	double us;
	int r = 0;

	m->seed++;
	for (int second = 0; r == 0 && second < 2; second++) {
		kernels_use_default_cuts(engine_kernels(m->engine), tuned_first == (bool)second);
		load_seed(m->load, m->seed, false);
		r = step(m, decode, M, CONTEXT, 1, &us, e);
		if (r == 0)
			r = kernels_profile_take(engine_kernels(m->engine), &t, &n, e);
		if (r == 0 && !second) {
			n_first = n;
			r = keep_first(m, t, n, e);
		}
	}
	if (r == 0 && n != n_first)
		r = err_set(e, EPROTO, "two equal steps launched different kernels");
	return r < 0 ? r : add_pairs(m, decode, t, n, tuned_first, e);
}

static int pair_of_steps(struct measuring *m, const struct tuning_place *p, uint32_t M,
			 bool tuned_first, struct err *e)
{
	double us[2] = {0};
	int r = 0;

	m->seed++;
	for (int second = 0; r == 0 && second < 2; second++) {
		bool tuned = tuned_first != (bool)second;

		kernels_use_default_cuts(engine_kernels(m->engine), !tuned);
		load_seed(m->load, m->seed, false);
		r = step(m, true, M, CONTEXT, 1, &us[tuned], e);
	}
	return r < 0 ? r : add_sample(m, p, us[0], us[1], e);
}

/* Returns whether every place that was measured so far has enough pairs. */
static bool enough(const struct measuring *m)
{
	for (uint32_t i = 0; i < m->n_series; i++)
		if (m->series[i].n < SAMPLES)
			return false;
	return true;
}

static bool out_of_time(const struct measuring *m)
{
	return clock_now_ns() >= m->until;
}

static int measure_launches(struct measuring *m, bool decode, uint32_t M, struct err *e)
{
	const struct kernel_timing *t;
	size_t n;
	int r = engine_profile(m->engine, true, e);

	if (r == 0)
		r = compare_bits(m, decode, M, e);
	if (r == 0)
		r = kernels_profile_take(engine_kernels(m->engine), &t, &n, e);
	for (uint32_t i = 0; r == 0 && i < ROUNDS_MAX && !out_of_time(m); i++) {
		r = pair_of_launches(m, decode, M, i % 2, e);
		if (r == 0 && enough(m))
			break;
	}
	return engine_profile(m->engine, false, r == 0 ? e : NULL) < 0 && r == 0 ? -ENOMEM : r;
}

static int measure_decode_step(struct measuring *m, uint32_t M, struct err *e)
{
	struct tuning_place p;
	int r;

	if (!engine_decode_place(m->engine, M, &p) || !concerned(m, &p))
		return 0;
	r = compare_bits(m, true, M, e);
	for (uint32_t i = 0; r == 0 && i < SAMPLES && !out_of_time(m); i++)
		r = pair_of_steps(m, &p, M, i % 2, e);
	return r;
}

static int measure_all(struct measuring *m, struct err *e)
{
	int r = 0;

	if (load_longest(m->load, 1) < PAGE)
		return err_set(e, ENOTSUP,
			       "the model has %u positions, and the least that can be measured is "
			       "%d",
			       engine_info(m->engine)->model.max_position_embeddings, PAGE);
	for (size_t i = 0; r == 0 && i < TUNING_M_BUCKETS && !out_of_time(m); i++) {
		uint32_t M = tuning_m_buckets[i];

		if (CONTEXT + 2 <= load_longest(m->load, M)) {
			r = measure_decode_step(m, M, e);
			if (r == 0)
				r = measure_launches(m, true, M, e);
		}
		if (r == 0 && M >= PAGE && M <= m->options->engine.max_prefill_tokens &&
		    M <= load_longest(m->load, 1))
			r = measure_launches(m, false, M, e);
	}
	return r;
}

/* ---- opening and printing ---- */

/* Fills a table that gives the cut to every launch that has cuts, on any device and with any variant of the kernels. */
static void force(const struct tune_options *o, const struct tuning_cut *cut,
		  struct tuning_row rows[FORCED_ROWS])
{
	for (int i = 0; i < FORCED_ROWS; i++) {
		struct tuning_row *row = &rows[i];

		*row = (struct tuning_row){
			.device = {.name = "*",
				   .driver = "*",
				   .bf16 = o->engine.dtype == ENGINE_BFLOAT16},
			.place = {.family = (enum tuning_family)(1 + i / 3)},
			.same_bits = true,
		};
		snprintf(row->device.kernels, sizeof(row->device.kernels), "%s",
			 kernels_variant_name((enum kernel_variant)(i % 3)));
		row->cut = tuning_cut_of(*cut, row->place.family);
	}
}

/* Opens the engine, and all that measures it unless no launch of the model has a cut. */
static int open_all(struct measuring *m, struct err *e)
{
	struct tuning_row rows[FORCED_ROWS];
	struct tuning_table table = {rows, FORCED_ROWS};
	struct engine_options *o = &m->options->engine;
	struct model_config c;
	uint32_t pages;
	int r = tuning_parse_cut(m->options->measure, TUNING_NONE, &m->cut, e);

	if (r == 0)
		r = model_config_open(o->model_dir, &c, e);
	if (r < 0)
		return r;
	o->page_tokens = PAGE;
	o->max_seqs = STREAMS;
	o->max_prefill_tokens = MAX(m->options->largest, (uint32_t)PAGE);
	o->max_model_len = MIN(MAX(o->max_prefill_tokens, (uint32_t)CONTEXT + PAGE),
			       c.max_position_embeddings);
	pages = MAX(CEIL_DIV(o->max_model_len, (uint32_t)PAGE),
		    STREAMS * CEIL_DIV((uint32_t)CONTEXT + 2, (uint32_t)PAGE));
	force(m->options, &m->cut, rows);
	o->tuning.table = &table;
	r = engine_open(o, &m->engine, e);
	o->tuning.table = NULL;
	if (r < 0 || !kernels_has_cuts(engine_kernels(m->engine)))
		return r;
	r = load_open(m->engine, o, pages, &m->load, e);
	if (r == 0 && is_default(m)) {
		r = engine_peaks_open(m->engine, o->program_cache, &m->peaks, e);
		(void)engine_peak_known(m->engine, &m->known);
	}
	if (r < 0)
		return r;
	m->series = calloc(SERIES_MAX, sizeof(*m->series));
	return m->series ? 0 : err_no_memory(e);
}

/* Prints a table without rows, which says why it has none. */
static void print_nothing(const struct measuring *m)
{
	tuning_write_head(stdout);
	printf(MEASURE_NOTHING
	       "the %s kernels have no cuts for this model: its products have none (they run on "
	       "tensor cores, or its weights are quantised), nor has attention, if there is any\n" MEASURE_END
	       "\n",
	       engine_info(m->engine)->kernels);
}

static void print_all(struct measuring *m)
{
	const struct engine_info *info = engine_info(m->engine);
	char what[128];
	struct tuning_row row = {.device = {.units = info->compute_units,
					    .bf16 = m->options->engine.dtype == ENGINE_BFLOAT16},
				 .same_bits = !m->differs};

	snprintf(row.device.name, sizeof(row.device.name), "%s", info->device_name);
	snprintf(row.device.driver, sizeof(row.device.driver), "%s", info->driver);
	snprintf(row.device.kernels, sizeof(row.device.kernels), "%s", info->kernels);
	tuning_write_head(stdout);
	if (profile_is_small(info->weight_bytes, engine_cache_bytes(m->engine)))
		printf("# small: much of the model fits into a cache\n");
	if (m->peaks && peak_below(m->best, m->known, what, sizeof(what)))
		printf("# void: %s\n", what);
	for (uint32_t i = 0; i < m->n_series; i++) {
		struct series *s = &m->series[i];

		if (s->n < SAMPLES)
			continue;
		row.place = s->place;
		row.cut = tuning_cut_of(m->cut, s->place.family);
		row.default_us = median(s->default_us, s->n);
		row.us = row.default_us * median(s->ratio, s->n);
		tuning_write_row(stdout, &row);
	}
	printf(MEASURE_END "\n");
}

static int measure_open(struct measuring *m, struct err *e)
{
	int r = look_at_peaks(m, e);

	m->until = clock_now_ns() + m->options->seconds * 1000000000ull;
	if (r == 0)
		r = measure_all(m, e);
	if (r == 0)
		r = look_at_peaks(m, e);
	if (r == 0)
		print_all(m);
	return r;
}

int tune_measure(struct tune_options *o, struct err *e)
{
	struct measuring m = {.options = o};
	int r;

	/* Linux sends this process SIGTERM when its parent ends. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	r = open_all(&m, e);
	if (r == 0 && !m.load)
		print_nothing(&m);
	else if (r == 0)
		r = measure_open(&m, e);
	peaks_close(m.peaks);
	load_close(m.load);
	engine_close(m.engine);
	free(m.series);
	free(m.first);
	return r;
}
