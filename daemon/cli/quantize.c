/* `tigon quantize IN OUT.gguf --type RECIPE`: writes a model as a GGUF file with weights of few bits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "daemon/cli/command.h"
#include "engine/cache_size.h"
#include "engine/checkpoint/quantize.h"
#include "engine/layers/weights.h"

enum { TYPES_MAX = 256 };

/* Values of --tensor-type, in their order. */
struct types {
	const char *v[TYPES_MAX]; /* borrowed from argv */
	size_t n;
};

struct quantize_command {
	const char *in, *out, *recipe, *name; /* borrowed from argv */
	struct types types;
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
	return 0;
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

static int write_model(const struct quantize_command *o, struct checkpoint *k,
		       struct model_config *c, struct quantize_result *ret, struct err *e)
{
	struct log_progress progress = {.next_ns = clock_now_ns() + UINT64_C(500000000)};
	char *name = o->name ? strdup(o->name) : base_name(o->in);
	struct weight *weights = NULL;
	int r = model_config_read(k, c, e);

	if (r == 0 && (!name || !(weights = layers_weights(c))))
		r = err_no_memory(e);
	if (r == 0)
		r = quantize(k, c, weights,
			     &(struct quantize_options){.recipe = o->recipe,
							.types = o->types.v,
							.n_types = o->types.n,
							.name = name,
							.progress = show,
							.user = &progress},
			     o->out, ret, e);
	if (r == 0)
		log_progress_end(&progress, "%s of %s", size_text(ret->bytes).s,
				 size_text(ret->bytes).s);
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
