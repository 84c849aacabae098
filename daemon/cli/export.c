/*
 * `tigon export --model DIR --synthetic-weights SEED --out DIR`: the weights that the server makes
 * with the same option, written for other programs, with the tokenizer they need to be talked to.
 * Without --synthetic-weights the checkpoint in the model's directory is written again as bf16.
 */
#include "daemon/cli/export.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/macros.h"
#include "base/file.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/export.h"
#include "engine/layers/weights.h"

enum { SHARD_GB_MAX = 1000000 };

struct export_options {
	const char *model, *out, *tokenizer; /* borrowed from argv */
	bool synthetic;
	uint64_t seed, shard_gb;
};

static void print_help(FILE *out)
{
	fputs("usage: tigon export --model DIR --out DIR [option ...]\n"
	      "  --model DIR               config.json, and the weights unless they are synthetic\n"
	      "  --synthetic-weights SEED  random weights, as tigond makes them from this seed\n"
	      "  --out DIR                 the checkpoint to write: a new or empty directory\n"
	      "  --tokenizer DIR           where tokenizer files are copied from; default: the "
	      "model's\n"
	      "  --shard-size GB           the most that one file holds; default: 4\n"
	      "  --help\n",
	      out);
}

static int parse_number(const char *name, const char *text, uint64_t max, uint64_t *ret,
			struct err *e)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] < '0' || text[0] > '9' || n > max)
		return err_set(e, EINVAL, "--%s: \"%s\" is not a whole number from 0 to %llu", name,
			       text, (unsigned long long)max);
	*ret = n;
	return 0;
}

/* -ECANCELED: --help was asked for. */
static int parse_options(int argc, char **argv, struct export_options *o, struct err *e)
{
	static const struct option table[] = {
		{"model", required_argument, NULL, 'm'},
		{"synthetic-weights", required_argument, NULL, 's'},
		{"out", required_argument, NULL, 'o'},
		{"tokenizer", required_argument, NULL, 't'},
		{"shard-size", required_argument, NULL, 'g'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c, r = 0;

	*o = (struct export_options){.shard_gb = 4};
	optind = 1;
	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, ":", table, NULL)) != -1) {
		switch (c) {
		case 'm': o->model = optarg; break;
		case 's':
			o->synthetic = true;
			r = parse_number("synthetic-weights", optarg, UINT64_MAX, &o->seed, e);
			break;
		case 'o': o->out = optarg; break;
		case 't': o->tokenizer = optarg; break;
		case 'g':
			r = parse_number("shard-size", optarg, SHARD_GB_MAX, &o->shard_gb, e);
			if (r == 0 && !o->shard_gb)
				r = err_set(e, EINVAL, "--shard-size: must be at least 1");
			break;
		case 'h': return -ECANCELED;
		case ':': return err_set(e, EINVAL, "%s needs a value", argv[optind - 1]);
		default:
			return err_set(e, EINVAL, "%s is not an option of export",
				       argv[optind - 1]);
		}
	}
	if (r == 0 && optind < argc)
		r = err_set(e, EINVAL, "\"%s\" is not an option", argv[optind]);
	if (r == 0 && !o->model)
		r = err_set(e, EINVAL, "--model is required");
	if (r == 0 && !o->out)
		r = err_set(e, EINVAL, "--out is required");
	if (r == 0 && !o->tokenizer)
		o->tokenizer = o->model;
	return r;
}

static int copy_texts(const struct export_options *o, struct err *e)
{
	struct checkpoint *k;
	int r = checkpoint_open(o->tokenizer, &k, e);

	if (r == 0)
		r = checkpoint_copy_texts(k, o->out, e);
	if (r == 0)
		checkpoint_close(k);
	return r;
}

static int write_model(const struct export_options *o, struct checkpoint *k, struct model_config *c,
		       const struct weight *table, struct err *e)
{
	struct checkpoint_text config;
	struct weights *w = NULL;
	int r;

	if (o->synthetic) {
		r = weights_synthetic(o->seed, c, table, &w);
		if (r < 0)
			return err_set(e, -r, "out of memory for the weights");
	} else {
		r = weights_open(k, c, table, &w, e);
		if (r < 0)
			return r;
	}
	r = checkpoint_read(k, CHECKPOINT_CONFIG, &config, e);
	if (r == 0)
		r = weights_export(w, c, buf_str(&config.bytes), o->out, o->shard_gb << 30, e);
	checkpoint_text_release(&config);
	weights_close(w);
	return r;
}

static int export(const struct export_options *o, struct err *e)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct weight *table = NULL;
	struct checkpoint *k = NULL;
	int r;

	if (!c)
		return err_set(e, ENOMEM, "out of memory");
	r = checkpoint_open(o->model, &k, e);
	if (r == 0)
		r = model_config_read(k, c, e);
	if (r == 0 && !(table = layers_weights(c)))
		r = err_set(e, ENOMEM, "out of memory");
	if (r == 0)
		r = write_model(o, k, c, table, e);
	if (r == 0)
		r = copy_texts(o, e);
	checkpoint_close(k);
	free(table);
	free(c);
	return r;
}

int cli_export(int argc, char **argv)
{
	struct export_options o;
	struct err e = {0};
	int r;

	r = parse_options(argc, argv, &o, &e);
	if (r == -ECANCELED) {
		print_help(stdout);
		return 0;
	}
	if (r == 0)
		r = export(&o, &e);
	if (r < 0) {
		fprintf(stderr, "tigon export: %s\n", e.text);
		return 1;
	}
	printf("%s: written\n", o.out);
	return 0;
}
