/* `tigon quantize IN OUT.gguf --type RECIPE`: writes a model as a GGUF file with weights of few bits. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "daemon/cli/command.h"
#include "daemon/cli/eval/reader.h"
#include "daemon/engine_options.h"
#include "daemon/program_cache.h"
#include "engine/cache_size.h"
#include "engine/checkpoint/quantize.h"
#include "engine/layers/weights.h"

enum {
	TYPES_MAX = 256,
	WINDOW = 512,	    /* tokens of a text that are read at once, each window from nothing */
	TEXT_MAX = 1 << 30, /* bytes */
};

/* Values of --tensor-type, in their order. */
struct types {
	const char *v[TYPES_MAX]; /* borrowed from argv */
	size_t n;
};

struct quantize_command {
	const char *in, *out, *recipe, *name, *importance; /* borrowed from argv */
	struct types types;
	struct engine_options engine; /* of --importance */
	char program_cache[4096];
};

static int take_type(const struct option_def *d, const char *value, void *member, struct err *e)
{
	struct types *t = member;

	if (t->n == TYPES_MAX)
		return err_set(e, EINVAL, "--%s: it may be given %d times", d->name, TYPES_MAX);
	t->v[t->n++] = value;
	return 0;
}

#define AT(member) offsetof(struct quantize_command, member)

static const struct option_def table[] = {
	{"type", "RECIPE", OPTION_TEXT, AT(recipe),
	 .text = "types of the matrices: Q4_K_M, Q8_0, ... (man tigon lists them)"},
	{"tensor-type", "PATTERN=TYPE", OPTION_OWN, AT(types), .take = take_type,
	 .initial_text = "none",
	 .text = "another type for the matrices whose names match: 'blk.*.ffn_down.weight=Q6_K'"},
	{"name", "NAME", OPTION_TEXT, AT(name), .initial_text = "that of the folder",
	 .text = "the model's name in the file, if the model is no GGUF file"},
	{"importance", "FILE", OPTION_TEXT, AT(importance), .initial_text = "none",
	 .text = "a text in UTF-8, or an imatrix of llama.cpp: how much columns of matrices count"},
	{"device", "WHICH", OPTION_TEXT, AT(engine.device),
	 .initial_text = "the first GPU, else the first device",
	 .text = "where the model reads the text of --importance, as in tigond"},
	{"dtype", "TYPE", OPTION_CHOICE, AT(engine.dtype), .choices = engine_dtype_names,
	 .initial = 1, .text = "number format in which it does"},
	{"program-cache", "DIR", OPTION_TEXT, AT(engine.program_cache),
	 .initial_text = "tigon below the user's cache directory",
	 .text = "where compiled programs are kept; an empty DIR keeps none"},
};

/* Reads the command line. -ECANCELED: it has --help, and the help was printed. */
static int parse_options(int argc, char **argv, struct quantize_command *o, struct err *e)
{
	int named = 0, r;

	*o = (struct quantize_command){0};
	while (named < 2 && argc > named + 1 && argv[named + 1][0] != '-')
		named++;
	r = option_table_command(table, ARRAY_SIZE(table),
				 "quantize IN OUT.gguf --type RECIPE [--name value ...]",
				 argc - named, argv + named, o, e);
	if (r < 0)
		return r;
	if (named < 2)
		return err_set(e, EINVAL,
			       "a model and a file to write are wanted: tigon quantize IN OUT.gguf "
			       "--type RECIPE; --help says more");
	if (!o->recipe)
		return err_set(e, EINVAL, "--type RECIPE is required; there are %s",
			       quantize_recipes());
	o->in = argv[1];
	o->out = argv[2];
	o->engine.model_dir = o->in;
	return o->importance
		       ? program_cache_choose(o->engine.program_cache, o->program_cache,
					      sizeof(o->program_cache), &o->engine.program_cache, e)
		       : 0;
}

/* Returns the last name of a path, new. NULL: out of memory. */
static char *base_name(const char *path)
{
	char *real = realpath(path, NULL);
	const char *slash = real ? strrchr(real, '/') : NULL;
	char *name = strdup(slash && slash[1] ? slash + 1 : path);

	free(real);
	return name;
}

static void show(void *user, const char *name, uint64_t done, uint64_t all)
{
	log_progress(user, clock_now_ns(), all ? (double)done / (double)all : 1, "%s of %s, %s",
		     size_text(done).s, size_text(all).s, name);
}

/* ---- --importance ---- */

/* Reads all windows of a text; the last one may be shorter. begin: the token that each begins with, -1: the text's. */
static int read_windows(struct reader *r, struct ids *ids, int32_t begin, struct err *e)
{
	struct log_progress progress = {.next_ns = clock_now_ns()};
	int error = 0;

	for (size_t at = 0; error == 0 && at < ids->len; at += WINDOW) {
		uint32_t n = (uint32_t)MIN(ids->len - at, (size_t)WINDOW);

		if (begin >= 0)
			ids->v[at] = begin;
		error = reader_step(r, ids->v + at, 0, n, 0, 0, e);
		if (error == 0)
			log_progress(&progress, clock_now_ns(), (double)(at + n) / (double)ids->len,
				     "importance: %zu of %zu tokens read", at + n, ids->len);
	}
	log_progress_end(&progress, "importance: %zu tokens read", ids->len);
	return error;
}

/* Has the model read a text, whose squares of inputs are *ret, new. */
static int read_text(const struct quantize_command *o, struct reader *r, const struct buf *text,
		     struct importance **ret, struct err *e)
{
	struct ids ids = {0};
	int32_t begin = -1;
	int error = reader_open(r, &o->engine, 1, e);
	uint32_t window = MIN((uint32_t)WINDOW, r->config.max_position_embeddings);

	if (error == 0)
		error = reader_encode(r, buf_str(text), text->len, &ids, &begin, e);
	if (error == 0 && ids.len < 2)
		error = err_set(e, EINVAL, "the text has no two tokens");
	if (error == 0 && window < WINDOW)
		error = err_set(e, ENOTSUP, "the model goes to %u tokens, fewer than %d", window,
				WINDOW);
	if (error == 0)
		error = reader_load(r, WINDOW, WINDOW, false, e);
	if (error == 0 && !(*ret = importance_new(r->config.n_layers)))
		error = err_no_memory(e);
	if (error == 0) {
		engine_gather(r->engine, *ret);
		error = read_windows(r, &ids, begin, e);
	}
	if (error == 0 && importance_failed(*ret))
		error = err_no_memory(e);
	ids_release(&ids);
	return error;
}

/* What --importance says: a text has been read, or a file of llama.cpp's has the sums. */
struct importances {
	struct importance *of_text; /* owned; NULL: there is no text */
	struct gguf_file sums;
	struct buf file; /* which sums borrows */
	bool has_sums;
};

static int read_sums(const struct quantize_command *o, struct importances *ret, struct err *e)
{
	char type[16];
	int r = gguf_file_read(o->importance, buf_str(&ret->file), ret->file.len, &ret->sums, e);

	ret->has_sums = true;
	gguf_text(r == 0 ? gguf_find(&ret->sums, "general.type") : NULL, type, sizeof(type));
	return r == 0 && strcmp(type, "imatrix") != 0
		       ? err_set(e, EINVAL, "%s: it is no file of an importance matrix",
				 o->importance)
		       : r;
}

static int read_importance(const struct quantize_command *o, struct importances *ret, struct err *e)
{
	struct reader *r;
	int error;

	if (!o->importance)
		return 0;
	error = file_read(AT_FDCWD, o->importance, o->importance, &ret->file, e);
	if (error == 0 && gguf_magic(buf_str(&ret->file), ret->file.len))
		return read_sums(o, ret, e);
	r = calloc(1, sizeof(*r));
	if (error == 0)
		error = r ? read_text(o, r, &ret->file, &ret->of_text, e) : err_no_memory(e);
	if (error < 0)
		err_prefix(e, "--importance %s", o->importance);
	if (r)
		reader_close(r);
	free(r);
	return error;
}

/* ---- the command ---- */

static int write_model(const struct quantize_command *o, struct checkpoint *k,
		       struct model_config *c, struct quantize_result *ret, struct err *e)
{
	char *name = o->name ? strdup(o->name) : base_name(o->in);
	struct importances importances = {0};
	struct log_progress progress;
	struct weight *weights = NULL;
	int r = model_config_read(k, c, e);

	buf_init(&importances.file, TEXT_MAX);
	if (r == 0)
		r = read_importance(o, &importances, e);
	progress = (struct log_progress){.next_ns = clock_now_ns() + UINT64_C(500000000)};
	if (r == 0 && (!name || !(weights = layers_weights(c))))
		r = err_no_memory(e);
	if (r == 0)
		r = quantize(k, c, weights,
			     &(struct quantize_options){.recipe = o->recipe,
							.types = o->types.v,
							.n_types = o->types.n,
							.name = name,
							.importance = importances.of_text,
							.squares = importances.has_sums
									   ? &importances.sums
									   : NULL,
							.progress = show,
							.user = &progress},
			     o->out, ret, e);
	if (r == 0)
		log_progress_end(&progress, "%s of %s", size_text(ret->bytes).s,
				 size_text(ret->bytes).s);
	importance_free(importances.of_text);
	if (importances.has_sums)
		gguf_file_release(&importances.sums);
	buf_release(&importances.file);
	free(weights);
	free(name);
	return r;
}

int cli_quantize(int argc, char **argv, struct err *e)
{
	struct model_config *c;
	struct quantize_command o;
	struct quantize_result result = {0};
	struct checkpoint *k = NULL;
	int r = parse_options(argc, argv, &o, e);

	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_no_memory(e);
	r = checkpoint_open(o.in, &k, e);
	if (r == 0)
		r = write_model(&o, k, c, &result, e);
	checkpoint_close(k);
	free(c);
	if (r < 0)
		return r;
	print_plain(stdout, o.out);
	printf(": %llu tensors, %s, %.2f bits a weight%s\n", (unsigned long long)result.n_tensors,
	       size_text(result.bytes).s, (double)result.bytes * 8 / (double)result.elements,
	       result.tokenizer ? "" : "; the model has no tokenizer");
	return 0;
}
