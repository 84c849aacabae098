/* `tigon bench kernels`: the time of each kernel of a step by the device's own clock, beside the bytes and operations
 * that it needs. A measured step goes over all layers, so that a kernel finds in the device's caches the same data as
 * in service.
 *
 * A kernel has a row for each of its shapes in a kind of step. The time of the row is the sum over the launches of one
 * repeat of the step; the median of the repeats is printed. A long prompt takes several steps, which count as one. Rows
 * are printed after all measurements, because shares refer to the best peaks of the whole run.
 *
 * Of a model whose weights are quantised, the bytes of a weight are the mean of all of its weights. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/cli/bench/setup.h"
#include "daemon/cli/command.h"
#include "daemon/cli/plot.h"
#include "daemon/cli/samples.h"

enum { ROWS_MAX = 64 };

/* The lines of the figure. A kernel belongs to the first line whose `begin` its name begins with. The time of each line
 * grows in its own way with the context. */
static const struct {
	const char *name, *begin;
} parts[] = {
	{"attention", "attention"}, {"Gated DeltaNet", "delta"},
	{"projections", "gemm"},    {"experts", "moe"},
	{"the rest", ""},
};

/* The launches of one kernel at one shape in a kind of step. */
struct row {
	/* the first launch; only kernel, m, n, k, dense and sliding are used */
	struct kernel_timing what;
	double *us; /* [repeat] owned; the sum of the launches of each repeat */
	/* Sums over all repeats. */
	double bytes, flops, experts;
	uint32_t launches;
	bool known;	     /* bytes and flops are known */
	bool elements, int8; /* as in roofline_work (engine/layers/cost.h) */
};

/* A kind of step. */
struct kind {
	uint32_t streams; /* 0: a prompt */
	/* tokens of the prompt; with streams: tokens of each stream before the step */
	uint32_t tokens;
	struct row rows[ROWS_MAX];
	size_t n_rows;
	/* [repeat] owned. wall_us: the time of the step by the host's clock. all_us: the sum of the times of its
	 * launches. */
	double *wall_us, *all_us;
	uint32_t launches;		/* of all repeats */
	struct roofline_row *step_rows; /* owned */
};

static struct row *row_of(struct kind *c, const struct kernel_timing *t, uint32_t repeat)
{
	struct row *row = c->rows;

	for (; row < c->rows + c->n_rows; row++)
		if (!strcmp(row->what.kernel, t->kernel) && row->what.m == t->m &&
		    row->what.n == t->n && row->what.k == t->k && row->what.dense == t->dense &&
		    row->what.sliding == t->sliding)
			return row;
	if (c->n_rows == ROWS_MAX)
		return NULL;
	*row = (struct row){.what = *t, .us = calloc(repeat, sizeof(*row->us)), .known = true};
	if (!row->us)
		return NULL;
	c->n_rows++;
	return row;
}

/* Adds the launches of a finished step to repeat `at` (from 0). Each sequence of the step has `tokens` tokens, from
 * `position` on. */
static int take(const struct bench *b, struct kind *c, uint32_t at, uint32_t position,
		uint32_t tokens, struct err *e)
{
	const struct bench_options *o = b->options;
	const uint32_t n_rows = MAX(c->streams, 1u);
	const struct roofline_step s = {
		.rows = c->step_rows,
		.n_rows = n_rows,
		.n_prefill_rows = !c->streams,
		.n_logits = n_rows,
		.weight = engine_info(b->engine)->quantised_bytes,
		.int8 = engine_info(b->engine)->int8,
		.kv_number = engine_kv_number(&o->engine),
	};
	const struct kernel_timing *t;
	size_t n;
	int r = kernels_profile_take(engine_kernels(b->engine), &t, &n, e);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n_rows; i++)
		c->step_rows[i] = (struct roofline_row){position, tokens};
	for (size_t i = 0; i < n; i++) {
		struct row *row = row_of(c, &t[i], o->repeat);
		struct roofline_work w = {0};

		if (!row)
			return err_no_memory(e);
		row->known &= roofline_kernel(&engine_info(b->engine)->model,
					      o->engine.dtype == ENGINE_BFLOAT16, &s, &t[i], &w);
		row->elements = w.elements;
		row->int8 = w.int8;
		row->us[at] += (double)t[i].ns / 1e3;
		c->all_us[at] += (double)t[i].ns / 1e3;
		row->bytes += w.bytes;
		row->flops += w.flops;
		row->experts += t[i].experts;
		row->launches++;
		c->launches++;
	}
	return 0;
}

static int allocate(const struct bench *b, struct kind *c, struct err *e)
{
	const uint32_t repeat = b->options->repeat;

	c->wall_us = calloc(repeat, sizeof(*c->wall_us));
	c->all_us = calloc(repeat, sizeof(*c->all_us));
	c->step_rows = calloc(MAX(c->streams, 1u), sizeof(*c->step_rows));
	if (!c->wall_us || !c->all_us || !c->step_rows)
		return err_no_memory(e);
	return 0;
}

/* Adds a finished step to a repeat (from 1). Repeat 0 is not counted, because the driver may compile during it. */
static int count(const struct bench *b, struct kind *c, uint32_t repeat, uint32_t position,
		 uint32_t tokens, const struct load_result *result, struct err *e)
{
	const struct kernel_timing *t;
	size_t n;

	if (!repeat)
		return kernels_profile_take(engine_kernels(b->engine), &t, &n, e);
	c->wall_us[repeat - 1] += result->seconds * 1e6;
	return take(b, c, repeat - 1, position, tokens, e);
}

/* Runs a prompt, in as many steps as it needs. */
static int run_prompt(struct bench *b, struct kind *c, uint32_t repeat, struct err *e)
{
	const uint32_t most = load_most(b->load);
	struct load_result result;
	int r = 0;

	for (uint32_t at = 0; r == 0 && at < c->tokens; at += most) {
		uint32_t n = MIN(most, c->tokens - at);

		r = load_window(b->load, at, n, c->tokens, 0, &result, e);
		if (r == 0)
			r = count(b, c, repeat, at, n, &result, e);
	}
	return r;
}

static int run_token(struct bench *b, struct kind *c, uint32_t repeat, struct err *e)
{
	uint32_t position = c->tokens + (repeat ? repeat - 1 : 0);
	struct load_result result;
	int r = load_decode(b->load, c->streams, position, 1, 0, &result, e);

	return r < 0 ? r : count(b, c, repeat, position, 1, &result, e);
}

static int measure(struct bench *b, struct kind *c, struct err *e)
{
	int r = allocate(b, c, e);

	if (r < 0)
		return r;
	if (c->streams)
		bench_progress("decode of %u streams at %u tokens", c->streams, c->tokens);
	else
		bench_progress("prefill of %u tokens", c->tokens);
	for (uint32_t i = 0; r == 0 && i <= b->options->repeat; i++)
		r = c->streams ? run_token(b, c, i, e) : run_prompt(b, c, i, e);
	return r;
}

/* ---- printing ---- */

static void print_numbers(const struct bench *b, const struct row *row, double us)
{
	const double repeat = b->options->repeat;
	double bytes = row->bytes / repeat, flops = row->flops / repeat, s = us * 1e-6;
	double moving = bytes / b->best.read;
	double computing = flops / (row->elements ? b->best.dot
				    : row->int8	  ? b->best.int8
						  : b->best.flops);

	if (!row->known) {
		printf("-\t-\t-\t-\t-\t-\t");
		return;
	}
	printf("%.3f\t%.3f\t%.2f\t%.2f\t%s\t%.1f\t", bytes / 1e6, flops / 1e6, bytes / s / 1e9,
	       flops / s / 1e9, moving >= computing ? "bytes" : "flops",
	       100 * MAX(moving, computing) / s);
}

static void print_kind_columns(const struct kind *c)
{
	printf("%s\t%u\t%u\t", c->streams ? "decode" : "prefill", MAX(c->streams, 1u), c->tokens);
}

static void print_row(const struct bench *b, const struct kind *c, const struct row *row, double us,
		      const char *note)
{
	const struct kernel_timing *t = &row->what;

	print_kind_columns(c);
	printf("%s\t%u", t->kernel, t->m);
	printf(t->k ? "x%ux%u" : "x%u", t->n, t->k);
	printf("\t%u\t%.1f\t", row->launches / b->options->repeat, us);
	print_numbers(b, row, us);
	if (row->experts > 0)
		printf("%.1f", row->experts / row->launches);
	else
		printf("-");
	printf("\t%s\n", note);
}

static void print_sum(const struct bench *b, const struct kind *c, const char *what, double us,
		      const char *note)
{
	print_kind_columns(c);
	printf("%s\t-\t%u\t%.1f\t-\t-\t-\t-\t-\t-\t-\t%s\n", what, c->launches / b->options->repeat,
	       us, note);
}

/* Puts the slowest row first. */
static int by_time(const void *a, const void *b)
{
	double x = ((const struct row *)a)->us[0], y = ((const struct row *)b)->us[0];

	return (x < y) - (x > y);
}

static void print_kind(const struct bench *b, struct kind *c, const char *note)
{
	const struct bench_options *o = b->options;

	for (size_t i = 0; i < c->n_rows; i++)
		c->rows[i].us[0] = median(c->rows[i].us, o->repeat);
	qsort(c->rows, c->n_rows, sizeof(*c->rows), by_time);
	for (size_t i = 0; i < c->n_rows; i++)
		if (!o->only || !strcmp(o->only, c->rows[i].what.kernel))
			print_row(b, c, &c->rows[i], c->rows[i].us[0], note);
	if (o->only)
		return;
	print_sum(b, c, "(all kernels)", median(c->all_us, o->repeat), note);
	print_sum(b, c, "(step)", median(c->wall_us, o->repeat), note);
}

/* ---- drawing ---- */

static double part_ms(const struct kind *c, size_t part)
{
	double us = 0;

	for (size_t i = 0; i < c->n_rows; i++) {
		size_t k = 0;

		while (strncmp(c->rows[i].what.kernel, parts[k].begin, strlen(parts[k].begin)) != 0)
			k++;
		us += k == part ? c->rows[i].us[0] : 0;
	}
	return us / 1e3;
}

/* Draws a panel for prompts and one for each number of streams. A panel has a line for each of `parts`: its time by the
 * number of tokens. To be called after print_kind, which puts the medians into the rows. */
static int draw(const struct bench *b, const struct kind *kinds, size_t n, struct err *e)
{
	const size_t lines = ARRAY_SIZE(parts);
	double *x = calloc(n * (1 + lines), sizeof(*x)), *y = x + n;
	struct plot_panel panels[BENCH_LIST_MAX + 1] = {0};
	char titles[BENCH_LIST_MAX + 1][64];
	size_t n_panels = 0;
	int r;

	if (!x)
		return err_no_memory(e);
	for (size_t i = 0; i < n; i++) {
		bool first = !i || kinds[i].streams != kinds[i - 1].streams;
		struct plot_panel *p = &panels[first ? n_panels++ : n_panels - 1];

		x[i] = kinds[i].tokens;
		if (first) {
			char *title = titles[n_panels - 1];

			snprintf(title, sizeof(titles[0]),
				 kinds[i].streams ? "a token, streams: %u, ms" : "a prompt, ms",
				 kinds[i].streams);
			p->title = title;
			p->x_title = kinds[i].streams ? "tokens before it" : "tokens";
			p->dots = true;
			p->n_lines = lines;
		}
		for (size_t k = 0; k < lines; k++) {
			struct plot_line *l = &p->lines[k];

			if (first) {
				snprintf(l->name, sizeof(l->name), "%s", parts[k].name);
				l->x = x + i;
				l->y = y + k * n + i;
			}
			y[k * n + i] = part_ms(&kinds[i], k);
			l->n++;
		}
	}
	r = bench_plot(b, panels, n_panels, e);
	free(x);
	return r;
}

static void release(struct kind *c)
{
	for (size_t i = 0; i < c->n_rows; i++)
		free(c->rows[i].us);
	free(c->wall_us);
	free(c->all_us);
	free(c->step_rows);
}

/* ---- all ---- */

static int measure_all(struct bench *b, struct kind *kinds, size_t n, struct err *e)
{
	int r = engine_profile(b->engine, true, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = measure(b, &kinds[i], e);
		if (r == 0)
			r = bench_measure_peaks(b, e);
	}
	return r;
}

static bool known_name(const struct kind *kinds, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < kinds[i].n_rows; k++)
			if (!strcmp(kinds[i].rows[k].what.kernel, name))
				return true;
	return false;
}

static int run_kernels(struct bench *b, struct err *e)
{
	const struct bench_options *o = b->options;
	struct bench_case *cases = NULL;
	struct kind *kinds = NULL;
	size_t n = 0;
	int r = bench_cases(b, &cases, &n, e);

	if (r == 0 && !(kinds = calloc(n, sizeof(*kinds))))
		r = err_no_memory(e);
	for (size_t i = 0; r == 0 && i < n; i++)
		kinds[i] = (struct kind){.streams = cases[i].streams, .tokens = cases[i].tokens};
	if (r == 0)
		r = measure_all(b, kinds, n, e);
	if (r == 0 && o->only && !known_name(kinds, n, o->only))
		r = err_set(e, EINVAL, "--only: no step of this model launches %s", o->only);
	if (r == 0) {
		const char *note = bench_print_head(b);

		printf("step\tstreams\ttokens\tkernel\tshape\tlaunches\tus\tMB\tMFLOP\tGB/s\t"
		       "GFLOP/s\tbound\tshare_%%\texperts\tnote\n");
		for (size_t i = 0; i < n; i++)
			print_kind(b, &kinds[i], note);
		if (o->plot)
			r = draw(b, kinds, n, e);
	}
	for (size_t i = 0; kinds && i < n; i++)
		release(&kinds[i]);
	free(kinds);
	free(cases);
	return r;
}

int bench_kernels(int argc, char **argv, struct err *e)
{
	static const struct bench_defaults own = {.prefill = "512",
						  .decode = "1,8,32",
						  .context = "1024",
						  .repeat = 7};

	return bench_run(argc, argv, &own, run_kernels, e);
}
