/* Opens a model on a device: plans the memory, allocates it, fills it. runner.c runs plans, copies.c copies. */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private.h"
#include "engine/block.h"
#include "engine/cache_size.h"
#include "engine/copies.h"
#include "engine/device.h"
#include "engine/dump.h"
#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/profile.h"
#include "engine/runner.h"
#include "kernels/library.h"
#include "kernels/peak.h"
#include "kernels/probe.h"
#include "kernels/quant.h"

/* The share of a device's memory that the engine takes unless an option says how much. */
#define DEFAULT_SHARE 0.9

/* The loading of weights is mentioned in the log only if it takes longer than this, in ns. */
#define QUIET_NS UINT64_C(100000000)

struct engine {
	struct engine_info info;
	struct device device;
	struct kernels *kernels;
	enum kernel_variant variant;
	uint32_t abilities; /* of the device (kernels/probe.h) */
	bool one_launch;    /* a decode step can be one launch */
	struct memory_plan *plan, *cache_plan;
	struct model model;
	struct dump *dump;
	struct step_limits limits;
	struct runner *runner;
	struct copies copies;
	struct engine_counters
		counters; /* runner and copies count; launches are counted by the kernels */
	engine_on_layer *on_layer; /* or NULL */
	void *on_layer_user;
	const struct plan *submitting; /* the plan of engine_submit, while engine_submit runs */
	/* launches until the end of warm_up, which do not count; 0: warm_up ran no step */
	uint64_t warm_launches;
};

/* ---- opening ---- */

void engine_settle_environment(const char *program_cache)
{
	char pocl[4096];

	device_settle_environment();
	if (!program_cache)
		return;
	/* PoCL keeps compiled work-group functions in POCL_CACHE_DIR. If neither it nor HOME is set, PoCL uses /tmp. */
	snprintf(pocl, sizeof(pocl), "%s/pocl", program_cache);
	setenv("POCL_CACHE_DIR", pocl, 0);
}

static int prepare_cache(const char *dir, struct err *e)
{
	struct stat st;
	char pocl[4096];
	int r;

	if (!dir)
		return 0;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "--program-cache %s: %s", dir, strerror(errno));
	/* PoCL's cache goes below `dir`. If `dir` is not a directory, PoCL would report only that there is no
	 * device. */
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "--program-cache %s: not a directory", dir);
	/* Users who may write to the directory decide which programs run on the device, and PoCL runs these programs in
	 * this process. */
	r = private_directory(dir, e);
	if (r < 0) {
		err_prefix(e, "--program-cache");
		return r;
	}
	library_clean(dir);
	snprintf(pocl, sizeof(pocl), "%s/pocl", dir);
	mkdir(pocl, 0755);
	library_clean(pocl);
	engine_settle_environment(dir);
	return 0;
}

static int choose_kernels(enum engine_kernels wanted, const struct device *d, uint32_t abilities,
			  enum kernel_variant *ret, struct err *e)
{
	static const enum kernel_variant of[] = {
		[ENGINE_KERNELS_GENERIC] = KERNELS_GENERIC,
		[ENGINE_KERNELS_X86] = KERNELS_X86,
		[ENGINE_KERNELS_NVIDIA] = KERNELS_NVIDIA,
	};

	if (wanted == ENGINE_KERNELS_AUTO) {
		*ret = kernels_best_variant(abilities);
		return 0;
	}
	if (!kernels_supported(of[wanted], abilities))
		return err_set(e, ENOTSUP, "--kernels %s: %s cannot run them",
			       kernels_variant_name(of[wanted]), d->name);
	*ret = of[wanted];
	return 0;
}

static uint64_t budget_of(const struct engine_options *o, const struct device *d)
{
	double share = o->device_memory_share > 0 ? o->device_memory_share : DEFAULT_SHARE;

	return o->device_memory ? o->device_memory : (uint64_t)((double)d->memory * share);
}

/* Returns the most bytes that the cache's buffers take beside pages and slots: for work space, and because their sizes
 * are rounded up. */
static uint64_t cache_slack(const struct engine *g)
{
	uint64_t buffers = 0, most, work = model_cache_work(&g->model, &most);

	for (uint32_t i = 0; i < g->info.model.n_layers; i++)
		buffers += g->model.layers[i].n_parts;
	return buffers * g->device.alignment + work;
}

/* Checks that weights and work space fit into the budget. saved: how many of the planned bytes of weights are not
 * needed, because coding (kernels/coded.h) has saved or may save them. -EINVAL: an option allows more memory than the
 * device has. -ENOMEM: weights and work space do not fit. */
static int check_budget(struct engine *g, const struct engine_options *o, uint64_t saved,
			struct err *e)
{
	uint64_t rest = memory_plan_total(g->plan) - saved, budget = budget_of(o, &g->device);

	g->info.budget_bytes = budget;
	if (g->device.memory && o->device_memory > g->device.memory)
		return err_set(e, EINVAL, "--device-memory allows %s, and %s has %s",
			       size_text(budget).s, g->device.name, size_text(g->device.memory).s);
	if (rest + cache_slack(g) > budget)
		return err_set(e, ENOMEM,
			       "the model needs at least %s (weights %s, work space %s) and "
			       "--device-memory allows %s of the %s that %s has",
			       size_text(rest).s,
			       size_text(memory_plan_bytes(g->plan, MEMORY_WEIGHTS) - saved).s,
			       size_text(memory_plan_bytes(g->plan, MEMORY_SCRATCH)).s,
			       size_text(budget).s, size_text(g->device.memory).s, g->device.name);
	return 0;
}

/* Returns what the cache's numbers depend on and is known before anything is planned. */
static struct cache_wish first_wish(const struct engine *g, const struct engine_options *o)
{
	const struct model_config *c = &g->info.model;
	uint32_t number = o->kv_dtype == ENGINE_KV_INT8 ? 1 : o->dtype == ENGINE_BFLOAT16 ? 2 : 4;

	return (struct cache_wish){
		.budget = budget_of(o, &g->device),
		.page_bytes = layer_part_bytes(c, number, o->page_tokens, TIER_PAGE),
		.asked = o->cache_memory,
		.asked_share = o->cache_memory_share,
		.max_seqs = o->max_seqs,
		.fewer_seqs = o->fewer_seqs,
		.page_tokens = o->page_tokens,
		.max_model_len = o->max_model_len ? o->max_model_len : c->max_position_embeddings,
		.length_asked = o->max_model_len != 0,
		.shared = g->device.cpu,
	};
}

/* Chooses the numbers of KV pages and slots (cache_size.h) and plans their buffers. The weights are on the device
 * already, so it is known how many of their planned bytes coding has saved (`saved`). */
static int size_cache(struct engine *g, const struct engine_options *o, uint64_t saved,
		      struct err *e)
{
	struct cache_wish wish = first_wish(g, o);
	struct cache_size size;
	uint64_t work;
	int r;

	r = check_budget(g, o, saved, e);
	if (r < 0)
		return r;
	(void)model_cache_work(&g->model, &work);
	wish.room = wish.budget - (memory_plan_total(g->plan) - saved) - cache_slack(g);
	wish.max_buffer = g->device.max_alloc - MIN(work, g->device.max_alloc);
	wish.page_buffer = model_piece_most(&g->model, TIER_PAGE);
	wish.slot_bytes = model_item_bytes(&g->model, TIER_STATE);
	wish.slot_buffer = model_piece_most(&g->model, TIER_STATE);
	r = cache_size_choose(&wish, &size, e);
	if (r < 0)
		return r;
	model_plan_cache(&g->model, g->cache_plan, size.n_pages, size.n_slots);
	g->limits.max_model_len = size.max_model_len;
	g->limits.n_pages = size.n_pages;
	g->limits.n_slots = size.n_slots;
	g->info.max_seqs = size.max_seqs;
	g->info.page_bytes = wish.page_bytes;
	g->info.slot_bytes = wish.slot_bytes;
	return 0;
}

static int open_weights(const struct engine_options *o, struct checkpoint *k,
			const struct model_config *c, struct weights **ret, struct err *e)
{
	struct weight *table = layers_weights(c);
	int r;

	if (!table)
		return err_no_memory(e);
	if (!o->synthetic && o->synthetic_types)
		r = err_set(e, EINVAL, "--synthetic-types needs --synthetic-weights");
	else if (!o->synthetic)
		r = weights_open(k, c, table, ret, e);
	else if ((r = weights_synthetic(o->synthetic_seed, o->synthetic_types, c, table, ret)) ==
		 -EINVAL)
		err_set(e, EINVAL, "--synthetic-types %s: no such type or recipe",
			o->synthetic_types);
	else if (r < 0)
		err_set(e, -r, "synthetic weights: %s", strerror(-r));
	free(table);
	return r;
}

static int load_weights(struct engine *g, const struct weights *w, uint64_t *ret_saved,
			uint64_t *ret_plain, struct err *e)
{
	struct packer p = {
		.context = g->device.context,
		.queue = g->device.queue,
		.weights = w,
		.kernels = g->kernels,
		.all = memory_plan_bytes(g->plan, MEMORY_WEIGHTS),
		.progress = {.next_ns = clock_now_ns() + QUIET_NS},
	};
	struct staging staging;

	if (!g->device.cpu && staging_open(&staging, p.context, p.queue, PACK_STAGING))
		p.staging = &staging;
	model_pack(&g->model, &p);
	clFinish(g->device.queue);
	if (p.staging)
		staging_close(&staging);
	if (p.error.code) {
		if (e)
			*e = p.error;
		return -p.error.code;
	}
	log_progress_end(&p.progress, "loaded %.2f GiB of weights", (double)p.all / (1 << 30));
	*ret_saved = p.saved;
	*ret_plain = p.plain;
	return kernels_status(g->kernels, e);
}

/* Sets the types of the model's matrices. Inputs of products are int8 if some matrix has codes that are whole numbers,
 * but for the exact way, whose elements are floats, and on tensor cores, which multiply decoded weights. */
static void set_types(struct kernel_shape *s, uint32_t types, enum kernel_variant variant)
{
	if (!(types & ~1u))
		return;
	s->quant = types;
	s->int8 = variant != KERNELS_NVIDIA && s->bf16 && types & ~(1u | 1u << QUANT_E4M3) &&
		  s->head_dim % 32 == 0 && s->value_dim % 32 == 0;
}

/* Says how many of the weights that safetensors files hold as codes need the memory of floats. */
static void log_codes(const struct weights *w)
{
	uint32_t kept, floats;

	weights_count_codes(w, &kept, &floats);
	if (floats)
		log_info(
			"%u of %u quantised weights become numbers of --dtype, because the kernels "
			"do not read their codes",
			floats, kept + floats);
}

/* Opens the device, and the kernels for the model's shape on it. *ret gets that shape. only: as in it. */
static int open_kernels(struct engine *g, const struct engine_options *o, struct weights *w,
			const char *only, struct kernel_shape *ret, struct err *e)
{
	uint64_t start = clock_now_ns();
	struct cache_wish wish;
	int r = prepare_cache(o->program_cache, e);

	if (r == 0)
		r = device_open(o->device, &g->device, e);
	if (r == 0 && o->profile)
		r = device_time_commands(&g->device, e);
	if (r == 0)
		r = probe_device(g->device.id, o->program_cache, false, &g->abilities, e);
	if (r == 0)
		r = choose_kernels(o->kernels, &g->device, g->abilities, &g->variant, e);
	if (r < 0)
		return r;
	model_shape(&g->info.model, o->dtype == ENGINE_BFLOAT16, o->page_tokens,
		    o->dump_activations, ret);
	log_codes(w);
	set_types(ret, weights_quant(w), g->variant);
	ret->quant_embed = weights_find(w, WEIGHT_EMBED, 0)->quant != 0;
	ret->kv_int8 = o->kv_dtype == ENGINE_KV_INT8;
	ret->plain_weights = o->plain_weights;
	ret->separate_launches = o->separate_launches;
	ret->unoptimised = o->unoptimised;
	ret->only = only;
	wish = first_wish(g, o);
	ret->max_context = cache_size_longest(&wish);
	r = kernels_open(g->device.context, g->device.id, g->device.queue, ret, g->variant,
			 g->abilities, o->program_cache, &o->tuning, &g->kernels, e);
	log_debug("kernels ready after %.0f ms", (double)(clock_now_ns() - start) / 1e6);
	return r;
}

/* Creates the dump and writes its file, still empty, so that a path that cannot be written is reported at once. */
static int open_dump(struct engine *g, const struct engine_options *o, struct err *e)
{
	int r;

	if (!o->dump_activations)
		return 0;
	g->dump = dump_new(o->dump_activations, g->device.queue);
	if (!g->dump)
		return err_no_memory(e);
	r = dump_write(g->dump, e);
	if (r < 0)
		err_prefix(e, "--dump-activations");
	return r;
}

/* A step's offsets have 32 bits in some kernels. */
static int check_tokens(const struct engine *g, const struct engine_options *o, struct err *e)
{
	uint32_t most = kernels_most_tokens(g->kernels);

	if ((uint64_t)o->max_prefill_tokens + o->max_seqs <= most)
		return 0;
	return err_set(
		e, EINVAL,
		"--max-batched-tokens %u and --max-num-seqs %u are together more than the %u "
		"tokens that the %s kernels compute in a step of this model",
		o->max_prefill_tokens, o->max_seqs, most, kernels_variant_name(g->variant));
}

/* Sets g->limits and g->model from configuration and options, and plans weights and work space. Allocates no memory of
 * the device yet. */
static int plan_model(struct engine *g, const struct engine_options *o, const struct weights *w,
		      const struct kernel_shape *shape, struct err *e)
{
	const struct model_config *c = &g->info.model;
	int r = check_tokens(g, o, e);

	if (r < 0)
		return r;
	g->limits = (struct step_limits){
		.max_prefill_tokens = o->max_prefill_tokens,
		.max_seqs = o->max_seqs,
		.max_model_len = shape->max_context,
		.page_tokens = o->page_tokens,
		.tile_tokens = kernels_least_tile_tokens(g->kernels),
		.vocab_size = c->vocab_size,
		.split_slots = kernels_split_slots(g->kernels),
		.window = c->n_layers_of[LAYER_SLIDING] ? c->sliding_window : 0,
		.ring_pages = layer_ring_pages(c, o->page_tokens),
		.hidden = KERNEL_LD(c->hidden_size),
	};
	g->one_launch = kernels_has_decode_step(g->kernels);
	g->model = (struct model){
		.config = c,
		.kernels = g->kernels,
		.weights = w,
		.shape = *shape,
		.max_tokens = o->max_prefill_tokens + o->max_seqs,
		.max_rows = o->max_seqs,
		.step_ints = step_table_ints(&g->limits),
		.result_ints = step_result_ints(&g->limits),
		.dump = g->dump,
		.decode_step = g->one_launch,
	};
	g->model.step_ints += model_work_ints(&g->model);
	g->plan = memory_plan_new(&g->device);
	g->cache_plan = memory_plan_new(&g->device);
	if (!g->plan || !g->cache_plan)
		return err_no_memory(e);
	return model_plan(&g->model, g->plan, e);
}

/* Allocates weights and work space and fills the weights, then allocates the cache in the memory that is left.
 * *ret_saved, *ret_plain: as in struct packer (checkpoint/pack.h). */
static int fill_memory(struct engine *g, const struct engine_options *o, const struct weights *w,
		       uint64_t *ret_saved, uint64_t *ret_plain, struct err *e)
{
	/* Before any weight is read: would the model fit if coding saved as much as it can? */
	int r = check_budget(g, o, g->model.may_save, e);

	if (r == 0)
		r = memory_plan_allocate(g->plan, e);
	if (r == 0)
		r = load_weights(g, w, ret_saved, ret_plain, e);
	if (r == 0)
		r = size_cache(g, o, *ret_saved, e);
	if (r == 0)
		r = memory_plan_allocate(g->cache_plan, e);
	if (r == 0)
		model_addresses(&g->model);
	return r;
}

/* Fills in the rest of engine_info: the device, the cuts, and the sizes of cache and memory. */
static void fill_info(struct engine *g, uint64_t saved, uint64_t plain)
{
	struct engine_info *i = &g->info;

	snprintf(i->device_name, sizeof(i->device_name), "%s", g->device.name);
	snprintf(i->driver, sizeof(i->driver), "%s", g->device.driver);
	snprintf(i->kernels, sizeof(i->kernels), "%s", kernels_variant_name(g->variant));
	probe_names(g->abilities, i->abilities, sizeof(i->abilities));
	clGetDeviceInfo(g->device.id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(i->compute_units),
			&i->compute_units, NULL);
	(void)kernels_other_bits(g->kernels, i->other_bits);
	i->tuning = kernels_tuning_use(g->kernels);
	i->n_pages = g->model.n_pages;
	i->n_slots = g->model.n_slots;
	i->max_model_len = g->limits.max_model_len;
	i->weight_bytes = memory_plan_bytes(g->plan, MEMORY_WEIGHTS) - saved;
	i->plain_bytes = i->weight_bytes + plain;
	i->kv_bytes = memory_plan_bytes(g->cache_plan, MEMORY_KV);
	i->state_bytes = memory_plan_bytes(g->cache_plan, MEMORY_STATE);
	i->scratch_bytes = memory_plan_bytes(g->plan, MEMORY_SCRATCH);
	i->n_parameters = layers_parameters(&i->model);
	i->on_cpu = g->device.cpu;
	i->types = g->model.shape.quant;
	i->int8 = g->model.shape.int8;
	if (g->model.shape.quant)
		i->quantised_bytes = (double)i->weight_bytes / (double)i->n_parameters;
}

/* Opens the device, compiles the kernels, and allocates and fills the memory. The weights' shapes were checked
 * before. */
static int open_device(struct engine *g, const struct engine_options *o, struct weights *w,
		       struct err *e)
{
	uint64_t start = clock_now_ns(), saved = 0, plain = 0;
	struct kernel_shape shape;
	int r = open_kernels(g, o, w, NULL, &shape, e);

	if (r == 0)
		r = open_dump(g, o, e);
	if (r == 0)
		r = plan_model(g, o, w, &shape, e);
	if (r == 0)
		r = fill_memory(g, o, w, &saved, &plain, e);
	g->info.copies_apart = o->copy_queue == ENGINE_COPIES_AUTO
				       ? !g->device.cpu
				       : o->copy_queue == ENGINE_COPIES_OWN;
	if (r == 0)
		r = copies_init(&g->copies, &g->device, &g->model, g->info.copies_apart,
				&g->counters, e);
	if (r == 0)
		r = runner_new(&g->device, &g->model, &g->limits, &g->copies, &g->counters,
			       &g->runner, e);
	if (r < 0)
		return r;
	fill_info(g, saved, plain);
	log_debug("model ready after %.0f ms", (double)(clock_now_ns() - start) / 1e6);
	return 0;
}

/* Runs the plan of a generated token. If the groups of a decode step in one launch do not all run at the same time on
 * this device, as beside another program that holds some of its multiprocessors, kernels are launched one by one from
 * now on. Their bits are the same. */
static int warm_up_decode(struct engine *g, const struct plan *plan, struct draw_result *results,
			  struct err *e)
{
	int r = engine_step(g, plan, results, e);

	if (r == 0 || !g->one_launch || !runner_given_up(g->runner))
		return r;
	log_warning("%s: %s, so kernels are launched one by one, which is slower", g->device.name,
		    e->text);
	g->one_launch = g->model.decode_step = false;
	r = runner_forgive(g->runner, e);
	return r < 0 ? r : engine_step(g, plan, results, e);
}

/* Runs a prompt of at most one chunk and one generated token, because a driver may compile a kernel at its first launch
 * (PoCL does), which would delay the first request. The two steps leave no trace: pages are written before they are
 * read, and a new sequence's state begins at zero. Does nothing while activations are dumped, because the dump would
 * get the two steps, or if a sequence may have only one token. */
static int warm_up(struct engine *g, struct err *e)
{
	const uint32_t pages[2] = {0, 1};
	int32_t tokens[CHUNK_TOKENS] = {0};
	uint32_t n = MIN((uint32_t)CHUNK_TOKENS, g->limits.max_model_len - 1);
	const struct sampling sampling = {.temperature = 1,
					  .top_p = 0.5f,
					  .top_k = 2,
					  .repetition_penalty = 2,
					  .want_logprobs = true};
	const struct plan_row prefill = {.tokens = tokens,
					 .pages = pages,
					 .n_tokens = n,
					 .n_pages = 1,
					 .state_src = STATE_ZERO};
	struct plan_row decode = {.tokens = tokens,
				  .pages = pages,
				  .n_tokens = 1,
				  .start = n - 1,
				  .n_pages = 1,
				  .decode = true};
	const struct plan_draw draw = {.sampling = &sampling};
	const struct plan_score score = {.next = tokens, .n_tokens = 1};
	const struct plan_pooling pooling = {.begins = true, .ends = true};
	const struct plan_seat_reset reset = {.prompt = tokens, .n_prompt = 1};
	struct plan plan = {.rows = &prefill,
			    .draws = &draw,
			    .scores = &score,
			    .poolings = &pooling,
			    .resets = &reset,
			    .n_rows = 1,
			    .n_prefill_rows = 1,
			    .n_prefill_tokens = n,
			    .n_draws = 1,
			    .n_resets = 1,
			    .n_scores = 1,
			    .n_scored_tokens = 1,
			    .n_poolings = 1};
	struct draw_result results[2];
	int r;

	if (!n || g->dump)
		return 0;
	if (kernels_compiled(g->kernels))
		log_info("running a first step, for which the driver compiles more");
	r = engine_step(g, &plan, results, e);
	if (r < 0)
		return r;
	plan.rows = &decode;
	plan.n_prefill_rows = plan.n_prefill_tokens = plan.n_resets = 0;
	plan.n_scores = plan.n_scored_tokens = plan.n_poolings = 0;
	r = warm_up_decode(g, &plan, results, e);
	g->counters = (struct engine_counters){0};
	g->warm_launches = kernels_launches(g->kernels);
	return r;
}

/* Opens and checks a model's files. *ret_checkpoint and *ret_weights are closed by the caller, also after an error. */
static int open_files(struct engine *g, const struct engine_options *o,
		      struct checkpoint **ret_checkpoint, struct weights **ret_weights,
		      struct err *e)
{
	int r = checkpoint_open(o->model_dir, ret_checkpoint, e);

	if (r == 0)
		r = model_config_read(*ret_checkpoint, &g->info.model, e);
	return r < 0 ? r : open_weights(o, *ret_checkpoint, &g->info.model, ret_weights, e);
}

int engine_measure(const struct engine_options *o, struct engine_needs *ret, struct err *e)
{
	struct engine *g = calloc(1, sizeof(*g));
	struct checkpoint *k = NULL;
	struct weights *w = NULL;
	struct kernel_shape shape;
	int r;

	if (!g)
		return err_no_memory(e);
	r = open_files(g, o, &k, &w, e);
	if (r == 0)
		r = open_kernels(g, o, w, "", &shape, e);
	if (r == 0)
		r = plan_model(g, o, w, &shape, e);
	if (r == 0) {
		*ret = (struct engine_needs){
			.weight_bytes = memory_plan_bytes(g->plan, MEMORY_WEIGHTS),
			.may_save = g->model.may_save,
			.scratch_bytes =
				memory_plan_bytes(g->plan, MEMORY_SCRATCH) + cache_slack(g),
			.page_bytes = model_item_bytes(&g->model, TIER_PAGE),
			.slot_bytes = model_item_bytes(&g->model, TIER_STATE),
			.budget_bytes = budget_of(o, &g->device),
		};
		snprintf(ret->device_name, sizeof(ret->device_name), "%s", g->device.name);
		snprintf(ret->kernels, sizeof(ret->kernels), "%s",
			 kernels_variant_name(g->variant));
	}
	weights_close(w);
	checkpoint_close(k);
	engine_close(g);
	return r;
}

void engine_gather(struct engine *g, struct importance *squares)
{
	g->model.importance = squares;
}

int engine_open(const struct engine_options *o, struct engine **ret, struct err *e)
{
	struct engine *g = calloc(1, sizeof(*g));
	struct checkpoint *k = NULL;
	struct weights *w = NULL;
	int r;

	if (!g)
		return err_no_memory(e);
	r = open_files(g, o, &k, &w, e);
	if (r == 0)
		r = open_device(g, o, w, e);
	weights_close(w);
	checkpoint_close(k);
	if (r == 0)
		r = warm_up(g, e);
	if (r < 0) {
		engine_close(g);
		return r;
	}
	*ret = g;
	return 0;
}

void engine_close(struct engine *g)
{
	if (!g)
		return;
	if (g->device.queue)
		clFinish(g->device.queue);
	copies_release(&g->copies);
	runner_free(g->runner);
	memory_plan_free(g->cache_plan);
	memory_plan_free(g->plan);
	kernels_close(g->kernels);
	dump_free(g->dump);
	device_close(&g->device);
	free(g->model.layers);
	free(g);
}

const struct engine_info *engine_info(const struct engine *g)
{
	return &g->info;
}

void engine_counters(const struct engine *g, struct engine_counters *ret)
{
	*ret = g->counters;
	ret->launches = kernels_launches(g->kernels) - g->warm_launches;
}

int engine_device_count(struct err *e)
{
	return device_count(e);
}

int engine_list_devices(FILE *out, struct err *e)
{
	int n = device_count(e), r = MIN(n, 0);

	for (int i = 0; r == 0 && i < n; i++)
		r = device_print((uint32_t)i, out, e);
	return r;
}

/* Writes the lines below the name of a device. */
static int report(const struct device *d, FILE *out, const char *program_cache, struct err *e)
{
	double launch_ns = 0, read = 0;
	uint32_t abilities = 0;
	char names[128];
	int r = probe_device(d->id, program_cache, true, &abilities, e);

	if (r < 0)
		return r;
	probe_names(abilities, names, sizeof(names));
	fprintf(out, "   kernels    %s\n   abilities  %s\n",
		kernels_variant_name(kernels_best_variant(abilities)), names);
	fflush(out);
	r = peak_quick(d->context, d->id, d->queue, program_cache, &launch_ns, &read, e);
	if (r == 0)
		fprintf(out, "   launch     %.1f us\n   reading    %.1f GB/s\n", launch_ns / 1e3,
			read / 1e9);
	return r;
}

int engine_report_devices(FILE *out, const char *program_cache, struct err *e)
{
	int r = prepare_cache(program_cache, e), n = r < 0 ? r : device_count(e), first = 0;

	for (int i = 0; i < n; i++) {
		struct device d = {0};
		struct err why;
		char which[16];

		snprintf(which, sizeof(which), "%d", i);
		r = device_print((uint32_t)i, out, &why);
		fflush(out);
		if (r == 0)
			r = device_open(which, &d, &why);
		if (r == 0)
			r = report(&d, out, program_cache, &why);
		device_close(&d);
		if (r < 0 && !first)
			first = err_set(e, -r, "device %d: %s", i, why.text);
	}
	return MIN(n, first);
}

/* ---- steps ---- */

int engine_submit(struct engine *g, const struct plan *plan, struct err *e)
{
	g->submitting = plan;
	return runner_submit(g->runner, plan, e);
}

int engine_wait(struct engine *g, struct draw_result *results, struct err *e)
{
	int r = runner_wait(g->runner, results, e);

	return r < 0 ? r : copies_check(&g->copies, e);
}

const float *engine_pooled(const struct engine *g, uint32_t pooling)
{
	return runner_pooled(g->runner, pooling);
}

int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e)
{
	int r;

	if (runner_queued(g->runner))
		return err_set(e, EBUSY, "a plan is queued already");
	r = engine_submit(g, plan, e);
	return r < 0 ? r : engine_wait(g, results, e);
}

/* ---- profiling ---- */

int engine_profile(struct engine *g, bool on, struct err *e)
{
	int r = kernels_profile(g->kernels, on, e);

	/* in a step of one launch the kernels cannot be told apart */
	g->model.decode_step = g->one_launch && (r < 0 || !on);
	return r;
}

struct kernels *engine_kernels(struct engine *g)
{
	return g->kernels;
}

bool engine_decode_place(const struct engine *g, uint32_t streams, struct tuning_place *ret)
{
	if (!g->one_launch || kernels_decode_resident(g->kernels))
		return false;
	*ret = kernels_decode_place(g->kernels, streams);
	return true;
}

int engine_peaks_open(struct engine *g, const char *program_cache, struct peaks **ret,
		      struct err *e)
{
	return peaks_open(g->device.context, g->device.id, g->device.queue, g->variant,
			  g->abilities, program_cache, ret, e);
}

uint64_t engine_cache_bytes(const struct engine *g)
{
	cl_ulong bytes = 0;

	clGetDeviceInfo(g->device.id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof(bytes), &bytes, NULL);
	return bytes;
}

bool engine_peak_known(const struct engine *g, struct peak *ret)
{
	return peak_known(g->device.name, g->info.compute_units, g->variant, ret);
}

/* ---- copies ---- */

const struct layer_part *engine_layer_parts(const struct engine *g, uint32_t layer, uint32_t *ret_n)
{
	*ret_n = g->model.layers[layer].n_parts;
	return g->model.layers[layer].parts;
}

int engine_read_item(struct engine *g, enum tier_kind kind, uint32_t id, void *host, void *tag,
		     struct err *e)
{
	return copies_item(&g->copies, kind, id, false, host, tag, e);
}

int engine_write_item(struct engine *g, enum tier_kind kind, uint32_t id, const void *host,
		      void *tag, struct err *e)
{
	/* a write does not change host */
	return copies_item(&g->copies, kind, id, true, (void *)(uintptr_t)host, tag, e);
}

int engine_items_done(struct engine *g, void **tags, uint32_t max, uint32_t *ret_n, struct err *e)
{
	return copies_items_done(&g->copies, tags, max, ret_n, e);
}

uint32_t engine_items_out(const struct engine *g)
{
	return copies_items_out(&g->copies);
}

int engine_read_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n, void *host,
		       engine_done *done, void *tag, struct err *e)
{
	return copies_pieces(&g->copies, pieces, n, false, host, done, tag, e);
}

int engine_write_pieces(struct engine *g, const struct engine_piece *pieces, uint32_t n,
			const void *host, engine_done *done, void *tag, struct err *e)
{
	/* a write does not change host */
	return copies_pieces(&g->copies, pieces, n, true, (void *)(uintptr_t)host, done, tag, e);
}

int engine_pieces_check(struct engine *g, struct err *e)
{
	return copies_check(&g->copies, e);
}

void engine_finish(struct engine *g)
{
	clFinish(g->device.queue);
	copies_wait(&g->copies);
}

int engine_block_new(struct engine *g, uint64_t bytes, struct engine_block **ret, struct err *e)
{
	return block_new(&g->device, bytes, ret, e);
}

static void pass_layer(void *user, uint32_t layer)
{
	struct engine *g = user;

	g->on_layer(g->on_layer_user, g->submitting, layer);
}

void engine_set_on_layer(struct engine *g, engine_on_layer *call, void *user)
{
	g->on_layer = call;
	g->on_layer_user = user;
	g->model.on_layer = call ? pass_layer : NULL;
	g->model.on_layer_user = g;
}
