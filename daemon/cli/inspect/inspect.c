/* `tigon inspect MODEL`: what a checkpoint holds, and what of it fits where. Nothing is loaded, and no kernel
 * compiled. */
#include "daemon/cli/inspect/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/options.h"
#include "daemon/cli/command.h"
#include "daemon/engine_options.h"
#include "daemon/program_cache.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"

/* Work space is that of tigond with its default options. */
enum { MAX_SEQS = 64, MAX_PREFILL_TOKENS = 2048 };

struct inspect_options {
	bool json;
	uint64_t memory; /* 0: that of the device */
	uint32_t context;
	const char *device, *program_cache;
	unsigned kv_dtype; /* enum engine_kv_dtype */
};

#define AT(member) offsetof(struct inspect_options, member)

static const struct option_def table[] = {
	{"json", NULL, OPTION_FLAG, AT(json), .text = "print JSON"},
	{"memory", "BYTES", OPTION_SIZE, AT(memory), .min = 1, .max = UINT64_C(1) << 50,
	 .initial_text = "what each device lets tigond take",
	 .text = "how much memory the model may take: 24G"},
	{"context", "TOKENS", OPTION_NUMBER_32, AT(context), .min = 1, .max = 1 << 30,
	 .initial_text = "the model's", .text = "length of the sequences that are counted"},
	{"kv-dtype", "TYPE", OPTION_CHOICE, AT(kv_dtype), .choices = engine_kv_dtype_names,
	 .text = "as in tigond"},
	{"device", "WHICH", OPTION_TEXT, AT(device), .initial_text = "all",
	 .text = "as in tigond; tigon devices lists them"},
	{"program-cache", "DIR", OPTION_TEXT, AT(program_cache),
	 .initial_text = "tigon below the user's cache directory",
	 .text = "where the devices' abilities are kept; an empty DIR keeps none"},
};

/* Reads the command line. -ECANCELED: it has --help, and the help was printed. */
static int parse_options(int argc, char **argv, const char **path, struct inspect_options *o,
			 struct err *e)
{
	bool named = argc > 1 && argv[1][0] != '-';
	int r;

	*o = (struct inspect_options){0};
	r = option_table_command(table, ARRAY_SIZE(table), "inspect MODEL [--name value ...]",
				 argc - named, argv + named, o, e);
	if (r == 0 && !named)
		r = err_set(e, EINVAL,
			    "a folder or a GGUF file is wanted: tigon inspect MODEL; --help says "
			    "more");
	*path = named ? argv[1] : NULL;
	return r;
}

/* ---- the checkpoint ---- */

static bool has_text(const struct checkpoint *k, enum checkpoint_part part, struct err *why)
{
	struct checkpoint_text text;
	int r = checkpoint_read(k, part, &text, why);

	checkpoint_text_release(&text);
	return r == 0;
}

/* Reads the configuration and looks for every weight, as tigond does. A reason to refuse the model goes to i->refused;
 * only lack of memory is an error. */
static int read_model(struct inspection *i, struct checkpoint *k, struct err *e)
{
	struct weight *weights;
	struct weights *w = NULL;
	struct err why = {0};

	i->config = calloc(1, sizeof(*i->config));
	if (!i->config)
		return err_no_memory(e);
	if (model_config_read(k, i->config, &why) < 0) {
		i->refused = why;
		free(i->config);
		i->config = NULL;
		return 0;
	}
	weights = layers_weights(i->config);
	i->n_parameters = layers_parameters(i->config);
	if (!weights)
		return err_no_memory(e);
	if (weights_open(k, i->config, weights, &w, &why) < 0)
		i->refused = why;
	weights_close(w);
	free(weights);
	return 0;
}

static int read_checkpoint(struct inspection *i, struct checkpoint *k, struct err *e)
{
	const struct tensor *list;
	size_t n;
	int r = checkpoint_tensors(k, &list, &n, e);

	if (r == 0)
		r = tensor_groups(list, n, &i->groups, &i->n_groups, e);
	if (r == 0)
		r = tensor_types(list, n, &i->types, &i->n_types, e);
	i->format = checkpoint_names(k) == CHECKPOINT_GGUF ? "GGUF" : "safetensors";
	i->tokenizer = has_text(k, CHECKPOINT_TOKENIZER, &i->no_tokenizer);
	i->chat_template = has_text(k, CHECKPOINT_TEMPLATE, &i->no_template);
	return r < 0 ? r : read_model(i, k, e);
}

/* ---- the devices ---- */

/* Fills in what fits into f->memory beside weights and work space. A sequence takes a state, and one more is kept. */
static void fit(const struct inspection *i, struct inspect_fit *f)
{
	const struct engine_needs *n = &f->needs;
	uint64_t rest = n->weight_bytes + n->scratch_bytes,
		 most = i->config->max_position_embeddings;
	uint64_t length = CEIL_DIV((uint64_t)i->context, (uint64_t)INSPECT_PAGE) * n->page_bytes;
	uint64_t states = 2 * n->slot_bytes;

	f->left = f->memory > rest ? f->memory - rest : 0;
	if (!f->left || f->left < states)
		return;
	f->tokens = n->page_bytes ? (f->left - states) / n->page_bytes * INSPECT_PAGE : most;
	f->tokens = MIN(f->tokens, most);
	f->sequences = (f->left - n->slot_bytes) / MAX(length + n->slot_bytes, UINT64_C(1));
}

/* Asks a device about both types of elements. */
static int ask_device(struct inspection *i, const struct inspect_options *o, const char *device,
		      const char *cache, struct err *e)
{
	struct engine_options options = {
		.model_dir = i->path,
		.device = device,
		.kv_dtype = (enum engine_kv_dtype)o->kv_dtype,
		.program_cache = cache,
		.page_tokens = INSPECT_PAGE,
		.max_seqs = MAX_SEQS,
		.max_prefill_tokens = MAX_PREFILL_TOKENS,
	};
	int r = 0;

	for (int dtype = ENGINE_FLOAT32; r == 0 && dtype <= ENGINE_BFLOAT16; dtype++) {
		struct inspect_fit *f = &i->fits[i->n_fits];

		options.dtype = f->dtype = (enum engine_dtype)dtype;
		r = engine_measure(&options, &f->needs, e);
		f->memory = o->memory ? o->memory : f->needs.budget_bytes;
		if (r == 0) {
			fit(i, f);
			i->n_fits++;
		}
	}
	return r;
}

/* Asks all devices, or the one that was named. That there is none is no error: i->no_device says it. */
static int ask_devices(struct inspection *i, const struct inspect_options *o, const char *cache,
		       struct err *e)
{
	int n = 1, r = 0;

	if (!o->device)
		n = engine_device_count(&i->no_device);
	if (n <= 0)
		return 0;
	i->fits = calloc((size_t)n * 2, sizeof(*i->fits));
	if (!i->fits)
		return err_no_memory(e);
	for (int d = 0; r == 0 && d < n; d++) {
		char number[16];

		snprintf(number, sizeof(number), "%d", d);
		r = ask_device(i, o, o->device ? o->device : number, cache, e);
	}
	return r;
}

static void release(struct inspection *i)
{
	free(i->config);
	free(i->groups);
	free(i->types);
	free(i->fits);
}

int cli_inspect(int argc, char **argv, struct err *e)
{
	struct inspection i = {0};
	struct inspect_options o;
	struct checkpoint *k = NULL;
	const char *cache = NULL;
	char place[4096];
	int r = parse_options(argc, argv, &i.path, &o, e);

	if (r == 0)
		r = program_cache_choose(o.program_cache, place, sizeof(place), &cache, e);
	if (r < 0)
		return r;
	engine_settle_environment(cache);
	r = checkpoint_open(i.path, &k, e);
	if (r == 0)
		r = read_checkpoint(&i, k, e);
	if (r == 0 && !i.refused.code) {
		i.context = o.context ? o.context : i.config->max_position_embeddings;
		r = ask_devices(&i, &o, cache, e);
	}
	if (r == 0 && o.json)
		r = inspect_print_json(&i, e);
	else if (r == 0)
		inspect_print(&i);
	release(&i);
	checkpoint_close(k); /* it has the tensors of the groups */
	return r;
}
