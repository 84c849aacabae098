/*
 * The kernel set: which program each kernel comes from, with which options, and the launch functions.
 *
 * Programs are compiled once a shape; the options below are the only place where a model's numbers become
 * macros. A launch sets all its arguments: kernels have few, and a stale one is a bug that no test finds.
 */
#include "kernels/kernels.h"

#include <CL/cl_ext.h>

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cl_error.h"
#include "kernels/cuts.h"
#include "kernels/decode.h"
#include "kernels/int8.h"
#include "kernels/library.h"
#include "kernels/sample.h"

enum kernel_id {
	K_EMBED,
	K_RMS_NORM,
	K_GEMM_STORE,
	K_GEMM_ADD,
	K_ROUTER_GEMM,
	K_ATTENTION_PREPARE,
	K_ATTENTION,
	K_DELTA_CONV,
	K_DELTA_PREFILL,
	K_DELTA_DECODE,
	K_SAMPLE,
	K_SCORE,
	K_SEAT_RESET,
	K_SYNTHESIZE,
	K_SYNTHESIZE_ROWS,
	K_ADDRESS,
	K_DECODE_STEP,
	K_QUANTIZE_ROWS,
	K_QUANTIZE_FLOAT_ROWS,
	K_GEMM_INT8_STORE,
	K_GEMM_INT8_ADD,
	/* one of each for every MLP of the shape */
	K_COMBINE_NORM,
	K_MOE_TOPK,
	K_MOE_SORT,
	K_MOE_GATE_UP,
	K_MOE_DOWN,
	K_END_OF_FIRST_MLP,
	K_COUNT = K_END_OF_FIRST_MLP + (K_END_OF_FIRST_MLP - K_COMBINE_NORM),
};

enum { ROUTER_BLOCKS = 4 }; /* moe_route.cl */

enum { WARM_TILE_AT = KERNEL_ROW_INTS }; /* behind a row that begins with page 0 */

#define MLP_KERNEL(id, mlp) ((id) + (mlp) * (K_END_OF_FIRST_MLP - K_COMBINE_NORM))

/* How a variant cuts its work, unless a table knows better (cuts.h). */
struct tuning {
	uint32_t lanes, vec;
	uint32_t tile_rows, tile_blocks; /* accumulators of the GEMM tile */
	uint32_t blocks;		 /* column blocks of a group */
	uint32_t row_block;		 /* rows a group walks */
	uint32_t attention_queries;	 /* queries of an attention tile, about */
	uint32_t decode_blocks; /* column blocks of a group of the decode step; 0: there is none */
	uint32_t ahead;		/* bytes between a weight's prefetch and its use */
	enum kernel_packing packing; /* of bf16 weights */
	uint32_t tensor_lanes,
		tensor_columns; /* a group of a tensor core's product; 0: there is none */
};

static const struct tuning cpu_generic = {1, 16, 4, 4, 8, 64, 8, 4, 64, KERNEL_PACK_PANELS, 0, 0};
static const struct tuning cpu_x86 = {1, 16, 8, 2, 8, 128, 8, 4, 3072, KERNEL_PACK_PAIRS, 0, 0};
static const struct tuning gpu_generic = {64, 1, 8, 2, 2, 64, 8, 0, 64, KERNEL_PACK_PANELS, 0, 0};
static const struct tuning gpu_nvidia = {64,  1, 8, 2, 2, 64, 8, 0, 64, KERNEL_PACK_FRAGMENTS,
					 128, 32};

/* The same of the int8 products, in lanes of the set. */
struct int8_tuning {
	uint32_t tile_rows, tile_blocks, blocks, row_block;
};

static const struct int8_tuning int8_cpu_generic = {4, 2, 8, 64};
static const struct int8_tuning int8_vpdpbusd = {8, 2, 8, 64};
static const struct int8_tuning int8_gpu = {8, 2, 2, 64};

struct kernels {
	struct kernel_shape shape;
	const struct tuning *tuning;
	const struct int8_tuning *int8; /* NULL: not compiled */
	uint32_t int8_group;
	enum kernel_variant variant;
	cl_command_queue queue;
	uint32_t compute_units;
	enum kernel_packing packing; /* of elements */
	struct cuts cuts;
	cl_program programs[64];
	uint32_t n_programs;
	cl_kernel kernels[CUTS_MAX][K_COUNT]; /* [0] all; [1...] those of a cut's programs */
	uint64_t launches;
	struct profile *profile; /* NULL: nobody wants to know */
	struct err error;	 /* the first one; code 0: none */
};

const char *kernels_variant_name(enum kernel_variant variant)
{
	static const char *const names[] = {"generic", "x86", "nvidia"};

	return names[variant];
}

static bool device_is(cl_device_id device, cl_device_info what, const char *part)
{
	char text[1024] = "";

	clGetDeviceInfo(device, what, sizeof(text) - 1, text, NULL);
	return strstr(text, part) != NULL;
}

static bool is_cpu(cl_device_id device)
{
	cl_device_type type = 0;

	clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
	return type & CL_DEVICE_TYPE_CPU;
}

bool kernels_supported(enum kernel_variant variant, cl_device_id device)
{
	switch (variant) {
	case KERNELS_GENERIC: return true;
	case KERNELS_X86:
#if defined(__x86_64__)
		return is_cpu(device) && device_is(device, CL_DEVICE_VERSION, "PoCL") &&
		       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
		return false;
#endif
	case KERNELS_NVIDIA: {
		cl_uint major = 0;

		clGetDeviceInfo(device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, sizeof(major),
				&major, NULL);
		return !is_cpu(device) && device_is(device, CL_DEVICE_VENDOR, "NVIDIA") &&
		       major >= 8;
	}
	}
	return false;
}

enum kernel_packing kernels_packing(const struct kernels *k)
{
	return k->packing;
}

uint32_t kernels_attention_ld(const struct kernel_shape *s)
{
	return (2 * s->heads + 2 * s->kv_heads) * s->head_dim;
}

uint32_t kernels_delta_ld(const struct kernel_shape *s)
{
	return 2 * s->key_heads * s->key_dim + 2 * s->value_heads * s->value_dim +
	       2 * KERNEL_LD(s->value_heads);
}

static uint32_t delta_groups(const struct kernels *k)
{
	return k->tuning->lanes == 1 ? k->compute_units : k->compute_units * 2;
}

static uint32_t delta_group_floats(const struct kernel_shape *s)
{
	return s->key_dim * 64 + 2 * 64 * 64 + 2 * 64 * s->value_dim;
}

uint64_t kernels_delta_scratch(const struct kernels *k)
{
	return k->shape.key_heads ? (uint64_t)delta_groups(k) * delta_group_floats(&k->shape) : 0;
}

uint64_t kernels_sample_floats(const struct kernel_shape *s)
{
	return SAMPLE_FLOATS((uint64_t)s->vocab);
}

/* Every expert may end in a part of a task. */
uint64_t kernels_max_tasks(const struct kernel_mlp *m, uint32_t T)
{
	uint64_t choices = (uint64_t)T * m->topk;

	return MIN((uint64_t)m->experts, choices) + choices / KERNEL_TASK_ROWS +
	       CEIL_DIV(T, (uint32_t)KERNEL_TASK_ROWS);
}

uint64_t kernels_task_ints(const struct kernel_mlp *m, uint32_t n_tokens)
{
	return 1 + 3 * kernels_max_tasks(m, n_tokens);
}

/* ---- cuts ---- */

static uint32_t tile_tokens(const struct kernels *k, uint32_t cut)
{
	return cuts_tile_tokens(&k->shape, &k->cuts.of[CUT_ATTENTION][cut]);
}

uint32_t kernels_tile_tokens(const struct kernels *k, uint32_t T)
{
	struct tuning_place p = cuts_attention(&k->shape, T);

	return tile_tokens(k, cuts_find(&k->cuts, &p));
}

uint32_t kernels_least_tile_tokens(const struct kernels *k)
{
	uint32_t least = tile_tokens(k, 0);

	for (uint32_t i = 1; i < k->cuts.n[CUT_ATTENTION]; i++)
		least = MIN(least, tile_tokens(k, i));
	return least;
}

/* Products of elements may run on tensor cores, in groups of another size; the router's, in float, never do. */
static bool on_tensor_cores(const struct kernels *k)
{
	return k->tuning->tensor_lanes && k->shape.bf16;
}

/* Looks all launches up: in the table that was given, and behind it in the one that is built in. */
static int choose_cuts(struct kernels *k, cl_device_id id, const struct tuning_options *given,
		       struct err *e)
{
	const struct tuning *t = k->tuning;
	const struct tuning_cut gemm = {.tile_rows = t->tile_rows,
					.tile_blocks = t->tile_blocks,
					.blocks = t->blocks,
					.row_block = t->row_block,
					.ahead = t->ahead,
					.chains = 1};
	struct tuning_cut built_in[CUT_PROGRAMS] = {
		[CUT_GEMM] = gemm,
		[CUT_ATTENTION] = {.queries = t->attention_queries},
		[CUT_DECODE_STEP] = gemm,
	};
	struct tuning_device device = {.units = k->compute_units, .bf16 = k->shape.bf16};
	struct tuning_table *own;
	int r = tuning_built_in(&own, e);

	if (r < 0)
		return r;
	built_in[CUT_DECODE_STEP].blocks = t->decode_blocks;
	clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof(device.name) - 1, device.name, NULL);
	clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof(device.driver) - 1, device.driver, NULL);
	snprintf(device.kernels, sizeof(device.kernels), "%s", kernels_variant_name(k->variant));
	cuts_choose(&k->cuts, &k->shape, built_in,
		    &(struct cuts_source){
			    .device = &device,
			    .tables = {given ? given->table : NULL, own},
			    .any_bits = given && given->any_bits,
			    .products = !on_tensor_cores(k),
			    .decode_step = kernels_has_decode_step(k),
		    });
	tuning_free(own);
	return 0;
}

bool kernels_tuned(const struct kernels *k, const struct tuning_place *p)
{
	return cuts_find(&k->cuts, p) != 0;
}

struct tuning_place kernels_decode_place(const struct kernels *k, uint32_t T)
{
	return cuts_decode_step(&k->shape, T);
}

void kernels_use_built_in(struct kernels *k, bool built_in)
{
	k->cuts.built_in = built_in;
}

bool kernels_other_bits(const struct kernels *k, char ret[33])
{
	if (k->cuts.same_bits)
		return false;
	cuts_identity(&k->cuts, ret);
	return true;
}

/* ---- opening ---- */

static void mlp_options(const struct kernels *k, uint32_t mlp, struct buf *o)
{
	const struct kernel_mlp *m = &k->shape.mlps[mlp];

	buf_printf(o,
		   " -DEXPERTS=%u -DTOPK=%u -DEXPERT_SIZE=%u -DSHARED_SIZE=%u -DNORM_TOPK=%d"
		   " -DSHARED_GATE=%d -DTASK_ROWS=%d -DACT_LD=%u",
		   m->experts, m->topk, m->expert_size, m->shared_size, m->norm_topk,
		   m->shared_gate, KERNEL_TASK_ROWS,
		   KERNEL_LD(MAX(m->expert_size, m->shared_size)));
}

/* Terms of the longest sum of a product, at least. */
static uint32_t largest_k(const struct kernel_shape *s)
{
	uint32_t k = MAX(MAX(KERNEL_LD(s->hidden), 512u),
			 MAX(s->heads * s->head_dim, s->value_heads * s->value_dim));

	for (uint32_t i = 0; i < s->n_mlps; i++)
		k = MAX(k, KERNEL_LD(MAX(s->mlps[i].expert_size, s->mlps[i].shared_size)));
	return k;
}

static void gemm_options(const struct kernels *k, const struct tuning_cut *c, struct buf *o)
{
	buf_printf(o,
		   " -DPACKING=%d -DMAX_K=%u -DTILE_ROWS=%u -DTILE_BLOCKS=%u -DNPG=%u"
		   " -DROW_BLOCK=%u -DAHEAD=%u -DCHAINS=%u",
		   k->packing, largest_k(&k->shape), c->tile_rows, c->tile_blocks, c->blocks,
		   c->row_block, c->ahead, c->chains);
}

static void attention_options(const struct kernels *k, uint32_t cut, struct buf *o)
{
	const struct kernel_shape *s = &k->shape;

	buf_printf(o,
		   " -DHEADS=%u -DKV_HEADS=%u -DHD=%u -DPAGE=%u -DATTENTION_LD=%u -DTILE_TOKENS=%u",
		   s->heads, s->kv_heads, s->head_dim, s->page_tokens, kernels_attention_ld(s),
		   tile_tokens(k, cut));
}

static void delta_options(const struct kernels *k, struct buf *o)
{
	const struct kernel_shape *s = &k->shape;

	buf_printf(o, " -DHK=%u -DHV=%u -DDK=%u -DDV=%u -DCONV=%u -DDELTA_LD=%u -DSCRATCH=%u",
		   s->key_heads, s->value_heads, s->key_dim, s->value_dim, s->conv,
		   kernels_delta_ld(s), delta_group_floats(s));
}

struct kernel_name {
	int id;
	const char *name;
};

/* Builds one program and takes its kernels; the list ends with a NULL name. */
static int add_program(struct kernels *k, struct library *l, uint32_t cut, const char *file,
		       bool bf16, const char *options, const struct kernel_name *kernels,
		       struct err *e)
{
	const struct kernel_shape *s = &k->shape;
	struct buf o;
	cl_int code;
	int r;

	if (k->n_programs == ARRAY_SIZE(k->programs))
		return err_set(e, E2BIG, "more than %zu programs", ARRAY_SIZE(k->programs));
	buf_init(&o, 4096);
	buf_printf(&o,
		   "-cl-std=CL1.2 -DLANES=%u -DVEC=%u -DBF16=%d -DDUMP=%d -DHIDDEN=%u -DVOCAB=%u"
		   " -DEPS=%.9ef%s",
		   k->tuning->lanes, k->tuning->vec, bf16, s->dump, s->hidden, s->vocab,
		   (double)s->eps, options);
	r = library_program(l, file, o.data, &k->programs[k->n_programs], e);
	buf_release(&o);
	if (r < 0)
		return r;
	k->n_programs++;
	for (; kernels->name; kernels++) {
		k->kernels[cut][kernels->id] =
			clCreateKernel(k->programs[k->n_programs - 1], kernels->name, &code);
		if (code != CL_SUCCESS)
			return cl_error(e, code, kernels->name);
	}
	return 0;
}

#define KERNELS(...) ((const struct kernel_name[]){__VA_ARGS__, {0, NULL}})

/* gemm.cl with the products of one MLP, and with the first one's also those of no MLP. */
static int add_gemm(struct kernels *k, struct library *l, uint32_t cut, uint32_t mlp, struct err *e)
{
	struct buf o;
	int r;

	buf_init(&o, 1024);
	mlp_options(k, mlp, &o);
	gemm_options(k, &k->cuts.of[CUT_GEMM][cut], &o);
	buf_printf(&o, " -DMOE=1");
	r = add_program(k, l, cut, "gemm.cl", k->shape.bf16, o.data,
			KERNELS({MLP_KERNEL(K_MOE_GATE_UP, mlp), "moe_gate_up"},
				{MLP_KERNEL(K_MOE_DOWN, mlp), "moe_down"}),
			e);
	if (r == 0 && !mlp) {
		cl_program program = k->programs[k->n_programs - 1];

		k->kernels[cut][K_GEMM_STORE] = clCreateKernel(program, "gemm_store", NULL);
		k->kernels[cut][K_GEMM_ADD] = clCreateKernel(program, "gemm_add", NULL);
	}
	buf_release(&o);
	return r;
}

static int add_attention(struct kernels *k, struct library *l, uint32_t cut, const char *rotary,
			 struct err *e)
{
	struct buf o;
	int r;

	buf_init(&o, 1024);
	buf_printf(&o, "%s", rotary);
	attention_options(k, cut, &o);
	r = add_program(k, l, cut, "attention.cl", k->shape.bf16, o.data,
			KERNELS({K_ATTENTION_PREPARE, "attention_prepare"},
				{K_ATTENTION, "attention"}),
			e);
	buf_release(&o);
	return r;
}

static int add_decode_step(struct kernels *k, struct library *l, uint32_t cut, const char *rotary,
			   struct err *e)
{
	struct buf o;
	int r;

	buf_init(&o, 1024);
	buf_printf(&o, "%s -DMOE=1", rotary);
	gemm_options(k, &k->cuts.of[CUT_DECODE_STEP][cut], &o);
	mlp_options(k, 0, &o);
	attention_options(k, 0, &o); /* its tiles are of one token */
	delta_options(k, &o);
	r = add_program(k, l, cut, "decode_step.cl", k->shape.bf16, o.data,
			KERNELS({K_ADDRESS, "address"}, {K_DECODE_STEP, "decode_step"}), e);
	buf_release(&o);
	return r;
}

static int add_programs(struct kernels *k, struct library *l, struct err *e)
{
	const struct kernel_shape *s = &k->shape;
	struct buf gemm, packing, rotary, o;
	int r;

	buf_init(&packing, 64);
	buf_printf(&packing, " -DPACKING=%d",
		   k->packing == KERNEL_PACK_CODED ? KERNEL_PACK_PAIRS : k->packing);
	buf_init(&gemm, 1024);
	buf_init(&rotary, 64);
	buf_init(&o, 1024);
	gemm_options(k, &k->cuts.of[CUT_GEMM][0], &gemm);
	buf_printf(&rotary, " -DROT=%u", MAX(s->rotary_dim, 2u));
	r = add_program(k, l, 0, "embed.cl", s->bf16, rotary.data, KERNELS({K_EMBED, "embed"}), e);
	if (r < 0)
		goto out;
	r = add_program(k, l, 0, "sample.cl", s->bf16, "",
			KERNELS({K_SAMPLE, "sample"}, {K_SCORE, "score"},
				{K_SEAT_RESET, "seat_reset"}),
			e);
	if (r < 0)
		goto out;
	r = add_program(k, l, 0, "synthesize.cl", s->bf16, packing.data,
			KERNELS({K_SYNTHESIZE, "synthesize"},
				{K_SYNTHESIZE_ROWS, "synthesize_rows"}),
			e);
	if (r < 0)
		goto out;
	/* The router's product is in float whatever the elements are. */
	buf_reset(&o);
	buf_printf(&o, "%s -DMOE=0", gemm.data);
	r = add_program(k, l, 0, "gemm.cl", false, o.data, KERNELS({K_ROUTER_GEMM, "gemm_store"}),
			e);
	for (uint32_t i = 0; r == 0 && i < s->n_mlps; i++) {
		buf_reset(&o);
		mlp_options(k, i, &o);
		r = add_program(k, l, 0, "norm.cl", s->bf16, o.data,
				KERNELS({MLP_KERNEL(K_COMBINE_NORM, i), "combine_norm"}), e);
		if (r < 0)
			goto out;
		if (!i) {
			k->kernels[0][K_RMS_NORM] =
				clCreateKernel(k->programs[k->n_programs - 1], "rms_norm", NULL);
		}
		r = add_program(k, l, 0, "moe_route.cl", s->bf16, o.data,
				KERNELS({MLP_KERNEL(K_MOE_SORT, i), "moe_sort"}), e);
		if (r < 0)
			goto out;
		if (s->mlps[i].experts)
			k->kernels[0][MLP_KERNEL(K_MOE_TOPK, i)] =
				clCreateKernel(k->programs[k->n_programs - 1], "moe_topk", NULL);
		for (uint32_t c = 0; r == 0 && c < k->cuts.n[CUT_GEMM]; c++)
			r = add_gemm(k, l, c, i, e);
	}
	for (uint32_t c = 0; r == 0 && s->heads && c < k->cuts.n[CUT_ATTENTION]; c++)
		r = add_attention(k, l, c, rotary.data, e);
	if (r == 0 && s->key_heads) {
		buf_reset(&o);
		delta_options(k, &o);
		r = add_program(k, l, 0, "delta_decode.cl", s->bf16, o.data,
				KERNELS({K_DELTA_DECODE, "delta_decode"}), e);
		if (r == 0)
			r = add_program(k, l, 0, "delta_prefill.cl", s->bf16, o.data,
					KERNELS({K_DELTA_CONV, "delta_conv"},
						{K_DELTA_PREFILL, "delta_prefill"}),
					e);
	}
	for (uint32_t c = 0; r == 0 && kernels_has_decode_step(k) && c < k->cuts.n[CUT_DECODE_STEP];
	     c++)
		r = add_decode_step(k, l, c, rotary.data, e);
out:
	buf_release(&packing);
	buf_release(&gemm);
	buf_release(&rotary);
	buf_release(&o);
	return r;
}

static const struct tuning *choose_tuning(cl_device_id device, const struct kernel_shape *s,
					  enum kernel_variant variant)
{
	bool cpu = s->width == KERNEL_WIDTH_DEVICE ? is_cpu(device) : s->width == KERNEL_WIDTH_CPU;

	switch (variant) {
	case KERNELS_NVIDIA: return &gpu_nvidia;
	case KERNELS_X86: return s->bf16 ? &cpu_x86 : &cpu_generic;
	case KERNELS_GENERIC: break;
	}
	return cpu ? &cpu_generic : &gpu_generic;
}

static enum kernel_packing choose_packing(const struct kernels *k)
{
	if (!k->shape.bf16)
		return KERNEL_PACK_PANELS;
#if defined(__x86_64__)
	if (k->tuning->packing == KERNEL_PACK_PAIRS && !k->shape.plain_weights &&
	    __builtin_cpu_supports("avx512vbmi"))
		return KERNEL_PACK_CODED;
#endif
	return k->tuning->packing;
}

static int warm_cuts(struct kernels *k, cl_context context, struct err *e);

int kernels_open(cl_context context, cl_device_id device, cl_command_queue queue,
		 const struct kernel_shape *shape, enum kernel_variant variant,
		 const char *cache_dir, const struct tuning_options *tuning, struct kernels **ret,
		 struct err *e)
{
	struct library library = {context, device, kernels_variant_name(variant), cache_dir, 0, 0};
	struct kernels *k = calloc(1, sizeof(*k));
	cl_uint units = 1;
	int r;

	if (!k)
		return err_set(e, ENOMEM, "out of memory");
	clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	k->shape = *shape;
	k->variant = variant;
	k->queue = queue;
	k->compute_units = units;
	k->tuning = choose_tuning(device, shape, variant);
	k->packing = choose_packing(k);
	r = choose_cuts(k, device, tuning, e);
	if (r == 0)
		r = add_programs(k, &library, e);
	if (r == 0)
		r = warm_cuts(k, context, e);
	if (r < 0) {
		kernels_close(k);
		return r;
	}
	log_debug("kernels: %u programs compiled, %u from the cache", library.built,
		  library.loaded);
	*ret = k;
	return 0;
}

int kernels_open_int8(struct kernels *k, const char *cache_dir, uint32_t group, struct err *e)
{
	const bool instruction = int8_has_instruction(k->variant);
	const struct int8_tuning *t = k->tuning->lanes > 1 ? &int8_gpu
				      : instruction	   ? &int8_vpdpbusd
							   : &int8_cpu_generic;
	struct library library = {
		.variant = kernels_variant_name(instruction ? k->variant : KERNELS_GENERIC),
		.cache_dir = cache_dir,
	};
	cl_device_fp_config config = 0;
	struct buf o;
	int r;

	if (k->int8 && k->int8_group == group)
		return 0;
	if (k->int8 || !int8_group_valid(group))
		return err_set(e, EINVAL,
			       k->int8 ? "int8 numbers in groups of %u beside others"
				       : "%u is not a group of int8 numbers",
			       group);
	clGetCommandQueueInfo(k->queue, CL_QUEUE_CONTEXT, sizeof(library.context), &library.context,
			      NULL);
	clGetCommandQueueInfo(k->queue, CL_QUEUE_DEVICE, sizeof(library.device), &library.device,
			      NULL);
	clGetDeviceInfo(library.device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(config), &config, NULL);
	buf_init(&o, 256);
	/* A GPU divides approximately unless it is told not to, and a value between two numbers would become the other. */
	buf_printf(&o, " -DGROUP=%u%s", group,
		   config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
			   ? " -cl-fp32-correctly-rounded-divide-sqrt"
			   : "");
	r = add_program(k, &library, 0, "quantize.cl", k->shape.bf16, o.data,
			KERNELS({K_QUANTIZE_ROWS, "quantize_rows"},
				{K_QUANTIZE_FLOAT_ROWS, "quantize_float_rows"}),
			e);
	buf_printf(&o, " -DTILE_ROWS=%u -DTILE_BLOCKS=%u -DNPG=%u -DROW_BLOCK=%u", t->tile_rows,
		   t->tile_blocks, t->blocks, t->row_block);
	if (r == 0)
		r = add_program(k, &library, 0, "gemm_int8.cl", k->shape.bf16, o.data,
				KERNELS({K_GEMM_INT8_STORE, "gemm_int8_store"},
					{K_GEMM_INT8_ADD, "gemm_int8_add"}),
				e);
	buf_release(&o);
	if (r == 0) {
		k->int8 = t;
		k->int8_group = group;
	}
	return r;
}

void kernels_close(struct kernels *k)
{
	if (!k)
		return;
	profile_free(k->profile);
	for (size_t i = 0; i < CUTS_MAX * K_COUNT; i++)
		if (k->kernels[i / K_COUNT][i % K_COUNT])
			clReleaseKernel(k->kernels[i / K_COUNT][i % K_COUNT]);
	for (size_t i = 0; i < k->n_programs; i++)
		clReleaseProgram(k->programs[i]);
	free(k);
}

int kernels_status(const struct kernels *k, struct err *e)
{
	if (!k->error.code)
		return 0;
	if (e)
		*e = k->error;
	return -k->error.code;
}

uint64_t kernels_launches(const struct kernels *k)
{
	return k->launches;
}

const struct kernel_shape *kernels_shape(const struct kernels *k)
{
	return &k->shape;
}

bool kernels_has_decode_step(const struct kernels *k)
{
	return k->tuning->decode_blocks && k->shape.n_mlps == 1 && !k->shape.dump;
}

void kernels_decode_cut(const struct kernels *k, uint32_t T, uint32_t *ret_columns,
			uint32_t *ret_rows, uint32_t *ret_router_columns)
{
	struct tuning_place p = cuts_decode_step(&k->shape, T);
	const struct tuning_cut *cut = &k->cuts.of[CUT_DECODE_STEP][cuts_find(&k->cuts, &p)];
	uint32_t width = k->tuning->lanes * k->tuning->vec;

	*ret_columns = width * cut->blocks;
	*ret_rows = cut->row_block;
	*ret_router_columns = width * ROUTER_BLOCKS;
}

/* ---- profiling ---- */

int kernels_profile(struct kernels *k, bool on, struct err *e)
{
	profile_free(k->profile);
	k->profile = on ? profile_new(k->queue) : NULL;
	return on && !k->profile ? err_set(e, ENOMEM, "out of memory") : 0;
}

int kernels_profile_take(struct kernels *k, const struct kernel_timing **ret, size_t *ret_n,
			 struct err *e)
{
	*ret_n = 0;
	return k->profile ? profile_take(k->profile, ret, ret_n, e) : 0;
}

/* Where the event of a launch goes; NULL: nowhere. */
static cl_event *note_launch(struct kernels *k, uint32_t cut, int id, uint64_t x, uint64_t y)
{
	const int a_set = K_END_OF_FIRST_MLP - K_COMBINE_NORM;
	int of_mlp = id < K_COMBINE_NORM ? -1 : id < K_END_OF_FIRST_MLP ? id : id - a_set;
	uint32_t mlp = of_mlp < 0 ? 0 : (uint32_t)((id - of_mlp) / a_set);

	return profile_launch(k->profile, k->kernels[cut][id],
			      id == K_ROUTER_GEMM ? "router" : NULL, x, y,
			      of_mlp >= 0 && !k->shape.mlps[mlp].experts,
			      of_mlp == K_MOE_SORT || of_mlp == K_MOE_GATE_UP ||
				      of_mlp == K_MOE_DOWN);
}

/* ---- launching ---- */

struct arg {
	size_t size;
	const void *value;
};

#define ARG(x)                  \
	{                       \
		sizeof(x), &(x) \
	}

/* Runs x by y groups of so many lanes. Nothing to do is no launch. */
static void launch(struct kernels *k, uint32_t cut, int id, uint32_t lanes, uint64_t x, uint64_t y,
		   const struct arg *args, size_t n)
{
	cl_kernel kernel = k->kernels[cut][id];
	size_t local[2] = {lanes, 1}, global[2] = {x * lanes, y};
	cl_int code = CL_SUCCESS;

	if (k->error.code || !x || !y)
		return;
	assert(kernel);
	for (size_t i = 0; i < n && code == CL_SUCCESS; i++)
		code = clSetKernelArg(kernel, (cl_uint)i, args[i].size, args[i].value);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(k->queue, kernel, 2, NULL, global, local, 0, NULL,
					      k->profile ? note_launch(k, cut, id, x, y) : NULL);
	k->launches++;
	if (code != CL_SUCCESS) {
		char name[64] = "kernel";

		clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name, NULL);
		cl_error(&k->error, code, name);
	}
}

#define LAUNCH_CUT(k, cut, id, lanes, x, y, ...)                           \
	do {                                                               \
		const struct arg args_[] = {__VA_ARGS__};                  \
		launch(k, cut, id, lanes, x, y, args_, ARRAY_SIZE(args_)); \
	} while (0)

#define LAUNCH(k, id, x, y, ...) LAUNCH_CUT(k, 0, id, (k)->tuning->lanes, x, y, __VA_ARGS__)

void kernel_embed(struct kernels *k, cl_mem step, cl_int tokens_at, cl_int positions_at,
		  cl_mem drawn, cl_mem table, cl_mem inv_freq, cl_mem x, cl_mem rope, uint32_t T)
{
	LAUNCH(k, K_EMBED, T, 1, ARG(step), ARG(tokens_at), ARG(positions_at), ARG(drawn),
	       ARG(table), ARG(inv_freq), ARG(x), ARG(rope));
}

void kernel_rms_norm(struct kernels *k, cl_mem step, cl_int rows_at, cl_mem x, cl_mem w, cl_mem h,
		     cl_mem h32, uint32_t rows)
{
	LAUNCH(k, K_RMS_NORM, rows, 1, ARG(step), ARG(rows_at), ARG(x), ARG(w), ARG(h), ARG(h32));
}

void kernel_combine_norm(struct kernels *k, uint32_t mlp, cl_mem x, cl_mem y, cl_mem weights,
			 cl_mem router, cl_mem w, cl_mem h, cl_mem h32, cl_mem dump, uint32_t T)
{
	LAUNCH(k, MLP_KERNEL(K_COMBINE_NORM, mlp), T, 1, ARG(x), ARG(y), ARG(weights), ARG(router),
	       ARG(w), ARG(h), ARG(h32), ARG(dump));
}

static uint32_t product_lanes(const struct kernels *k)
{
	return on_tensor_cores(k) ? k->tuning->tensor_lanes : k->tuning->lanes;
}

/* Groups that cover N columns. */
static uint64_t column_groups(const struct kernels *k, uint32_t cut, bool tensor, uint32_t N)
{
	uint32_t width =
		tensor ? k->tuning->tensor_columns
		       : k->tuning->lanes * k->tuning->vec * k->cuts.of[CUT_GEMM][cut].blocks;

	return CEIL_DIV(N, width);
}

static uint64_t row_blocks(const struct kernels *k, uint32_t cut, uint32_t M)
{
	return CEIL_DIV(M, k->cuts.of[CUT_GEMM][cut].row_block);
}

static void note_product(struct kernels *k, uint32_t M, uint32_t N, uint32_t K)
{
	if (k->profile && M && N && !k->error.code)
		profile_product(k->profile, M, N, K);
}

/* Where the launch just made stands in a tuning table. */
static void note_place(struct kernels *k, const struct tuning_place *p)
{
	if (k->profile && !k->error.code)
		profile_place(k->profile, p);
}

void kernel_gemm_store(struct kernels *k, bool router, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
		       uint32_t ldc, uint32_t M, uint32_t N, uint32_t K)
{
	bool tensor = !router && on_tensor_cores(k);
	struct tuning_place p = tuning_place_of(router ? TUNING_NONE : TUNING_PRODUCT, N, K, M);
	uint32_t cut = cuts_find(&k->cuts, &p);

	LAUNCH_CUT(k, cut, router ? K_ROUTER_GEMM : K_GEMM_STORE,
		   tensor ? k->tuning->tensor_lanes : k->tuning->lanes,
		   column_groups(k, cut, tensor, N), row_blocks(k, cut, M), ARG(A), ARG(lda),
		   ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K));
	note_product(k, M, N, K);
	note_place(k, &p);
}

void kernel_gemm_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		     uint32_t M, uint32_t N, uint32_t K, cl_mem dump)
{
	struct tuning_place p = tuning_place_of(TUNING_PRODUCT, N, K, M);
	uint32_t cut = cuts_find(&k->cuts, &p);

	LAUNCH_CUT(k, cut, K_GEMM_ADD, product_lanes(k),
		   column_groups(k, cut, on_tensor_cores(k), N), row_blocks(k, cut, M), ARG(A),
		   ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K), ARG(dump));
	note_product(k, M, N, K);
	note_place(k, &p);
}

void kernel_quantize_rows(struct kernels *k, bool floats, cl_mem x, uint32_t ldx, cl_mem q,
			  uint32_t ldq, uint32_t rows, uint32_t K)
{
	LAUNCH(k, floats ? K_QUANTIZE_FLOAT_ROWS : K_QUANTIZE_ROWS, rows, 1, ARG(x), ARG(ldx),
	       ARG(q), ARG(ldq), ARG(K));
	note_product(k, rows, K, 0);
}

static uint64_t int8_column_groups(const struct kernels *k, uint32_t N)
{
	return CEIL_DIV(N, k->tuning->lanes * k->tuning->vec * k->int8->blocks);
}

void kernel_gemm_int8_store(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
			    uint32_t ldc, uint32_t M, uint32_t N, uint32_t K)
{
	LAUNCH(k, K_GEMM_INT8_STORE, int8_column_groups(k, N), CEIL_DIV(M, k->int8->row_block),
	       ARG(A), ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K));
	note_product(k, M, N, K);
}

void kernel_gemm_int8_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
			  uint32_t ldc, uint32_t M, uint32_t N, uint32_t K, cl_mem dump)
{
	LAUNCH(k, K_GEMM_INT8_ADD, int8_column_groups(k, N), CEIL_DIV(M, k->int8->row_block),
	       ARG(A), ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K), ARG(dump));
	note_product(k, M, N, K);
}

void kernel_moe_route(struct kernels *k, uint32_t mlp, cl_mem router, cl_mem experts,
		      cl_mem weights, cl_mem rows, cl_mem tasks, uint32_t T)
{
	if (k->shape.mlps[mlp].experts)
		LAUNCH(k, MLP_KERNEL(K_MOE_TOPK, mlp), T, 1, ARG(router), ARG(experts),
		       ARG(weights));
	LAUNCH(k, MLP_KERNEL(K_MOE_SORT, mlp), 1, 1, ARG(experts), ARG(T), ARG(rows), ARG(tasks));
	if (k->profile && !k->error.code)
		profile_tasks(k->profile, tasks, kernels_task_ints(&k->shape.mlps[mlp], T),
			      k->shape.mlps[mlp].experts);
}

void kernel_moe_gate_up(struct kernels *k, uint32_t mlp, cl_mem h, cl_mem experts, cl_mem shared,
			cl_mem tasks, cl_mem rows, cl_mem act, uint32_t T)
{
	const struct kernel_mlp *m = &k->shape.mlps[mlp];
	uint32_t N = KERNEL_LD(MAX(m->expert_size, m->shared_size));
	struct tuning_place p = cuts_experts(&k->shape, mlp, false, T);
	uint32_t cut = cuts_find(&k->cuts, &p);

	/* A tensor group has the gate and the up panel of 16 columns. */
	LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_GATE_UP, mlp), product_lanes(k),
		   on_tensor_cores(k) ? N / 16 : column_groups(k, cut, false, N),
		   kernels_max_tasks(m, T), ARG(h), ARG(experts), ARG(shared), ARG(tasks),
		   ARG(rows), ARG(act));
	note_place(k, &p);
}

void kernel_moe_down(struct kernels *k, uint32_t mlp, cl_mem act, cl_mem experts, cl_mem shared,
		     cl_mem tasks, cl_mem rows, cl_mem y, uint32_t T)
{
	struct tuning_place p = cuts_experts(&k->shape, mlp, true, T);
	uint32_t cut = cuts_find(&k->cuts, &p);

	LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_DOWN, mlp), product_lanes(k),
		   column_groups(k, cut, on_tensor_cores(k), KERNEL_LD(k->shape.hidden)),
		   kernels_max_tasks(&k->shape.mlps[mlp], T), ARG(act), ARG(experts), ARG(shared),
		   ARG(tasks), ARG(rows), ARG(y));
	note_place(k, &p);
}

void kernel_attention_prepare(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
			      cl_mem proj, cl_mem wq, cl_mem wk, cl_mem rope, cl_mem q,
			      cl_mem k_pages, cl_mem v_pages, uint32_t T)
{
	LAUNCH(k, K_ATTENTION_PREPARE, T, k->shape.heads + k->shape.kv_heads, ARG(step),
	       ARG(rows_at), ARG(token_rows_at), ARG(proj), ARG(wq), ARG(wk), ARG(rope), ARG(q),
	       ARG(k_pages), ARG(v_pages));
}

void kernel_attention(struct kernels *k, cl_mem step, cl_int rows_at, cl_int tiles_at, cl_mem proj,
		      cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem out, uint32_t n_tiles,
		      uint32_t T)
{
	struct tuning_place p = cuts_attention(&k->shape, T);

	LAUNCH_CUT(k, cuts_find(&k->cuts, &p), K_ATTENTION, k->tuning->lanes, n_tiles,
		   k->shape.kv_heads, ARG(step), ARG(rows_at), ARG(tiles_at), ARG(proj), ARG(q),
		   ARG(k_pages), ARG(v_pages), ARG(out));
	note_place(k, &p);
}

void kernel_delta_conv(struct kernels *k, cl_mem step, cl_int rows_at, cl_int token_rows_at,
		       cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias, cl_mem ring,
		       cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates, uint32_t T)
{
	LAUNCH(k, K_DELTA_CONV, T, 2 * k->shape.key_heads + k->shape.value_heads, ARG(step),
	       ARG(rows_at), ARG(token_rows_at), ARG(proj), ARG(conv_w), ARG(neg_a), ARG(dt_bias),
	       ARG(ring), ARG(qs), ARG(ks), ARG(vs), ARG(gates));
}

void kernel_delta_prefill(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t n_rows,
			  cl_mem proj, cl_mem qs, cl_mem ks, cl_mem vs, cl_mem gates, cl_mem norm_w,
			  cl_mem ring, cl_mem state, cl_mem work, cl_mem out)
{
	uint64_t pairs = (uint64_t)n_rows * k->shape.value_heads;
	cl_int first_row = 0, rows = (cl_int)n_rows; /* prefill rows come first */

	LAUNCH(k, K_DELTA_PREFILL, MIN(pairs, (uint64_t)delta_groups(k)), 1, ARG(step),
	       ARG(rows_at), ARG(first_row), ARG(rows), ARG(proj), ARG(qs), ARG(ks), ARG(vs),
	       ARG(gates), ARG(norm_w), ARG(ring), ARG(state), ARG(work), ARG(out));
}

void kernel_delta_decode(struct kernels *k, cl_mem step, cl_int rows_at, uint32_t first_row,
			 uint32_t n_rows, cl_mem proj, cl_mem conv_w, cl_mem neg_a, cl_mem dt_bias,
			 cl_mem norm_w, cl_mem ring, cl_mem state, cl_mem out)
{
	cl_int first = (cl_int)first_row;

	LAUNCH(k, K_DELTA_DECODE, n_rows, k->shape.value_heads, ARG(step), ARG(rows_at), ARG(first),
	       ARG(proj), ARG(conv_w), ARG(neg_a), ARG(dt_bias), ARG(norm_w), ARG(ring), ARG(state),
	       ARG(out));
}

/* Groups that share a row of logits: where there are fewer rows than compute units, and blocks enough that it is worth a
 * thread's waking; on a GPU a block a lane. */
static uint32_t sample_parts(const struct kernels *k, uint32_t rows)
{
	uint32_t blocks = SAMPLE_BLOCKS(k->shape.vocab);

	if (k->tuning->lanes > 1)
		return CEIL_DIV(blocks, k->tuning->lanes);
	return MAX(MIN(CEIL_DIV(k->compute_units, MAX(rows, 1u)), blocks / 64), 1u);
}

void kernel_sample(struct kernels *k, cl_mem step, cl_int draws_at, cl_mem logits, cl_mem work,
		   cl_mem counts, cl_mem result, uint32_t n_draws)
{
	LAUNCH(k, K_SAMPLE, n_draws, sample_parts(k, n_draws), ARG(step), ARG(draws_at),
	       ARG(logits), ARG(work), ARG(counts), ARG(result));
}

void kernel_score(struct kernels *k, cl_mem step, cl_int scores_at, cl_mem logits, cl_mem work,
		  cl_mem result, uint32_t n)
{
	LAUNCH(k, K_SCORE, n, sample_parts(k, n), ARG(step), ARG(scores_at), ARG(logits), ARG(work),
	       ARG(result));
}

void kernel_seat_reset(struct kernels *k, cl_mem step, cl_int resets_at, cl_mem counts, uint32_t n)
{
	LAUNCH(k, K_SEAT_RESET, n, 1, ARG(step), ARG(resets_at), ARG(counts));
}

void kernel_synthesize(struct kernels *k, cl_mem W, uint64_t first_panel, uint32_t stride,
		       uint64_t rows, uint64_t cols, uint64_t key, float scale, float offset)
{
	cl_ulong first = first_panel, r = rows, c = cols, seed = key;

	LAUNCH(k, K_SYNTHESIZE, CEIL_DIV(rows, 16u), 1, ARG(W), ARG(first), ARG(stride), ARG(r),
	       ARG(c), ARG(seed), ARG(scale), ARG(offset));
}

void kernel_synthesize_rows(struct kernels *k, cl_mem table, uint64_t rows, uint64_t cols,
			    uint64_t key, float scale, float offset)
{
	cl_ulong r = rows, c = cols, seed = key;

	LAUNCH(k, K_SYNTHESIZE_ROWS, rows, 1, ARG(table), ARG(r), ARG(c), ARG(seed), ARG(scale),
	       ARG(offset));
}

void kernel_address(struct kernels *k, cl_mem buffer, cl_mem addresses, uint32_t i)
{
	cl_uint at = i;

	LAUNCH(k, K_ADDRESS, 1, 1, ARG(buffer), ARG(addresses), ARG(at));
}

void kernel_decode_step(struct kernels *k, cl_mem step, cl_int work_at, cl_mem addresses,
			uint32_t T)
{
	struct tuning_place p = cuts_decode_step(&k->shape, T);

	LAUNCH_CUT(k, cuts_find(&k->cuts, &p), K_DECODE_STEP, k->tuning->lanes, k->compute_units, 1,
		   ARG(step), ARG(work_at), ARG(addresses));
	note_place(k, &p);
}

/* ---- cuts that are used now and then ---- */

/* One group of a cut's kernels, with nothing to do: `none` is zeros, `step` has one tile of one token. */
static void warm_gemm(struct kernels *k, uint32_t cut, cl_mem none, cl_mem out)
{
	cl_uint M = 0, side = 16;

	LAUNCH_CUT(k, cut, K_GEMM_STORE, product_lanes(k), 1, 1, ARG(none), ARG(side), ARG(none),
		   ARG(out), ARG(side), ARG(M), ARG(side), ARG(side));
	LAUNCH_CUT(k, cut, K_GEMM_ADD, product_lanes(k), 1, 1, ARG(none), ARG(side), ARG(none),
		   ARG(out), ARG(side), ARG(M), ARG(side), ARG(side), ARG(out));
	for (uint32_t i = 0; i < k->shape.n_mlps; i++) {
		LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_GATE_UP, i), product_lanes(k), 1, 1, ARG(none),
			   ARG(none), ARG(none), ARG(none), ARG(none), ARG(out));
		LAUNCH_CUT(k, cut, MLP_KERNEL(K_MOE_DOWN, i), product_lanes(k), 1, 1, ARG(none),
			   ARG(none), ARG(none), ARG(none), ARG(none), ARG(out));
	}
}

static void warm_attention(struct kernels *k, uint32_t cut, cl_mem step, cl_mem none, cl_mem out)
{
	cl_int rows_at = 0, tiles_at = WARM_TILE_AT;

	LAUNCH_CUT(k, cut, K_ATTENTION, k->tuning->lanes, 1, 1, ARG(step), ARG(rows_at),
		   ARG(tiles_at), ARG(none), ARG(none), ARG(none), ARG(none), ARG(out));
}

/*
 * A driver may compile at a kernel's first launch (PoCL does), and a cut that only some sizes take would have its first one
 * in somebody's request: launches all that the tables brought, with nothing to do.
 */
static int warm_cuts(struct kernels *k, cl_context context, struct err *e)
{
	const struct kernel_shape *s = &k->shape;
	/* Of what attention reads the largest: a page; and the list of a decode step that has ended. */
	size_t bytes = 4 * MAX((size_t)s->kv_heads * s->head_dim * s->page_tokens,
			       (size_t)kernels_attention_ld(s) + 4096);
	const int32_t tile[WARM_TILE_AT + 3] = {[WARM_TILE_AT + 2] = 1};
	cl_mem none, step, out;
	cl_int work_at = 0;
	void *zeros;

	if (k->cuts.n[CUT_GEMM] + k->cuts.n[CUT_ATTENTION] + k->cuts.n[CUT_DECODE_STEP] ==
	    CUT_PROGRAMS)
		return 0;
	zeros = calloc(1, bytes);
	if (!zeros)
		return err_set(e, ENOMEM, "out of memory");
	none = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, zeros,
			      NULL);
	step = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof(tile),
			      (void *)(uintptr_t)tile, NULL);
	out = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, NULL);
	free(zeros);
	if (none && step && out) {
		for (uint32_t i = 1; i < k->cuts.n[CUT_GEMM]; i++)
			warm_gemm(k, i, none, out);
		for (uint32_t i = 1; i < k->cuts.n[CUT_ATTENTION]; i++)
			warm_attention(k, i, step, none, out);
		/* Last: they count tickets in what was zeros. */
		for (uint32_t i = 1; i < k->cuts.n[CUT_DECODE_STEP]; i++)
			LAUNCH_CUT(k, i, K_DECODE_STEP, k->tuning->lanes, k->compute_units, 1,
				   ARG(none), ARG(work_at), ARG(none));
		clFinish(k->queue);
	}
	if (none)
		clReleaseMemObject(none);
	if (step)
		clReleaseMemObject(step);
	if (out)
		clReleaseMemObject(out);
	k->launches = 0;
	return none && step && out ? kernels_status(k, e) : err_set(e, ENOMEM, "out of memory");
}
