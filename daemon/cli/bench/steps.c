/* `tigon bench steps`: the time of whole steps by the host's clock, from handing over the first plan of a measurement
 * to receiving its last result. It measures prompts of several lengths, and generated tokens for several numbers of
 * streams, each behind contexts of several lengths.
 *
 * The bytes that a step reads depend on the number of different experts that it uses. That number is counted before, in
 * a run that is not timed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/cli/bench/setup.h"
#include "daemon/cli/command.h"
#include "daemon/cli/plot.h"
#include "daemon/cli/samples.h"

struct measurement {
	uint32_t streams; /* 0: a prompt */
	/* tokens of the prompt; with streams: tokens of each stream before the first step */
	uint32_t tokens;
	double *seconds;       /* [repeat] owned; sorted once it is complete */
	double median;	       /* seconds of a prompt, or of one step of generated tokens */
	struct load_result of; /* of the last repeat */
	double experts; /* different experts that a layer uses in a step, on average; 0: none */
};

/* Returns the number of prompts, or of steps, that each of m->seconds covers. */
static double units(const struct bench *b, const struct measurement *m)
{
	return m->streams ? b->options->steps : 1;
}

static int run_once(const struct bench *b, struct measurement *m, uint32_t tokens, uint32_t steps,
		    struct err *e)
{
	return m->streams ? load_decode(b->load, m->streams, tokens, steps, m->experts, &m->of, e)
			  : load_prefill(b->load, tokens, m->experts, &m->of, e);
}

/* Runs steps that are not timed, and counts the different experts that a layer uses in a step, on average. */
static int count_experts(struct bench *b, struct measurement *m, struct err *e)
{
	const uint32_t most = load_most(b->load);
	const struct kernel_timing *t;
	double sum = 0;
	size_t n, layers = 0;
	int r = engine_profile(b->engine, true, e);

	/* of a long prompt, only the first `most` tokens */
	if (r == 0)
		r = run_once(b, m, m->streams ? m->tokens : MIN(m->tokens, most), 1, e);
	if (r == 0)
		r = kernels_profile_take(engine_kernels(b->engine), &t, &n, e);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (!strcmp(t[i].kernel, "moe_gate_up") && !t[i].dense) {
			sum += t[i].experts;
			layers++;
		}
	m->experts = layers ? sum / (double)layers : 0;
	return engine_profile(b->engine, false, r == 0 ? e : NULL) < 0 && r == 0 ? -ENOMEM : r;
}

static int measure(struct bench *b, struct measurement *m, struct err *e)
{
	const struct bench_options *o = b->options;
	int r;

	m->seconds = calloc(o->repeat, sizeof(*m->seconds));
	if (!m->seconds)
		return err_no_memory(e);
	r = count_experts(b, m, e);
	for (uint32_t i = 0; r == 0 && i < o->repeat; i++) {
		r = run_once(b, m, m->tokens, o->steps, e);
		m->seconds[i] = m->of.seconds;
	}
	if (r < 0)
		return r;
	m->median = median(m->seconds, o->repeat) / units(b, m);
	if (m->streams)
		bench_progress("decode of %u streams at %u tokens: %.2f ms a step", m->streams,
			       m->tokens, m->median * 1e3);
	else
		bench_progress("prefill of %u tokens: %.2f ms", m->tokens, m->median * 1e3);
	return 0;
}

/* ---- printing ---- */

static void print_row(const struct bench *b, const struct measurement *m, const char *note)
{
	const struct roofline *r = &m->of.roofline;
	double n = units(b, m), tokens = m->streams ? m->streams : m->tokens;
	bool by_bytes;
	double least = roofline_seconds(r, &b->best, &by_bytes) / n;

	printf("%s\t%u\t%u\t%u\t%.1f\t", m->streams ? "decode" : "prefill", MAX(m->streams, 1u),
	       m->tokens, m->of.steps, (double)m->of.launches / m->of.steps);
	if (m->experts > 0)
		printf("%.1f", m->experts);
	else
		printf("-");
	printf("\t%.3f\t%.3f\t%.3f\t%.1f\t%.4f\t%.3f\t%s\t%.1f\t%s\n", m->median * 1e3,
	       m->seconds[0] / n * 1e3, m->seconds[b->options->repeat - 1] / n * 1e3,
	       tokens / m->median, roofline_bytes(r) / n / 1e9, roofline_flops(r) / n / 1e9,
	       by_bytes ? "bytes" : "flops", 100 * least / m->median, note);
}

static void print_all(const struct bench *b, const struct measurement *m, size_t n)
{
	const char *note = bench_print_head(b);

	printf("step\tstreams\ttokens\tsteps\tlaunches\texperts\tms\tms_min\tms_max\ttokens/s\tGB\t"
	       "GFLOP\tbound\tshare_%%\tnote\n");
	for (size_t i = 0; i < n; i++)
		print_row(b, &m[i], note);
}

/* Draws the time of a prompt by its length, and the time of a generated token by the context, with a line for each
 * number of streams. */
static int draw(const struct bench *b, const struct measurement *m, size_t n, struct err *e)
{
	double *x = calloc(2 * n, sizeof(*x)), *y = x + n;
	struct plot_panel panels[2] = {
		{.title = "time of a prompt, ms", .x_title = "tokens of the prompt", .dots = true},
		{.title = "time of a generated token, ms",
		 .x_title = "tokens before it",
		 .dots = true},
	};
	size_t n_panels = 0;
	int r;

	if (!x)
		return err_no_memory(e);
	for (size_t i = 0; i < n; i++) {
		struct plot_panel *p = &panels[m[i].streams > 0];
		struct plot_line *l = &p->lines[p->n_lines ? p->n_lines - 1 : 0];

		x[i] = m[i].tokens;
		y[i] = m[i].median * 1e3;
		if (!i || m[i].streams != m[i - 1].streams) {
			l = &p->lines[p->n_lines++];
			l->x = x + i;
			l->y = y + i;
			if (m[i].streams)
				snprintf(l->name, sizeof(l->name), "streams: %u", m[i].streams);
		}
		l->n++;
	}
	for (size_t i = 0; i < ARRAY_SIZE(panels); i++)
		if (panels[i].n_lines)
			panels[n_panels++] = panels[i];
	r = bench_plot(b, panels, n_panels, e);
	free(x);
	return r;
}

/* ---- all ---- */

static int run_steps(struct bench *b, struct err *e)
{
	struct measurement *m = NULL;
	struct bench_case *cases = NULL;
	size_t n = 0;
	int r = bench_cases(b, &cases, &n, e);

	if (r == 0 && !(m = calloc(n, sizeof(*m))))
		r = err_no_memory(e);
	for (size_t i = 0; r == 0 && i < n; i++) {
		m[i].streams = cases[i].streams;
		m[i].tokens = cases[i].tokens;
		r = measure(b, &m[i], e);
		if (r == 0)
			r = bench_measure_peaks(b, e);
	}
	if (r == 0)
		print_all(b, m, n);
	if (r == 0 && b->options->plot)
		r = draw(b, m, n, e);
	for (size_t i = 0; m && i < n; i++)
		free(m[i].seconds);
	free(m);
	free(cases);
	return r;
}

int bench_steps(int argc, char **argv, struct err *e)
{
	static const struct bench_defaults own = {.prefill = "128,512,2048,8192,32768",
						  .decode = "1,2,4,8,16,32,64,128,256",
						  .context = "0,1024,8192,32768",
						  .repeat = 3};

	return bench_run(argc, argv, &own, run_steps, e);
}
