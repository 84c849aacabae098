/*
 * The engine: opening a model on a device (plan all memory, allocate, fill), and running plans.
 */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/device.h"
#include "engine/dump.h"
#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/step.h"
#include "kernels/cl_error.h"

/* What of the memory that is there the engine takes unless told otherwise. */
#define DEFAULT_SHARE 0.9

struct engine {
	struct engine_info info;
	struct device device;
	struct kernels *kernels;
	struct memory_plan *plan;
	struct model model;
	struct dump *dump;
	struct step_limits limits;
	int32_t *table, *result; /* host sides of the step table and the results */
	struct engine_counters counters;
	uint64_t warm_launches; /* those of warm_up, which nobody asked for */
};

/* ---- opening ---- */

void engine_settle_environment(const char *program_cache)
{
	char pocl[4096];

	device_settle_environment();
	if (!program_cache)
		return;
	/* Where PoCL keeps what it compiles at launch; without HOME it would be /tmp. */
	snprintf(pocl, sizeof(pocl), "%s/pocl", program_cache);
	setenv("POCL_CACHE_DIR", pocl, 0);
}

static int prepare_cache(const char *dir, struct err *e)
{
	struct stat st;
	char pocl[4096];

	if (!dir)
		return 0;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "--program-cache %s: %s", dir, strerror(errno));
	/* Else PoCL, whose cache goes inside, would just have no device. */
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "--program-cache %s: not a directory", dir);
	snprintf(pocl, sizeof(pocl), "%s/pocl", dir);
	mkdir(pocl, 0755);
	engine_settle_environment(dir);
	return 0;
}

static int choose_kernels(enum engine_kernels wanted, const struct device *d,
			  enum kernel_variant *ret, struct err *e)
{
	static const enum kernel_variant of[] = {
		[ENGINE_KERNELS_GENERIC] = KERNELS_GENERIC,
		[ENGINE_KERNELS_X86] = KERNELS_X86,
		[ENGINE_KERNELS_NVIDIA] = KERNELS_NVIDIA,
	};

	if (wanted == ENGINE_KERNELS_AUTO) {
		*ret = kernels_supported(KERNELS_NVIDIA, d->id) ? KERNELS_NVIDIA
		       : kernels_supported(KERNELS_X86, d->id)	? KERNELS_X86
								: KERNELS_GENERIC;
		return 0;
	}
	if (!kernels_supported(of[wanted], d->id))
		return err_set(e, ENOTSUP, "--kernels %s: %s cannot run them",
			       kernels_variant_name(of[wanted]), d->name);
	*ret = of[wanted];
	return 0;
}

static double gib(uint64_t bytes)
{
	return (double)bytes / (double)(1u << 30);
}

static uint64_t budget_of(const struct engine_options *o, const struct device *d)
{
	double share = o->device_memory_share > 0 ? o->device_memory_share : DEFAULT_SHARE;

	return o->device_memory ? o->device_memory : (uint64_t)((double)d->memory * share);
}

/*
 * How many KV pages: what every sequence at full length would take, or what the budget has room for beside
 * the rest. One sequence of max_model_len must fit; a length that nobody asked for is lowered until it does.
 */
static int size_cache(struct engine *g, const struct engine_options *o, struct err *e)
{
	uint64_t one, page = model_page_bytes(&g->model, &one), rest = memory_plan_total(g->plan);
	uint64_t budget = budget_of(o, &g->device), P = o->page_tokens, pages;
	uint64_t wanted = CEIL_DIV((uint64_t)g->limits.max_model_len, P) * o->max_seqs;

	g->info.budget_bytes = budget;
	if (g->device.memory && o->device_memory > g->device.memory)
		return err_set(e, EINVAL, "--device-memory allows %.2f GiB, and %s has %.2f GiB",
			       gib(budget), g->device.name, gib(g->device.memory));
	if (rest + page > budget)
		return err_set(
			e, ENOMEM,
			"the model needs %.2f GiB (weights %.2f, states %.2f, work space %.2f) and "
			"--device-memory allows %.2f GiB of the %.2f GiB that %s has",
			gib(rest + page), gib(memory_plan_bytes(g->plan, MEMORY_WEIGHTS)),
			gib(memory_plan_bytes(g->plan, MEMORY_STATE)),
			gib(memory_plan_bytes(g->plan, MEMORY_SCRATCH)), gib(budget),
			gib(g->device.memory), g->device.name);
	pages = wanted;
	if (page)
		pages = MIN(pages, (budget - rest) / (page + g->device.alignment));
	if (one)
		pages = MIN(pages, g->device.max_alloc / one);
	pages = MIN(pages, (uint64_t)INT32_MAX);
	if (pages * P < g->limits.max_model_len) {
		if (o->max_model_len)
			return err_set(
				e, ENOMEM,
				"--max-model-len %u needs %llu KV pages and there is room for %llu: "
				"lower it, or raise --device-memory (%.2f GiB)",
				o->max_model_len,
				(unsigned long long)CEIL_DIV((uint64_t)o->max_model_len, P),
				(unsigned long long)pages, gib(budget));
		if (!pages)
			return err_set(e, ENOMEM, "no room for a single KV page in %.2f GiB",
				       gib(budget));
		log_info(
			"context length lowered from %u to %llu tokens: that is what fits in %.2f GiB",
			g->limits.max_model_len, (unsigned long long)(pages * P), gib(budget));
		g->limits.max_model_len = (uint32_t)(pages * P);
	}
	model_plan_pages(&g->model, g->plan, (uint32_t)pages);
	return 0;
}

static int open_weights(const struct engine_options *o, const struct model_config *c,
			struct weights **ret, struct err *e)
{
	int r;

	if (!o->synthetic)
		return weights_open(o->model_dir, c, ret, e);
	r = weights_synthetic(o->synthetic_seed, c, ret);
	return r < 0 ? err_set(e, -r, "synthetic weights: %s", strerror(-r)) : 0;
}

static int load_weights(struct engine *g, const struct engine_options *o, const struct weights *w,
			struct err *e)
{
	struct packer p = {
		.device = &g->device,
		.config = &g->info.model,
		.weights = w,
		.kernels = g->kernels,
		.synthetic = o->synthetic,
		.seed = o->synthetic_seed,
	};

	model_pack(&g->model, &p);
	clFinish(g->device.queue);
	if (p.error.code) {
		if (e)
			*e = p.error;
		return -p.error.code;
	}
	return kernels_status(g->kernels, e);
}

/* The weights are open already: their shapes were checked before anything is allocated or compiled. */
static int open_device(struct engine *g, const struct engine_options *o, const struct weights *w,
		       struct err *e)
{
	struct engine_info *i = &g->info;
	enum kernel_variant variant = KERNELS_GENERIC;
	struct kernel_shape shape;
	uint64_t start = clock_now_ns();
	int r;

	r = prepare_cache(o->program_cache, e);
	if (r < 0)
		return r;
	r = device_open(o->device, &g->device, e);
	if (r < 0)
		return r;
	r = choose_kernels(o->kernels, &g->device, &variant, e);
	if (r < 0)
		return r;
	model_shape(&i->model, o->dtype == ENGINE_BFLOAT16, o->page_tokens, o->dump_activations,
		    &shape);
	r = kernels_open(g->device.context, g->device.id, g->device.queue, &shape, variant,
			 o->program_cache, &g->kernels, e);
	if (r < 0)
		return r;
	log_debug("kernels ready after %.0f ms", (double)(clock_now_ns() - start) / 1e6);
	if (o->dump_activations) {
		g->dump = dump_new(o->dump_activations, g->device.queue);
		if (!g->dump)
			return err_set(e, ENOMEM, "out of memory");
		/* Now, not in the first step: can the file be written? */
		r = dump_write(g->dump, e);
		if (r < 0) {
			err_prefix(e, "--dump-activations");
			return r;
		}
	}
	g->limits = (struct step_limits){
		.max_prefill_tokens = o->max_prefill_tokens,
		.max_seqs = o->max_seqs,
		.max_model_len =
			o->max_model_len ? o->max_model_len : i->model.max_position_embeddings,
		.page_tokens = o->page_tokens,
		.tile_tokens = kernels_tile_tokens(g->kernels),
	};
	g->model = (struct model){
		.config = &i->model,
		.kernels = g->kernels,
		.shape = shape,
		.max_tokens = o->max_prefill_tokens + o->max_seqs,
		.max_rows = o->max_seqs,
		.n_slots = o->max_seqs,
		.step_ints = step_table_ints(&g->limits),
		.result_ints = step_result_ints(&g->limits),
		.dump = g->dump,
	};
	g->plan = memory_plan_new(&g->device);
	g->table = calloc(g->model.step_ints, sizeof(*g->table));
	g->result = calloc(g->model.result_ints, sizeof(*g->result));
	if (!g->plan || !g->table || !g->result)
		return err_set(e, ENOMEM, "out of memory");
	r = model_plan(&g->model, g->plan, e);
	if (r == 0)
		r = size_cache(g, o, e);
	if (r == 0)
		r = memory_plan_allocate(g->plan, e);
	if (r == 0)
		r = load_weights(g, o, w, e);
	if (r < 0)
		return r;
	snprintf(i->device_name, sizeof(i->device_name), "%s", g->device.name);
	snprintf(i->driver, sizeof(i->driver), "%s", g->device.driver);
	snprintf(i->kernels, sizeof(i->kernels), "%s", kernels_variant_name(variant));
	i->n_pages = g->model.n_pages;
	i->n_slots = g->model.n_slots;
	i->max_model_len = g->limits.max_model_len;
	i->weight_bytes = memory_plan_bytes(g->plan, MEMORY_WEIGHTS);
	i->kv_bytes = memory_plan_bytes(g->plan, MEMORY_KV);
	i->state_bytes = memory_plan_bytes(g->plan, MEMORY_STATE);
	i->scratch_bytes = memory_plan_bytes(g->plan, MEMORY_SCRATCH);
	log_debug("model ready after %.0f ms", (double)(clock_now_ns() - start) / 1e6);
	return 0;
}

/*
 * One prompt of a chunk and one generated token, so that nobody's first request pays for what a driver does at the
 * first launch of a kernel (PoCL compiles then). Leaves no trace: pages are written before they are read, and
 * a new sequence's state begins at zero.
 */
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
	const struct plan_seat_reset reset = {.prompt = tokens, .n_prompt = 1};
	struct plan plan = {.rows = &prefill,
			    .draws = &draw,
			    .resets = &reset,
			    .n_rows = 1,
			    .n_prefill_rows = 1,
			    .n_prefill_tokens = n,
			    .n_draws = 1,
			    .n_resets = 1};
	struct draw_result result;
	int r;

	if (!n || g->dump)
		return 0;
	r = engine_step(g, &plan, &result, e);
	if (r < 0)
		return r;
	plan.rows = &decode;
	plan.n_prefill_rows = plan.n_prefill_tokens = plan.n_resets = 0;
	r = engine_step(g, &plan, &result, e);
	g->counters = (struct engine_counters){0};
	g->warm_launches = kernels_launches(g->kernels);
	return r;
}

int engine_open(const struct engine_options *o, struct engine **ret, struct err *e)
{
	struct engine *g = calloc(1, sizeof(*g));
	struct weights *w = NULL;
	int r;

	if (!g)
		return err_set(e, ENOMEM, "out of memory");
	r = model_config_open(o->model_dir, &g->info.model, e);
	if (r == 0)
		r = open_weights(o, &g->info.model, &w, e);
	if (r == 0)
		r = open_device(g, o, w, e);
	weights_close(w);
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
	memory_plan_free(g->plan);
	kernels_close(g->kernels);
	dump_free(g->dump);
	device_close(&g->device);
	free(g->model.layers);
	free(g->table);
	free(g->result);
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

int engine_list_devices(FILE *out, struct err *e)
{
	return device_list(out, e);
}

/* ---- a step ---- */

static cl_int copy_slot(cl_command_queue q, cl_mem buffer, uint64_t bytes,
			const struct plan_copy *c)
{
	return clEnqueueCopyBuffer(q, buffer, buffer, c->src * bytes, c->dst * bytes, bytes, 0,
				   NULL, NULL);
}

/* The copies that come before the rows: whole pages and whole states, of every layer. */
static int run_copies(struct engine *g, const struct plan *plan, struct err *e)
{
	const struct model_config *c = &g->info.model;
	cl_command_queue q = g->device.queue;
	uint64_t page, channels = 2ull * c->n_key_heads * c->key_head_dim +
				  (uint64_t)c->n_value_heads * c->value_head_dim;
	cl_int code = CL_SUCCESS;

	model_page_bytes(&g->model, &page);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		const struct model_layer *l = &g->model.layers[i];

		for (uint32_t k = 0; c->full_attention[i] && k < plan->n_page_copies; k++) {
			code |= copy_slot(q, l->k_pages, page, &plan->page_copies[k]);
			code |= copy_slot(q, l->v_pages, page, &plan->page_copies[k]);
		}
		for (uint32_t k = 0; !c->full_attention[i] && k < plan->n_state_copies; k++) {
			code |= copy_slot(q, l->ring, channels * c->conv_kernel * 4,
					  &plan->state_copies[k]);
			code |= copy_slot(q, l->state,
					  (uint64_t)c->n_value_heads * c->value_head_dim *
						  c->key_head_dim * 4,
					  &plan->state_copies[k]);
		}
	}
	return code ? err_set(e, EIO, "copying pages or states on the device failed") : 0;
}

static int write_table(struct engine *g, int64_t n, struct err *e)
{
	cl_int code = clEnqueueWriteBuffer(g->device.queue, g->model.s.step, CL_FALSE, 0,
					   (size_t)n * sizeof(*g->table), g->table, 0, NULL, NULL);

	g->counters.bytes_to_device += (uint64_t)n * sizeof(*g->table);
	return cl_error(e, code, "writing the step table");
}

static int run_resets(struct engine *g, const struct plan *plan, struct err *e)
{
	for (uint32_t i = 0; i < plan->n_resets; i++) {
		int r = write_table(g, step_build_reset(&plan->resets[i], g->table), e);

		if (r < 0)
			return r;
		kernel_seat_reset(g->kernels, g->model.s.step, 0, g->model.s.counts, 1);
		/* The table is written again next. */
		r = cl_error(e, clFinish(g->device.queue), "resetting a seat");
		if (r < 0)
			return r;
	}
	return 0;
}

int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e)
{
	const struct model_scratch *s = &g->model.s;
	struct model_step step;
	uint32_t result_ints;
	cl_int draws_at, code;
	int64_t n;
	int r;

	r = run_resets(g, plan, e);
	if (r == 0)
		r = run_copies(g, plan, e);
	if (r < 0)
		return r;
	n = step_build(plan, &g->limits, g->dump, g->table, &step, &draws_at, &result_ints);
	if (n < 0)
		return err_set(e, EINVAL, "a plan is outside the engine's limits");
	r = write_table(g, n, e);
	if (r < 0)
		return r;
	dump_ints(g->dump, "tokens", g->table + step.tokens_at, step.n_tokens);
	dump_ints(g->dump, "positions", g->table + step.positions_at, step.n_tokens);
	model_forward(&g->model, &step);
	kernel_sample(g->kernels, s->step, draws_at, s->logits, s->work, s->counts, s->result,
		      plan->n_draws);
	r = kernels_status(g->kernels, e);
	if (r < 0)
		return r;
	code = result_ints ? clEnqueueReadBuffer(g->device.queue, s->result, CL_TRUE, 0,
						 result_ints * sizeof(*g->result), g->result, 0,
						 NULL, NULL)
			   : clFinish(g->device.queue);
	r = cl_error(e, code, "reading results");
	if (r < 0)
		return r;
	g->counters.bytes_from_device += result_ints * sizeof(*g->result);
	g->counters.steps++;
	step_results(plan, g->result, results);
	return g->dump ? dump_write(g->dump, e) : 0;
}
