/* `tigon export --model DIR --synthetic-weights SEED --out DIR`: writes a checkpoint that other programs can run, with
 * the weights that tigond makes for the same option, and copies of tokenizer files. Without --synthetic-weights it
 * writes the weights of the model's directory, as bf16. */
#include "daemon/cli/command.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/macros.h"
#include "base/options.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/export.h"
#include "engine/layers/weights.h"

enum { SHARD_GB_MAX = 1000000 };

struct export_options {
	const char *model, *out, *tokenizer; /* borrowed from argv */
	bool synthetic;
	uint64_t seed, shard_gb;
};

#define AT(member) offsetof(struct export_options, member)

static const struct option_def options[] = {
	{"model", "DIR", OPTION_TEXT, AT(model),
	 .text = "config.json, and the weights unless they are synthetic"},
	{"synthetic-weights", "SEED", OPTION_NUMBER, AT(seed), .given = AT(synthetic),
	 .max = UINT64_MAX, .initial_text = "off",
	 .text = "random weights, as tigond makes them from this seed"},
	{"out", "DIR", OPTION_TEXT, AT(out),
	 .text = "the checkpoint to write: a new or empty directory"},
	{"tokenizer", "DIR", OPTION_TEXT, AT(tokenizer), .initial_text = "the model's",
	 .text = "directory to copy tokenizer files from"},
	{"shard-size", "GB", OPTION_NUMBER, AT(shard_gb), .min = 1, .max = SHARD_GB_MAX,
	 .initial = 4, .text = "largest size of a weights file"},
};

/* Reads the command line. -ECANCELED: it has --help, and the help was printed. */
static int parse_options(int argc, char **argv, struct export_options *o, struct err *e)
{
	int r;

	*o = (struct export_options){0};
	r = option_table_command(options, ARRAY_SIZE(options),
				 "export --model DIR --out DIR [--name value ...]", argc, argv, o,
				 e);
	if (r == 0 && !o->model)
		r = err_set(e, EINVAL, "--model DIR is required; --help lists the options");
	if (r == 0 && !o->out)
		r = err_set(e, EINVAL, "--out DIR is required; --help lists the options");
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
		r = weights_synthetic(o->seed, NULL, c, table, &w);
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

static int export_model(const struct export_options *o, struct err *e)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct weight *table = NULL;
	struct checkpoint *k = NULL;
	int r;

	if (!c)
		return err_no_memory(e);
	r = checkpoint_open(o->model, &k, e);
	if (r == 0)
		r = model_config_read(k, c, e);
	if (r == 0 && !o->synthetic && checkpoint_names(k) == CHECKPOINT_GGUF)
		r = err_set(e, ENOTSUP,
			    "%s: weights of GGUF files are not written as Hugging Face's: they are "
			    "changed ones",
			    o->model);
	if (r == 0 && !(table = layers_weights(c)))
		r = err_no_memory(e);
	if (r == 0)
		r = write_model(o, k, c, table, e);
	if (r == 0)
		r = copy_texts(o, e);
	checkpoint_close(k);
	free(table);
	free(c);
	return r;
}

int cli_export(int argc, char **argv, struct err *e)
{
	struct export_options o;
	int r = parse_options(argc, argv, &o, e);

	if (r == 0)
		r = export_model(&o, e);
	if (r == 0)
		printf("%s: written\n", o.out);
	return r;
}
