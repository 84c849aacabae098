#include "daemon/cli/bench/setup.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "bench_commit.inc"
#include "daemon/cli/plot.h"
#include "daemon/program_cache.h"
#include "kernels/int8.h"

enum {
	TOKENS_MAX = 1 << 24,
	STREAMS_MAX = 4096,
	REPEAT_MAX = 1000,
	STEPS_MAX = 100000,
	PAGE = 64,
	FAR_LARGER = 8, /* times as large as a cache: what is in it by chance does not count */
};

/* ---- options ---- */

enum { KERNELS = 1, STEPS = 2, BOTH = KERNELS | STEPS };

static const struct option_text {
	const char *name, *argument, *text;
	int parts; /* that know it */
	char letter;
} option_texts[] = {
	{"model", "DIR", "config.json, and the weights unless they are synthetic", BOTH, 'm'},
	{"synthetic-weights", "SEED", "random weights made from this seed", BOTH, 's'},
	{"device", "WHICH", "as of tigond", BOTH, 'd'},
	{"kernels", "NAME", "auto, generic, x86 or nvidia (auto)", BOTH, 'k'},
	{"dtype", "TYPE", "float32 or bfloat16 (bfloat16)", BOTH, 't'},
	{"program-cache", "DIR", "where compiled kernels are kept; as of tigond", BOTH, 'c'},
	{"cache-memory", "BYTES", "for KV pages and states together; as of tigond", BOTH, 'b'},
	{"max-batched-tokens", "N", "prompt tokens of a step (2048)", BOTH, 'x'},
	{"prefill", "LIST", "lengths of prompts, 0 for none", BOTH, 'p'},
	{"decode", "LIST", "numbers of streams, 0 for none", BOTH, 'g'},
	{"context", "LIST", "tokens that each of them has before", BOTH, 'C'},
	{"repeat", "N", "measurements of each, of which the median is printed", BOTH, 'r'},
	{"steps", "N", "generated tokens of a measurement (16)", STEPS, 'n'},
	{"separate-launches", NULL, "each kernel by itself, also where a step could be one launch",
	 STEPS, 'S'},
	{"plain-weights", NULL, "not coded in fewer bytes, also where they could be", BOTH, 'w'},
	{"tuning", "FILE", "a table of tigon tune; as of tigond", BOTH, 'T'},
	{"batch-invariant", "SWITCH", "on or off; as of tigond (on)", BOTH, 'B'},
	{"plot", "FILE", "a figure of the times, as SVG", BOTH, 'P'},
	{"only", "KERNEL", "rows of this kernel alone", KERNELS, 'o'},
	{"int8", "GROUP", "groups of the int8 products, 0 for no such products (128)", KERNELS,
	 '8'},
	{"help", NULL, "", BOTH, 'h'},
};

static void print_list(const char *name, const struct bench_list *l)
{
	printf("  --%s default:", name);
	for (uint32_t i = 0; i < l->n; i++)
		printf("%c%u", i ? ',' : ' ', l->v[i]);
	printf("\n");
}

static void print_help(const char *name, int part, const struct bench_options *o)
{
	printf("usage: tigon bench %s --model DIR [--name value ...]\n", name);
	for (size_t i = 0; i < ARRAY_SIZE(option_texts); i++)
		if (option_texts[i].parts & part) {
			char left[64];

			snprintf(left, sizeof(left), "--%s %s", option_texts[i].name,
				 option_texts[i].argument ? option_texts[i].argument : "");
			printf("  %-27s%s\n", left, option_texts[i].text);
		}
	print_list("prefill", &o->prefill);
	print_list("decode", &o->decode);
	print_list("context", &o->context);
	printf("  --repeat default: %u\n", o->repeat);
}

static int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] < '0' || text[0] > '9' || v < least || v > most)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* "128,512"; "0" alone, where it may stand for none, is the empty list. */
static int parse_list(const char *text, uint64_t least, uint64_t most, struct bench_list *ret)
{
	struct bench_list l = {0};
	char number[24];

	if (least && !strcmp(text, "0")) {
		*ret = l;
		return 0;
	}
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",");
		uint64_t v;

		if (len >= sizeof(number) || l.n == BENCH_LIST_MAX)
			return -EINVAL;
		memcpy(number, p, len);
		number[len] = 0;
		if (parse_number(number, least, most, &v) < 0)
			return -EINVAL;
		l.v[l.n++] = (uint32_t)v;
		p += len;
		if (!*p)
			break;
	}
	*ret = l;
	return 0;
}

static int parse_name(const char *text, const char *const *names, int n, int *ret)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(text, names[i])) {
			*ret = i;
			return 0;
		}
	return -EINVAL;
}

static int parse_u32(const char *text, uint64_t least, uint64_t most, uint32_t *ret)
{
	uint64_t v = 0;
	int r = parse_number(text, least, most, &v);

	if (r == 0)
		*ret = (uint32_t)v;
	return r;
}

/* -EINVAL: no value for this option. */
static int take_option(struct bench_options *o, char letter, const char *value)
{
	static const char *const dtypes[] = {"float32", "bfloat16"};
	static const char *const kernels[] = {"auto", "generic", "x86", "nvidia"};
	static const char *const switches[] = {"on", "off"};
	int choice = 0, r = 0;

	switch (letter) {
	case 'm': o->engine.model_dir = value; break;
	case 's':
		o->engine.synthetic = true;
		return parse_number(value, 0, UINT64_MAX, &o->engine.synthetic_seed);
	case 'd': o->engine.device = value; break;
	case 'k':
		r = parse_name(value, kernels, ARRAY_SIZE(kernels), &choice);
		o->engine.kernels = (enum engine_kernels)choice;
		break;
	case 't':
		r = parse_name(value, dtypes, ARRAY_SIZE(dtypes), &choice);
		o->engine.dtype = (enum engine_dtype)choice;
		break;
	case 'c': o->engine.program_cache = value; break;
	case 'b': return parse_number(value, 1, UINT64_MAX, &o->engine.cache_memory);
	case 'x': return parse_u32(value, PAGE, TOKENS_MAX, &o->engine.max_prefill_tokens);
	case 'p': return parse_list(value, 1, TOKENS_MAX, &o->prefill);
	case 'g': return parse_list(value, 1, STREAMS_MAX, &o->decode);
	case 'C': return parse_list(value, 0, TOKENS_MAX, &o->context);
	case 'r': return parse_u32(value, 1, REPEAT_MAX, &o->repeat);
	case 'n': return parse_u32(value, 1, STEPS_MAX, &o->steps);
	case 'S': o->engine.separate_launches = true; break;
	case 'w': o->engine.plain_weights = true; break;
	case 'T': o->tuning = value; break;
	case 'B':
		r = parse_name(value, switches, ARRAY_SIZE(switches), &choice);
		o->engine.tuning.any_bits = choice;
		break;
	case 'P': o->plot = value; break;
	case 'o': o->only = value; break;
	case '8':
		r = parse_u32(value, 0, INT8_GROUP_MAX, &o->int8);
		return r == 0 && o->int8 && !int8_group_valid(o->int8) ? -EINVAL : r;
	}
	return r;
}

int bench_parse(int argc, char **argv, struct bench_options *o, struct err *e)
{
	const int part = !strcmp(argv[0], "kernels") ? KERNELS : STEPS;
	struct option table[ARRAY_SIZE(option_texts) + 1] = {0};
	int c, at = 0;

	for (size_t i = 0, n = 0; i < ARRAY_SIZE(option_texts); i++)
		if (option_texts[i].parts & part)
			table[n++] = (struct option){option_texts[i].name,
						     option_texts[i].argument ? required_argument
									      : no_argument,
						     NULL, option_texts[i].letter};
	optind = 1;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:", table, &at)) != -1) {
		if (c == 'h') {
			print_help(argv[0], part, o);
			return -ECANCELED;
		}
		if (c == ':')
			return err_set(e, EINVAL, "%s needs a value", argv[optind - 1]);
		if (c == '?')
			return err_set(e, EINVAL, "%s is not an option of bench %s",
				       argv[optind - 1], argv[0]);
		if (take_option(o, (char)c, optarg) < 0)
			return err_set(e, EINVAL, "--%s: \"%s\" is not a value for it",
				       table[at].name, optarg);
	}
	if (optind < argc)
		return err_set(e, EINVAL, "unexpected argument \"%s\"", argv[optind]);
	if (!o->engine.model_dir)
		return err_set(e, EINVAL, "--model is required");
	if (!o->prefill.n && !(o->decode.n && o->context.n))
		return err_set(e, EINVAL, "there is nothing to measure");
	if (!o->engine.program_cache)
		o->engine.program_cache =
			program_cache_default(o->program_cache, sizeof(o->program_cache));
	else if (!o->engine.program_cache[0])
		o->engine.program_cache = NULL;
	return 0;
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

/* How long the streams may get: what is asked for, as far as the model goes. */
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

int bench_open(struct bench_options *o, struct bench *ret, struct err *e)
{
	uint32_t pages = 0;
	int r;

	*ret = (struct bench){.options = o};
	r = o->plot ? plot_check(o->plot, e) : 0;
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
	return bench_measure(ret, e);
}

void bench_release(struct bench *b)
{
	peaks_close(b->peaks);
	load_close(b->load);
	engine_close(b->engine);
}

int bench_measure(struct bench *b, struct err *e)
{
	struct peak now;
	int r = peaks_measure(b->peaks, &now, e);

	if (r < 0)
		return r;
	b->best = peak_best(b->best, now);
	b->least =
		b->measured++
			? (struct peak){MIN(b->least.read, now.read), MIN(b->least.copy, now.copy),
					MIN(b->least.flops, now.flops), MIN(b->least.dot, now.dot),
					MIN(b->least.int8, now.int8)}
			: now;
	return 0;
}

bool bench_context(const struct bench *b, uint32_t streams, uint32_t steps, uint32_t *context)
{
	uint32_t longest = load_longest(b->load, streams);
	uint32_t model = engine_info(b->engine)->max_model_len;

	if (*context > model - MIN(steps, model))
		*context = model - MIN(steps, model);
	if ((uint64_t)*context + steps <= longest)
		return true;
	printf("# decode of %u streams at %u tokens left out: there are KV pages for %u tokens each\n",
	       streams, *context, longest);
	return false;
}

/* ---- printing ---- */

static void print_peak(const char *what, const struct peak *p)
{
	printf("# peak %s: reading %.1f GB/s, copying %.1f GB/s, float %.1f GFLOP/s, bf16 %.1f "
	       "GFLOP/s, int8 %.1f GOP/s\n",
	       what, p->read / 1e9, p->copy / 1e9, p->flops / 1e9, p->dot / 1e9, p->int8 / 1e9);
}

const char *bench_print_head(const struct bench *b)
{
	const struct engine_info *i = engine_info(b->engine);
	const struct engine_options *o = &b->options->engine;
	char what[128];
	bool bad = peak_below(b->best, b->known, what, sizeof(what));
	uint64_t cache = engine_cache_bytes(b->engine);

	printf("# tigon " TIGON_VERSION ", commit " BENCH_COMMIT "\n");
	printf("# device %s, driver %s, kernels %s, %s\n", i->device_name, i->driver, i->kernels,
	       o->dtype == ENGINE_BFLOAT16 ? "bfloat16" : "float32");
	if (b->options->tuning || o->tuning.any_bits)
		printf("# tuning %s, batch-invariant %s%s\n",
		       b->options->tuning ? b->options->tuning : "built in",
		       o->tuning.any_bits ? "off" : "on", i->other_bits[0] ? ": other bits" : "");
	printf("# model %s, %.3f GB of weights%s\n", o->model_dir, (double)i->weight_bytes / 1e9,
	       o->synthetic ? ", synthetic" : "");
	printf("# peaks measured %u times: shares are of the best ones\n", b->measured);
	print_peak("best", &b->best);
	print_peak("least", &b->least);
	if (i->weight_bytes < FAR_LARGER * cache)
		printf("# small: much of the model fits into a cache of %.0f MB, which may be faster "
		       "than the peak of reading\n",
		       (double)cache / 1e6);
	if (bad)
		printf("# void: %s\n", what);
	return bad ? "void" : "-";
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

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
