/* `tigon eval`: how well a model predicts a text, and how far it is from another one.
 *
 * The text is cut into windows, which are read one by one from nothing, and in each the tokens behind the first
 * `unscored` ones and the next are predicted, each from all tokens before it in the window. By default these are the
 * second half of windows of 512 tokens, and the first token of each window is replaced by the one that the tokenizer puts
 * before a text, if there is one: these are the windows of llama.cpp's llama-perplexity, so that perplexities can be
 * compared.
 *
 * Two models read the same step of a window one after the other, and their logits are compared before the next step. So
 * only the logits of one step are kept, at most LOGITS_BYTES of each model. Both models are loaded at the same time: one
 * after the other, all logits of the text would have to be kept in between, which are 600 KB a token of a vocabulary of
 * 150,000. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/parallel.h"
#include "daemon/cli/command.h"
#include "daemon/cli/eval/logits_file.h"
#include "daemon/cli/eval/report.h"
#include "daemon/engine_options.h"
#include "daemon/program_cache.h"

#define LOGITS_BYTES (UINT64_C(256) << 20)

enum {
	CONTEXT_MAX = 1 << 24,
	STEP_MAX = 2048,    /* tokens of a step */
	TEXT_MAX = 1 << 30, /* bytes */
	UNSCORED_HALF = UINT32_MAX,
};

struct eval_options {
	struct engine_options engine;
	const char *text, *against, *against_device, *logits; /* borrowed from argv */
	unsigned against_dtype, against_kv_dtype; /* enum engine_dtype, enum engine_kv_dtype */
	bool has_against_dtype, has_against_kv_dtype, json;
	uint32_t context, unscored, windows;
	char program_cache[4096];
};

#define AT(member) offsetof(struct eval_options, member)

static const struct option_def own[] = {
	{"text", "FILE", OPTION_TEXT, AT(text), .text = "the text, in UTF-8"},
	{"against", "DIR", OPTION_TEXT, AT(against), .initial_text = "none",
	 .text = "a model of the same vocabulary, to compare the model with"},
	{"against-dtype", "TYPE", OPTION_CHOICE, AT(against_dtype), .given = AT(has_against_dtype),
	 .choices = engine_dtype_names, .initial_text = "that of the model",
	 .text = "its number format; without --against the model is compared with itself"},
	{"against-kv-dtype", "TYPE", OPTION_CHOICE, AT(against_kv_dtype),
	 .given = AT(has_against_kv_dtype), .choices = engine_kv_dtype_names,
	 .initial_text = "that of the model", .text = "the number format of its KV cache"},
	{"against-device", "WHICH", OPTION_TEXT, AT(against_device),
	 .initial_text = "that of the model", .text = "its device"},
	{"context", "TOKENS", OPTION_NUMBER_32, AT(context), .min = 2, .max = CONTEXT_MAX,
	 .initial = 512, .text = "length of a window"},
	{"unscored", "TOKENS", OPTION_NUMBER_32, AT(unscored), .max = UNSCORED_HALF,
	 .initial = UNSCORED_HALF, .initial_text = "half of the window",
	 .text = "tokens at the beginning of a window behind which nothing is predicted"},
	{"windows", "N", OPTION_NUMBER_32, AT(windows), .max = UINT32_MAX, .initial_text = "all",
	 .text = "read the first N windows alone"},
	{"logits", "FILE", OPTION_TEXT, AT(logits), .initial_text = "none",
	 .text = "write the model's logits, as safetensors"},
	{"json", NULL, OPTION_FLAG, AT(json), .text = "print JSON instead of a table"},
};

static int parse_options(int argc, char **argv, struct eval_options *o, struct err *e)
{
	struct option_def table[ENGINE_OPTIONS + ARRAY_SIZE(own)];
	int r;

	engine_options_table(AT(engine), table);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		table[ENGINE_OPTIONS + i] = own[i];
	r = option_table_command(table, ARRAY_SIZE(table),
				 "eval --model DIR --text FILE [--name value ...]", argc, argv, o,
				 e);
	if (r < 0)
		return r;
	if (!o->engine.model_dir || !o->text)
		return err_set(e, EINVAL, "--%s is required; --help lists the options",
			       o->engine.model_dir ? "text FILE" : "model DIR");
	if (o->unscored == UNSCORED_HALF)
		o->unscored = o->context / 2;
	if (o->unscored > o->context - 2)
		return err_set(
			e, EINVAL,
			"--unscored %u leaves nothing to predict in a window of --context %u",
			o->unscored, o->context);
	return program_cache_choose(o->engine.program_cache, o->program_cache,
				    sizeof(o->program_cache), &o->engine.program_cache, e);
}

struct eval {
	const struct eval_options *options;
	struct eval_side sides[2]; /* the model; the one to compare it with */
	size_t n_sides;
	struct ids ids; /* of the text */
	int32_t begin;	/* the first token of every window; -1: it is the text's */
	uint32_t step;	/* tokens of a step, at most */
	uint32_t windows;
	struct comparison comparison;
	struct divergence *divergences; /* [step] */
	struct file_draft logits;	/* if --logits is given */
};

/* ---- opening ---- */

/* Opens the models, as far as the checks of the text need it. */
static int open_sides(struct eval *v, struct err *e)
{
	const struct eval_options *o = v->options;
	struct engine_options of[2] = {o->engine, o->engine};
	int r = 0;

	if (o->against)
		of[1].model_dir = o->against;
	if (o->has_against_dtype)
		of[1].dtype = (enum engine_dtype)o->against_dtype;
	if (o->has_against_kv_dtype)
		of[1].kv_dtype = (enum engine_kv_dtype)o->against_kv_dtype;
	if (o->against_device)
		of[1].device = o->against_device;
	v->n_sides =
		o->against || o->has_against_dtype || o->has_against_kv_dtype || o->against_device
			? 2
			: 1;
	for (size_t i = 0; r == 0 && i < v->n_sides; i++)
		r = reader_open(&v->sides[i].reader, &of[i], o->context, e);
	return r == 0 && v->n_sides > 1
		       ? reader_same_vocabulary(&v->sides[0].reader, &v->sides[1].reader, e)
		       : r;
}

/* Encodes the text with both tokenizers, which have to agree, and counts its windows. */
static int encode(struct eval *v, const struct buf *text, struct err *e)
{
	const struct eval_options *o = v->options;
	struct ids other = {0};
	int32_t begin;
	int r = reader_encode(&v->sides[0].reader, buf_str(text), text->len, &v->ids, &v->begin, e);

	if (r == 0 && v->ids.len < o->context)
		r = err_set(e, EINVAL, "%s has %zu tokens, fewer than a window of --context %u",
			    o->text, v->ids.len, o->context);
	if (r < 0)
		return r;
	v->windows = (uint32_t)MIN(v->ids.len / o->context, (size_t)UINT32_MAX);
	if (o->windows)
		v->windows = MIN(v->windows, o->windows);
	if (v->n_sides < 2)
		return 0;
	r = reader_encode(&v->sides[1].reader, buf_str(text), text->len, &other, &begin, e);
	if (r == 0 && (other.len != v->ids.len ||
		       memcmp(other.v, v->ids.v, other.len * sizeof(*other.v)) != 0))
		r = err_set(e, EINVAL, "--against: its tokenizer makes other tokens of %s",
			    o->text);
	ids_release(&other);
	return r;
}

static int load_sides(struct eval *v, struct err *e)
{
	uint64_t most = ROUND_UP(v->options->context, (uint32_t)CHUNK_TOKENS);
	bool both = v->n_sides > 1, wanted = both || v->options->logits;
	int r = 0;

	most = MIN(most, (uint64_t)STEP_MAX);
	if (wanted)
		most = MIN(most, LOGITS_BYTES / (4ull * v->sides[0].reader.config.vocab_size));
	v->step = (uint32_t)MAX(most / CHUNK_TOKENS, UINT64_C(1)) * CHUNK_TOKENS;
	for (size_t i = 0; r == 0 && i < v->n_sides; i++)
		r = reader_load(&v->sides[i].reader, v->options->context, v->step, wanted, e);
	if (r == 0 && !(v->divergences = calloc(v->step, sizeof(*v->divergences))))
		r = err_no_memory(e);
	return r;
}

/* ---- reading ---- */

static void compare_row(void *arg, size_t i)
{
	struct eval *v = arg;
	const struct reader *p = &v->sides[0].reader, *q = &v->sides[1].reader;

	uint32_t n = p->config.vocab_size;

	divergence_of(p->logits + i * n, q->logits + i * n, n, &v->divergences[i]);
}

/* Compares the logits of a step with n scores. */
static int compare(struct eval *v, uint32_t n, struct err *e)
{
	parallel_for(n, compare_row, v);
	for (uint32_t i = 0; i < n; i++)
		if (comparison_add(&v->comparison, &v->divergences[i],
				   exp((double)v->sides[0].reader.results[i].logprob),
				   exp((double)v->sides[1].reader.results[i].logprob)) < 0)
			return err_no_memory(e);
	return 0;
}

/* Reads tokens [start, start + n) of a window with every model. */
static int read_step(struct eval *v, const int32_t *window, uint32_t start, uint32_t n,
		     struct err *e)
{
	/* Predictions come from the logits behind tokens [unscored, context - 1) of the window. */
	uint32_t from = MAX(v->options->unscored, start);
	uint32_t to = MIN(v->options->context - 1, start + n);
	uint32_t n_scored = from < to ? to - from : 0, first = n_scored ? from - start : 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < v->n_sides; i++) {
		struct eval_side *s = &v->sides[i];

		r = reader_step(&s->reader, window, start, n, first, n_scored, e);
		for (uint32_t k = 0; r == 0 && k < n_scored; k++)
			mean_add(&s->surprise, -(double)s->reader.results[k].logprob);
		if (r < 0)
			err_prefix(e, "%s", s->reader.options.model_dir);
	}
	if (r == 0 && v->options->logits)
		r = logits_file_add(&v->logits, v->sides[0].reader.logits, n_scored,
				    v->sides[0].reader.config.vocab_size, e);
	if (r == 0 && v->n_sides > 1)
		r = compare(v, n_scored, e);
	return r;
}

static int read_windows(struct eval *v, struct err *e)
{
	struct log_progress progress = {.next_ns = clock_now_ns()};
	uint32_t context = v->options->context;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < v->windows; i++) {
		int32_t *window = v->ids.v + (size_t)i * context;

		if (v->begin >= 0)
			window[0] = v->begin;
		for (uint32_t at = 0; r == 0 && at < context; at += v->step)
			r = read_step(v, window, at, MIN(v->step, context - at), e);
		if (r == 0)
			log_progress(&progress, clock_now_ns(), (i + 1.0) / v->windows,
				     "window %u of %u, perplexity %.4f", i + 1, v->windows,
				     perplexity_of(&v->sides[0].surprise));
	}
	log_progress_end(&progress, "%u windows read", v->windows);
	return r;
}

/* Loads the models and reads the windows. A file for logits is begun before, because loading may take long. */
static int read_text(struct eval *v, struct err *e)
{
	const struct eval_options *o = v->options;
	uint64_t predictions = (uint64_t)v->windows * (o->context - 1 - o->unscored);
	int r = 0;

	if (o->logits)
		r = logits_file_open(&v->logits, o->logits, predictions,
				     v->sides[0].reader.config.vocab_size, e);
	if (r < 0) {
		err_prefix(e, "--logits");
		return r;
	}
	r = load_sides(v, e);
	if (r == 0)
		r = read_windows(v, e);
	return o->logits ? file_draft_close(&v->logits, r, e) : r;
}

/* ---- all ---- */

static int evaluate(struct eval *v, struct err *e)
{
	const struct eval_options *o = v->options;
	struct buf text;
	int r;

	buf_init(&text, TEXT_MAX);
	r = file_read(AT_FDCWD, o->text, o->text, &text, e);
	if (r == 0)
		r = open_sides(v, e);
	if (r == 0)
		r = encode(v, &text, e);
	buf_release(&text);
	if (r == 0)
		r = read_text(v, e);
	if (r < 0)
		return r;
	return report_print(&(struct eval_report){.text = o->text,
						  .tokens = v->ids.len,
						  .context = o->context,
						  .unscored = o->unscored,
						  .windows = v->windows,
						  .model = &v->sides[0],
						  .against = v->n_sides > 1 ? &v->sides[1] : NULL,
						  .comparison = &v->comparison},
			    o->json, e);
}

int cli_eval(int argc, char **argv, struct err *e)
{
	struct eval_options o = {0};
	struct eval v = {.options = &o};
	int r = parse_options(argc, argv, &o, e);

	if (r == 0)
		r = evaluate(&v, e);
	for (size_t i = 0; i < v.n_sides; i++)
		reader_close(&v.sides[i].reader);
	comparison_release(&v.comparison);
	free(v.divergences);
	ids_release(&v.ids);
	return r;
}
