/*
 * What is compiled: programs once a shape and a cut, with the options below, which are the only place where a model's
 * numbers become macros.
 */
#include "kernels/kernels_internal.h"

#include <errno.h>
#include <string.h>

#include "kernels/cl_error.h"
#include "kernels/int8.h"

static void mlp_options(const struct kernels *k, uint32_t mlp, struct buf *o)
{
	const struct kernel_mlp *m = &k->shape.mlps[mlp];

	buf_printf(o,
		   " -DEXPERTS=%u -DTOPK=%u -DEXPERT_SIZE=%u -DSHARED_SIZE=%u -DNORM_TOPK=%d"
		   " -DSHARED_GATE=%d -DACT_LD=%u",
		   m->experts, m->topk, m->expert_size, m->shared_size, m->norm_topk,
		   m->shared_gate, KERNEL_LD(MAX(m->expert_size, m->shared_size)));
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

	buf_printf(
		o,
		" -DHEADS=%u -DKV_HEADS=%u -DHD=%u -DPAGE=%u -DATTENTION_GATE=%d -DATTENTION_LD=%u"
		" -DTILE_TOKENS=%u",
		s->heads, s->kv_heads, s->head_dim, s->page_tokens, s->attention_gate,
		kernels_attention_ld(s), kernels_cut_tile_tokens(k, cut));
}

static void delta_options(const struct kernels *k, struct buf *o)
{
	const struct kernel_shape *s = &k->shape;

	buf_printf(o, " -DHK=%u -DHV=%u -DDK=%u -DDV=%u -DCONV=%u -DDELTA_LD=%u -DSCRATCH=%u",
		   s->key_heads, s->value_heads, s->key_dim, s->value_dim, s->conv,
		   kernels_delta_ld(s), kernels_delta_group_floats(s));
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

int kernels_add_programs(struct kernels *k, struct library *l, struct err *e)
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

static const struct int8_tuning int8_cpu_generic = {4, 2, 8, 64};
static const struct int8_tuning int8_vpdpbusd = {8, 2, 8, 64};
static const struct int8_tuning int8_gpu = {8, 2, 2, 64};

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
