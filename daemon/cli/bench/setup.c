#include "daemon/cli/bench/setup.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/macros.h"
#include "bench_commit.inc"
#include "daemon/cli/plot.h"
#include "daemon/engine_options.h"
#include "daemon/program_cache.h"

enum {
	TOKENS_MAX = 1 << 24,
	STREAMS_MAX = 4096,
	REPEAT_MAX = 1000,
	STEPS_MAX = 100000,
	PAGE = 64,
};

/* ---- options ---- */

enum { KERNELS = 1, STEPS = 2, COPIES = 4, BOTH = KERNELS | STEPS, ALL = BOTH | COPIES };

/* Returns whether the name kernels_name(i) also has a smaller number. Kernels of different programs may have one
 * name. */
static bool named_before(size_t i)
{
	for (size_t before = 0; before < i; before++)
		if (!strcmp(kernels_name(before), kernels_name(i)))
			return true;
	return false;
}

static int take_kernel(const struct option_def *d, const char *text, void *member, struct err *e)
{
	const char *name;
	struct buf names;
	int r = 0;

	buf_init(&names, 1024);
	for (size_t i = 0; (name = kernels_name(i)); i++) {
		if (!strcmp(text, name)) {
			*(const char **)member = text;
			buf_release(&names);
			return 0;
		}
		if (!named_before(i))
			buf_printf(&names, "%s%s", i ? ", " : "", name);
	}
	r = err_set(e, EINVAL, "--%s: \"%.60s\" is none of the kernels %s", d->name, text,
		    buf_str(&names));
	buf_release(&names);
	return r;
}

#define AT(member) offsetof(struct bench_options, member)

static const struct part_option {
	struct option_def def;
	int parts; /* bits of the benches that have the option */
} part_options[] = {
	{{"cache-memory", "BYTES|SHARE", OPTION_MEMORY, AT(cache_memory),
	  .initial_text = "as of tigond",
	  .text = "for KV pages and states together: 4G, or a share of what the model leaves"},
	 ALL},
	{{"max-batched-tokens", "TOKENS", OPTION_NUMBER_32, AT(engine.max_prefill_tokens),
	  .min = PAGE, .max = TOKENS_MAX, .initial = 2048, .text = "prompt tokens of a step"},
	 ALL},
	{{"prefill", "LIST", OPTION_OWN, AT(prefill), .min = 1, .max = TOKENS_MAX,
	  .take = bench_list_take_none, .read_initial = true,
	  .text = "lengths of prompts, 0 for none"},
	 BOTH},
	{{"decode", "LIST", OPTION_OWN, AT(decode), .min = 1, .max = STREAMS_MAX,
	  .take = bench_list_take_none, .read_initial = true,
	  .text = "numbers of streams, 0 for none"},
	 ALL},
	{{"context", "LIST", OPTION_OWN, AT(context), .max = TOKENS_MAX,
	  .take = bench_list_take_none, .read_initial = true,
	  .text = "tokens that each stream has before"},
	 ALL},
	{{"repeat", "N", OPTION_NUMBER_32, AT(repeat), .min = 1, .max = REPEAT_MAX,
	  .text = "measurements of each kind of step; their median is printed"},
	 ALL},
	{{"steps", "N", OPTION_NUMBER_32, AT(steps), .min = 1, .max = STEPS_MAX, .initial = 16,
	  .text = "generated tokens of a measurement"},
	 STEPS | COPIES},
	{{"copy-queue", "WHICH", OPTION_CHOICE, AT(engine.copy_queue),
	  .choices = engine_copy_queue_names,
	  .text = "copies of pages and states: shared with steps, or own; auto is own on a GPU"},
	 COPIES},
	{{"in-flight", "BYTES", OPTION_SIZE, AT(in_flight), .min = 1, .max = UINT64_C(1) << 40,
	  .initial = 16 << 20, .initial_text = "16M",
	  .text = "bytes of copies that are under way at most; at least two copies are"},
	 COPIES},
	{{"separate-launches", NULL, OPTION_FLAG, AT(engine.separate_launches),
	  .text = "launch each kernel by itself, also where a step could be one launch"},
	 STEPS},
	{{"plain-weights", NULL, OPTION_FLAG, AT(engine.plain_weights),
	  .text = "keep weights in two bytes each (same bits)"},
	 ALL},
	{{"tuning", "FILE", OPTION_TEXT, AT(tuning), .initial_text = "the table that is built in",
	  .text = "a table of tigon tune, as in tigond"},
	 ALL},
	{{"batch-invariant", "SWITCH", OPTION_CHOICE, AT(batch_invariant),
	  .choices = option_switch_names,
	  .text = "off: rows of tables that change bits may be used"},
	 ALL},
	{{"plot", "FILE", OPTION_TEXT, AT(plot), .initial_text = "none",
	  .text = "draw the times, as SVG"},
	 BOTH},
	{{"only", "KERNEL", OPTION_OWN, AT(only), .take = take_kernel, .initial_text = "all",
	  .text = "print rows of this kernel alone"},
	 KERNELS},
};

enum { TABLE_MAX = ENGINE_OPTIONS + ARRAY_SIZE(part_options) };

/* Fills the option table of one bench, with its defaults. Returns the number of options. */
static size_t fill_table(int part, const struct bench_defaults *own,
			 struct option_def table[TABLE_MAX])
{
	size_t n = ENGINE_OPTIONS;

	engine_options_table(AT(engine), table);

	for (size_t i = 0; i < ARRAY_SIZE(part_options); i++) {
		struct option_def *d = &table[n];

		if (!(part_options[i].parts & part))
			continue;
		n++;
		*d = part_options[i].def;
		if (d->offset == AT(prefill))
			d->initial_text = own->prefill;
		else if (d->offset == AT(decode))
			d->initial_text = own->decode;
		else if (d->offset == AT(context))
			d->initial_text = own->context;
		else if (d->offset == AT(repeat))
			d->initial = own->repeat;
	}
	return n;
}

static int parse_options(int argc, char **argv, const struct bench_defaults *own,
			 struct bench_options *o, struct err *e)
{
	bool kernels = !strcmp(argv[0], "kernels");
	int part = kernels ? KERNELS : !strcmp(argv[0], "steps") ? STEPS : COPIES;
	struct option_def table[TABLE_MAX];
	char usage[64];
	int r;

	snprintf(usage, sizeof(usage), "bench %s --model DIR [--name value ...]", argv[0]);
	r = option_table_command(table, fill_table(part, own, table), usage, argc, argv, o, e);
	if (r < 0)
		return r;
	o->engine.profile = kernels;
	/* With bench kernels each repeat is one more step of the same streams, in which every stream grows by one
	 * token. */
	if (kernels)
		o->steps = o->repeat;
	if (!o->engine.model_dir)
		return err_set(e, EINVAL, "--model DIR is required; --help lists the options");
	if (!o->prefill.n && !(o->decode.n && o->context.n))
		return err_set(e, EINVAL, "there is nothing to measure");
	o->engine.cache_memory = o->cache_memory.bytes;
	o->engine.cache_memory_share = o->cache_memory.share;
	o->engine.tuning.any_bits = o->batch_invariant == OPTION_OFF;
	return program_cache_choose(o->engine.program_cache, o->program_cache,
				    sizeof(o->program_cache), &o->engine.program_cache, e);
}

/* ---- opening ---- */

static uint32_t most_of(const struct bench_list *l)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < l->n; i++)
		most = MAX(most, l->v[i]);
	return most;
}

static void cut(struct bench_list *l, uint32_t most, const char *what)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->n; i++)
		if (l->v[i] <= most)
			l->v[n++] = l->v[i];
		else
			printf("# %s %u left out: the model goes to %u tokens\n", what, l->v[i],
			       most);
	l->n = n;
}

/* Sets the engine's sizes as the options need them. Removes from the options the prompts and contexts that are longer
 * than the model allows. *ret_pages: the KV pages that the measurements need. */
static int choose_sizes(struct bench_options *o, uint32_t *ret_pages, struct err *e)
{
	struct model_config c;
	int r = model_config_open(o->engine.model_dir, &c, e);
	uint64_t length, pages;

	if (r < 0)
		return r;
	cut(&o->prefill, c.max_position_embeddings, "prefill");
	cut(&o->context, c.max_position_embeddings, "context");
	if (!o->prefill.n && !(o->decode.n && o->context.n))
		return err_set(e, EINVAL, "there is nothing to measure");
	length = MAX((uint64_t)most_of(&o->prefill),
		     o->decode.n ? (uint64_t)most_of(&o->context) + o->steps : 0);
	length = MIN(MAX(length, (uint64_t)PAGE), (uint64_t)c.max_position_embeddings);
	o->engine.page_tokens = PAGE;
	o->engine.max_model_len = (uint32_t)length;
	o->engine.max_seqs = MAX(most_of(&o->decode), 1u);
	o->engine.max_prefill_tokens =
		MIN(o->engine.max_prefill_tokens,
		    MAX(ROUND_UP(most_of(&o->prefill), (uint32_t)PAGE), (uint32_t)PAGE));
	pages = CEIL_DIV((uint64_t)most_of(&o->prefill), PAGE);
	if (o->decode.n)
		pages = MAX(pages,
			    CEIL_DIV(MIN((uint64_t)most_of(&o->context) + o->steps, length), PAGE) *
				    o->engine.max_seqs);
	*ret_pages = (uint32_t)MIN(pages, (uint64_t)UINT32_MAX);
	return 0;
}

static int open_engine(struct bench_options *o, struct engine **ret, struct err *e)
{
	struct tuning_table *table = NULL;
	int r = 0;

	if (o->tuning && (r = tuning_open(o->tuning, &table, e)) < 0)
		err_prefix(e, "--tuning");
	if (r < 0)
		return r;
	o->engine.tuning.table = table;
	r = engine_open(&o->engine, ret, e);
	o->engine.tuning.table = NULL;
	tuning_free(table);
	return r;
}

int bench_measure_peaks(struct bench *b, struct err *e)
{
	struct peak now;
	int r = peaks_measure(b->peaks, &now, e);

	if (r < 0)
		return r;
	b->best = peak_best(b->best, now);
	b->least = b->measured++ ? (struct peak){MIN(b->least.read, now.read),
						 MIN(b->least.copy, now.copy),
						 MIN(b->least.flops, now.flops),
						 MIN(b->least.dot, now.dot),
						 MIN(b->least.int8, now.int8),
						 MIN(b->least.dp4a, now.dp4a)}
				 : now;
	return 0;
}

static int open_bench(struct bench_options *o, struct bench *ret, struct err *e)
{
	uint32_t pages = 0;
	int r;

	*ret = (struct bench){.options = o};
	r = o->plot ? plot_check("plot", o->plot, e) : 0;
	if (r == 0)
		r = choose_sizes(o, &pages, e);
	if (r == 0)
		r = open_engine(o, &ret->engine, e);
	if (r == 0)
		r = load_open(ret->engine, &o->engine, pages, &ret->load, e);
	if (r == 0)
		r = engine_peaks_open(ret->engine, o->engine.program_cache, &ret->peaks, e);
	if (r < 0)
		return r;
	(void)engine_peak_known(ret->engine, &ret->known);
	return bench_measure_peaks(ret, e);
}

int bench_run(int argc, char **argv, const struct bench_defaults *own,
	      int (*run)(struct bench *b, struct err *e), struct err *e)
{
	struct bench_options o = {0};
	struct bench b = {0};
	int r = parse_options(argc, argv, own, &o, e);

	if (r == 0)
		r = open_bench(&o, &b, e);
	if (r == 0)
		r = run(&b, e);
	peaks_close(b.peaks);
	load_close(b.load);
	engine_close(b.engine);
	return r;
}

/* Shortens *context so that it and the generated tokens fit into the model's length together. False: the model is too
 * short for the generated tokens alone, or the engine has too few pages. In both cases a line with the reason was
 * printed. */
static bool fit_context(const struct bench *b, uint32_t streams, uint32_t *context)
{
	uint32_t longest = load_longest(b->load, streams), steps = b->options->steps;
	uint32_t model = engine_info(b->engine)->max_model_len;

	if (steps > model) {
		printf("# decode of %u streams at %u tokens left out: the model goes to %u tokens, fewer "
		       "than --steps %u\n",
		       streams, *context, model, steps);
		return false;
	}
	*context = MIN(*context, model - steps);
	if (*context + steps <= longest)
		return true;
	printf("# decode of %u streams at %u tokens left out: there are KV pages for %u tokens each\n",
	       streams, *context, longest);
	return false;
}

int bench_cases(const struct bench *b, struct bench_case **ret, size_t *ret_n, struct err *e)
{
	const struct bench_options *o = b->options;
	size_t most = o->prefill.n + (size_t)o->decode.n * o->context.n, n = 0;
	struct bench_case *cases = calloc(most, sizeof(*cases));
	uint32_t longest = load_longest(b->load, 1);

	if (!cases)
		return err_no_memory(e);
	for (uint32_t i = 0; i < o->prefill.n; i++)
		if (o->prefill.v[i] <= longest)
			cases[n++].tokens = o->prefill.v[i];
		else
			printf("# prefill %u left out: there are KV pages for %u tokens\n",
			       o->prefill.v[i], longest);
	for (uint32_t i = 0; i < o->decode.n * o->context.n; i++) {
		struct bench_case c = {o->decode.v[i / o->context.n],
				       o->context.v[i % o->context.n]};

		if (fit_context(b, c.streams, &c.tokens))
			cases[n++] = c;
	}
	*ret = cases;
	*ret_n = n;
	return n ? 0 : err_set(e, EINVAL, "there is nothing left to measure");
}

/* ---- printing ---- */

static void print_peak(const char *what, const struct peak *p)
{
	printf("# peak %s: reading %.1f GB/s, copying %.1f GB/s, float %.1f GFLOP/s, bf16 %.1f "
	       "GFLOP/s, int8 %.1f GOP/s",
	       what, p->read / 1e9, p->copy / 1e9, p->flops / 1e9, p->dot / 1e9, p->int8 / 1e9);
	if (p->dp4a > 0)
		printf(", int8 by lanes %.1f GOP/s", p->dp4a / 1e9);
	printf("\n");
}

static const char *kv_text(const struct engine_options *o)
{
	return o->kv_dtype == ENGINE_KV_INT8 ? ", KV cache in int8" : "";
}

const char *bench_print_head(const struct bench *b)
{
	const struct engine_info *i = engine_info(b->engine);
	const struct engine_options *o = &b->options->engine;
	char what[128], use[TUNING_USE_TEXT];
	bool bad = peak_below(b->best, b->known, what, sizeof(what));
	uint64_t cache = engine_cache_bytes(b->engine);

	printf("# tigon " TIGON_VERSION ", commit " BENCH_COMMIT "\n");
	printf("# device %s, driver %s, kernels %s, %s%s\n", i->device_name, i->driver, i->kernels,
	       engine_dtype_names[o->dtype], kv_text(o));
	if (b->options->tuning || o->tuning.any_bits)
		printf("# tuning %s, batch-invariant %s%s\n",
		       b->options->tuning ? b->options->tuning : "built in",
		       o->tuning.any_bits ? "off" : "on", i->other_bits[0] ? ": other bits" : "");
	if (b->options->tuning) {
		tuning_use_text(&i->tuning, b->options->tuning, use, sizeof(use));
		printf("# %s\n", use);
	}
	printf("# model %s, %.3f GB of weights", o->model_dir, (double)i->weight_bytes / 1e9);
	if (i->plain_bytes != i->weight_bytes)
		printf(", coded from %.3f", (double)i->plain_bytes / 1e9);
	printf("%s\n", o->synthetic ? ", synthetic" : "");
	printf("# peaks measured %u times: shares are of the best ones\n", b->measured);
	print_peak("best", &b->best);
	print_peak("least", &b->least);
	if (profile_is_small(i->weight_bytes, cache))
		printf("# small: much of the model fits into a cache of %.0f MB, which may be faster "
		       "than the peak of reading\n",
		       (double)cache / 1e6);
	if (bad)
		printf("# void: %s\n", what);
	return bad ? "void" : "-";
}

int bench_plot(const struct bench *b, const struct plot_panel *panels, size_t n, struct err *e)
{
	const struct bench_options *o = b->options;
	const struct engine_info *i = engine_info(b->engine);
	char what[128], subtitle[2 * PATH_MAX];
	int r;

	snprintf(subtitle, sizeof(subtitle), "%s%s, %s, kernels %s, %s%s%s", o->engine.model_dir,
		 o->engine.synthetic ? " (synthetic weights)" : "", i->device_name, i->kernels,
		 engine_dtype_names[o->engine.dtype], kv_text(&o->engine),
		 peak_below(b->best, b->known, what, sizeof(what)) ? ", void" : "");
	r = plot_write(o->plot, subtitle, panels, n, e);
	if (r < 0)
		err_prefix(e, "--plot");
	return r;
}

void bench_progress(const char *fmt, ...)
{
	va_list ap;

	if (!isatty(STDERR_FILENO))
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}
