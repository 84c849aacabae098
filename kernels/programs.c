/* The programs to compile, and their options. A program is a row of the table below. If the model's shape and the
 * device need it, it is compiled once for each of its cuts, or with each_mlp once for each cut and each MLP of the
 * shape. A model's numbers become macros here and nowhere else. All these macros are offered to every program.
 * library.c leaves out those that a program does not name, so models that differ only in macros left out share the
 * program's binary. */
#include "kernels/kernels_internal.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "kernels/cl_error.h"

/* ---- which shapes need a program ---- */

static bool on_gpu(const struct kernels *k)
{
	return k->tuning->lanes > 1;
}

static bool on_cpu(const struct kernels *k)
{
	return !on_gpu(k);
}

static bool has_wide_products(const struct kernels *k)
{
	return k->wgmma;
}

static bool has_out_norms(const struct kernels *k)
{
	return k->shape.out_norms;
}

static bool has_attention(const struct kernels *k)
{
	return k->shape.heads;
}

static bool has_wide_attention(const struct kernels *k)
{
	return kernels_has_flash(k) && k->wgmma && k->shape.head_dim % 64 == 0;
}

static bool has_narrow_attention(const struct kernels *k)
{
	return kernels_has_flash(k) && !has_wide_attention(k);
}

static bool has_window(const struct kernels *k)
{
	return k->shape.heads && k->shape.window;
}

static bool splits_attention(const struct kernels *k)
{
	return kernels_split_slots(k);
}

static bool has_delta(const struct kernels *k)
{
	return k->shape.key_heads;
}

static bool has_delta_on_cpu(const struct kernels *k)
{
	return has_delta(k) && on_cpu(k);
}

static bool has_delta_on_gpu(const struct kernels *k)
{
	return has_delta(k) && on_gpu(k);
}

static bool has_mma_scan(const struct kernels *k)
{
	return kernels_has_tensor_delta(k) && !k->wgmma;
}

static bool has_wgmma_scan(const struct kernels *k)
{
	return kernels_has_tensor_delta(k) && k->wgmma;
}

static bool has_delta_chunks(const struct kernels *k)
{
	return has_delta_on_gpu(k) && !kernels_has_tensor_delta(k);
}

/* ---- the table ---- */

enum { KERNELS_MAX = 8 }; /* the most kernels of a program */

static const struct program {
	const char *file; /* the file's name; library.c finds the variant's file */
	/* Kernels from K_COMBINE_NORM on are taken for each MLP, the others for the first MLP alone. */
	struct {
		enum kernel_id id;
		const char *name;  /* the function */
		const char *shown; /* name in profiles and errors of launches; NULL: `name` */
		bool experts;	   /* only for an MLP with experts */
	} kernels[KERNELS_MAX];
	bool (*needed)(const struct kernels *k); /* NULL: every shape needs it */
	enum cut_program cuts;			 /* compiled for each cut of this kind (cuts.h) */
	bool each_mlp;				 /* compiled for each MLP too */
	bool floats; /* elements are float in it, whatever the model's type: models of both types share the program */
	uint32_t gpu_lanes; /* lanes of a group on a GPU; 0: as the variant says */
	/* the most registers that a lane of an NVIDIA GPU gets if weights are quantised; 0: the compiler chooses */
	uint32_t quant_registers;
} programs[] = {
	{.file = "embed.cl", .kernels = {{K_EMBED, "embed"}}},
	{.file = "norm.cl",
	 .each_mlp = true,
	 .gpu_lanes = 256,
	 .kernels = {{K_RMS_NORM, "rms_norm"}, {K_COMBINE_NORM, "combine_norm"}}},
	{.file = "norm.cl",
	 .needed = has_out_norms,
	 .gpu_lanes = 256,
	 .kernels = {{K_ADD_NORM, "add_norm"}}},
	{.file = "gemm.cl",
	 .cuts = CUT_GEMM,
	 .kernels = {{K_GEMM_STORE, "gemm_store"}, {K_GEMM_ADD, "gemm_add"}}},
	{.file = "gemm_parts.cl",
	 .needed = kernels_on_tensor_cores,
	 .kernels = {{K_GEMM_STORE_PARTS, "gemm_store_parts", .shown = "gemm_store"},
		     {K_GEMM_ADD_PARTS, "gemm_add_parts", .shown = "gemm_add"}}},
	{.file = "gemm.cl",
	 .needed = on_cpu,
	 .floats = true,
	 .kernels = {{K_ROUTER_GEMM, "gemm_store", .shown = "router"}}},
	{.file = "router.cl",
	 .needed = on_gpu,
	 .floats = true,
	 .gpu_lanes = ROUTER_LANES,
	 .kernels = {{K_ROUTER_GEMM, "router"},
		     {K_ROUTER_TALL, "router_tall", .shown = "router"},
		     {K_ROUTER_FEW, "router_few", .shown = "router"}}},
	{.file = "moe_gemm.cl",
	 .cuts = CUT_GEMM,
	 .each_mlp = true,
	 .kernels = {{K_MOE_GATE_UP, "moe_gate_up"}, {K_MOE_DOWN, "moe_down"}}},
	{.file = "gemm_wide.cl",
	 .needed = has_wide_products,
	 .each_mlp = true,
	 .gpu_lanes = WIDE_LANES,
	 .quant_registers = 128, /* two groups fit: one multiplies while the other one decodes */
	 .kernels = {{K_GEMM_STORE_WIDE, "gemm_wide", .shown = "gemm_store"},
		     {K_GEMM_ADD_WIDE, "gemm_wide", .shown = "gemm_add"},
		     {K_GEMM_STORE_WIDE_PARTS, "gemm_wide_parts", .shown = "gemm_store"},
		     {K_GEMM_ADD_WIDE_PARTS, "gemm_wide_parts", .shown = "gemm_add"},
		     {K_GEMM_SPLIT, "gemm_split"},
		     {K_GEMM_SUM_PARTS, "gemm_sum_parts"},
		     {K_GATE_UP_WIDE, "gate_up_wide", .shown = "moe_gate_up"},
		     {K_DOWN_WIDE, "down_wide", .shown = "moe_down"}}},
	{.file = "moe_route.cl",
	 .each_mlp = true,
	 .floats = true,
	 .gpu_lanes = 256,
	 .kernels = {{K_MOE_TOPK, "moe_topk", .experts = true}, {K_MOE_SORT, "moe_sort"}}},
	{.file = "attention.cl",
	 .needed = has_attention,
	 .cuts = CUT_ATTENTION,
	 .kernels = {{K_ATTENTION_PREPARE, "attention_prepare"}, {K_ATTENTION, "attention"}}},
	{.file = "attention_flash.cl",
	 .needed = has_narrow_attention,
	 .gpu_lanes = 256,
	 .kernels = {{K_ATTENTION_FLASH, "attention_flash", .shown = "attention"}}},
	{.file = "attention_wide.cl",
	 .needed = has_wide_attention,
	 .gpu_lanes = 256,
	 .kernels = {{K_ATTENTION_FLASH, "attention_flash", .shown = "attention"}}},
	{.file = "attention_decode.cl",
	 .needed = splits_attention,
	 .gpu_lanes = SPLIT_LANES,
	 .kernels = {{K_ATTENTION_SPLIT, "attention_split"},
		     {K_ATTENTION_COMBINE, "attention_combine"}}},
	{.file = "copy_pages.cl",
	 .needed = has_window,
	 .gpu_lanes = 256,
	 .kernels = {{K_COPY_PAGES, "copy_pages"}}},
	{.file = "delta_conv.cl",
	 .needed = has_delta_on_cpu,
	 .kernels = {{K_DELTA_CONV, "delta_conv"}}},
	{.file = "delta_conv_gpu.cl",
	 .needed = has_delta_chunks,
	 .kernels = {{K_DELTA_CONV, "delta_conv"}, {K_DELTA_NORM, "delta_norm"}}},
	{.file = "delta_prefill.cl",
	 .needed = has_delta_on_cpu,
	 .kernels = {{K_DELTA_PREFILL, "delta_prefill"}}},
	{.file = "delta_chunks.cl",
	 .needed = has_delta_chunks,
	 .gpu_lanes = 256,
	 .floats = true,
	 .kernels = {{K_DELTA_CHUNK, "delta_chunk"}, {K_DELTA_SCAN, "delta_scan"}}},
	{.file = "delta_tensor.cl",
	 .needed = kernels_has_tensor_delta,
	 .gpu_lanes = 256,
	 .kernels = {{K_DELTA_CONV_TENSOR, "delta_conv_tensor"},
		     {K_DELTA_CHUNK_TENSOR, "delta_chunk_tensor", .shown = "delta_chunk"},
		     {K_DELTA_OUT_TENSOR, "delta_out_tensor", .shown = "delta_out"}}},
	{.file = "delta_scan.cl",
	 .needed = has_mma_scan,
	 .gpu_lanes = 256, /* for delta_tensor.clh; launches have SCAN_LANES */
	 .kernels = {{K_DELTA_SCAN_TENSOR, "delta_scan_tensor"}}},
	{.file = "delta_scan_wide.cl",
	 .needed = has_wgmma_scan,
	 .gpu_lanes = 256,
	 .kernels = {{K_DELTA_SCAN_TENSOR, "delta_scan_tensor"}}},
	{.file = "delta_decode.cl",
	 .needed = has_delta_on_cpu,
	 .kernels = {{K_DELTA_DECODE, "delta_decode"}}},
	{.file = "delta_token.cl",
	 .needed = has_delta_on_gpu,
	 .gpu_lanes = 256,
	 .kernels = {{K_DELTA_DECODE, "delta_decode"}}},
	{.file = "sample.cl",
	 .floats = true,
	 .gpu_lanes = 256,
	 .kernels = {{K_SAMPLE_BLOCKS, "sample_blocks"},
		     {K_SAMPLE, "sample"},
		     {K_SAMPLE_ALONE, "sample", .shown = "sample_blocks"},
		     {K_SCORE_BLOCKS, "score_blocks", .shown = "score"},
		     {K_SCORE, "score"},
		     {K_SEAT_RESET, "seat_reset"}}},
	{.file = "pool.cl", .floats = true, .kernels = {{K_POOL, "pool"}}},
	{.file = "decode_step.cl",
	 .needed = kernels_has_decode_step,
	 .cuts = CUT_DECODE_STEP,
	 .gpu_lanes = STEP_HALF,
	 .kernels = {{K_DECODE_STEP, "decode_step"}}},
	{.file = "address.cl",
	 .needed = kernels_has_decode_step,
	 .floats = true,
	 .kernels = {{K_ADDRESS, "address"}}},
	{.file = "synthesize.cl",
	 .kernels = {{K_SYNTHESIZE, "synthesize"},
		     {K_SYNTHESIZE_ROWS, "synthesize_rows", .shown = "synthesize"}}},
};

/* ---- options ---- */

/* Returns the number of terms of the longest sum of a product, rounded up to a power of two from 512 on, so that few
 * programs differ by it. */
static uint32_t largest_k(const struct kernel_shape *s)
{
	uint32_t k = MAX(s->hidden, MAX(s->heads * s->head_dim, s->value_heads * s->value_dim));
	uint32_t bucket = 512;

	for (uint32_t i = 0; i < s->n_mlps; i++)
		k = MAX(k, MAX(s->mlps[i].expert_size, s->mlps[i].shared_size));
	while (bucket < k)
		bucket *= 2;
	return bucket;
}

static void mixer_options(const struct kernel_shape *s, uint32_t tile_tokens, struct buf *o)
{
	buf_printf(o,
		   " -DROT=%u -DHEADS=%u -DKV_HEADS=%u -DHD=%u -DPAGE=%u -DATTENTION_GATE=%d"
		   " -DQK_NORM=%d -DQKV_BIAS=%d -DATTENTION_LD=%u -DTILE_TOKENS=%u"
		   " -DSCORE_DIM=%u -DWINDOW=%u -DROPES=%u -DKV_INT8=%d",
		   kernels_rope_ld(s), s->heads, s->kv_heads, s->head_dim, s->page_tokens,
		   s->attention_gate, s->qk_norm, s->qkv_bias, kernels_attention_ld(s), tile_tokens,
		   s->score_dim ? s->score_dim : s->head_dim, s->window, MAX(s->ropes, 1u),
		   s->kv_int8);
	buf_printf(o,
		   " -DHK=%u -DHV=%u -DTILED_HEADS=%d -DDK=%u -DDV=%u -DCONV=%u -DDELTA_LD=%u"
		   " -DSCRATCH=%u",
		   s->key_heads, s->value_heads, s->tiled_heads, s->key_dim, s->value_dim, s->conv,
		   kernels_delta_ld(s), kernels_delta_group_floats(s));
}

static void mlp_options(const struct kernels *k, const struct kernel_mlp *m, struct buf *o)
{
	buf_printf(o,
		   " -DEXPERTS=%u -DTOPK=%u -DEXPERT_SIZE=%u -DSHARED_SIZE=%u -DNORM_TOPK=%d"
		   " -DSHARED=%d -DSHARED_GATE=%d -DACT_LD=%u -DWARP_TOPK=%d",
		   m->experts, m->topk, m->expert_size, m->shared_size, m->norm_topk,
		   m->shared_size > 0, m->shared_gate,
		   (unsigned)kernels_input_ld(&k->shape, MAX(m->expert_size, m->shared_size)),
		   kernels_has_warp_topk(k, m));
}

static void cut_options(const struct tuning_cut *c, struct buf *o)
{
	buf_printf(
		o,
		" -DTILE_ROWS=%u -DTILE_BLOCKS=%u -DNPG=%u -DROW_BLOCK=%u -DAHEAD=%u -DCHAINS=%u",
		c->tile_rows, c->tile_blocks, c->blocks, c->row_block, c->ahead, c->chains);
}

/* Appends the option for correctly rounded division, if the device has that and the program is one that needs it.
 * Otherwise a GPU divides approximately. With inputs of int8, which products of quantised weights have but for those on
 * tensor cores, a value halfway between two integers could be rounded to the other one. generic/decode_step.cl has the
 * option for that, and chooses experts as moe_route.cl does, so the latter has it as well. */
static void division_option(const struct kernels *k, const struct program *p, struct buf *o)
{
	cl_device_fp_config config = 0;
	cl_device_id device = NULL;

	if (!k->shape.quant || kernels_on_tensor_cores(k) || (p->floats && !p->each_mlp))
		return;
	clGetCommandQueueInfo(k->queue, CL_QUEUE_DEVICE, sizeof(device), &device, NULL);
	clGetDeviceInfo(device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(config), &config, NULL);
	if (config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)
		buf_printf(o, " -cl-fp32-correctly-rounded-divide-sqrt");
}

/* ---- compiling ---- */

static uint32_t program_lanes(const struct kernels *k, const struct program *p)
{
	return on_gpu(k) && p->gpu_lanes ? p->gpu_lanes : k->tuning->lanes;
}

static void offer_options(const struct kernels *k, const struct program *p, uint32_t mlp,
			  uint32_t cut, struct buf *o)
{
	const struct kernel_shape *s = &k->shape;
	const bool int8 = s->int8 && !p->floats;
	enum cut_program products = p->cuts == CUT_DECODE_STEP ? CUT_DECODE_STEP : CUT_GEMM;

	buf_printf(
		o,
		"-cl-std=CL%s -DLANES=%u -DVEC=%u -DREGISTER_SUMS=%u -DBF16=%d -DDUMP=%d -DHIDDEN=%u -DVOCAB=%u"
		" -DEPS=%.9ef -DPACKING=%d -DMAX_K=%u -DBRANCHES=%d -DGELU=%d -DOUT_NORMS=%d"
		" -DEMBED_SCALE=%.9ef",
		s->quant && !p->floats && k->int8_dot == INT8_DOT_PRODUCT ? "3.0" : "1.2",
		program_lanes(k, p), k->tuning->vec, k->tuning->register_sums,
		s->bf16 && !p->floats, s->dump, s->hidden, s->vocab, (double)s->eps,
		p->floats ? KERNEL_PACK_PANELS : k->packing, largest_k(s), k->branches, s->gelu,
		s->out_norms, s->embed_scale > 0 ? (double)s->embed_scale : 1.0);
	mlp_options(k, &s->mlps[mlp], o);
	/* Where attention_flash.cl is used, only attention_prepare of attention.cl is launched. It has no tiles. */
	mixer_options(s,
		      p->cuts == CUT_ATTENTION && kernels_has_flash(k)
			      ? 1
			      : kernels_cut_tile_tokens(k, p->cuts == CUT_ATTENTION ? cut : 0),
		      o);
	cut_options(&k->cuts.of[products][p->cuts == products ? cut : 0], o);
	buf_printf(o, " -DINT8=%d -DQUANT_MASK=%uu -DQUANT_EMBED=%d", int8, s->quant,
		   s->quant_embed);
	if (s->quant && !p->floats)
		buf_printf(o, " -DINT8_DOT=%d", k->int8_dot);
	division_option(k, p, o);
	if (p->quant_registers && s->quant && kernels_on_tensor_cores(k))
		buf_printf(o, " -cl-nv-maxrregcount=%u", p->quant_registers);
	if (s->unoptimised)
		buf_printf(o, " -cl-opt-disable");
}

static int take_kernels(struct kernels *k, const struct program *p, uint32_t mlp, uint32_t cut,
			cl_program from, struct err *e)
{
	for (size_t i = 0; i < KERNELS_MAX && p->kernels[i].name; i++) {
		bool of_mlp = p->kernels[i].id >= K_COMBINE_NORM;
		int id = of_mlp ? MLP_KERNEL(p->kernels[i].id, mlp) : (int)p->kernels[i].id;
		cl_int code;

		if ((p->kernels[i].experts && !k->shape.mlps[mlp].experts) || (mlp && !of_mlp))
			continue;
		k->kernels[cut][id] = clCreateKernel(from, p->kernels[i].name, &code);
		k->lanes[id] = program_lanes(k, p);
		k->names[id] = p->kernels[i].shown ? p->kernels[i].shown : p->kernels[i].name;
		if (code != CL_SUCCESS)
			return cl_error(e, code, p->kernels[i].name);
	}
	return 0;
}

static int add_program(struct kernels *k, struct library *l, const struct program *p, uint32_t mlp,
		       uint32_t cut, struct err *e)
{
	cl_program *program = &k->programs[k->n_programs];
	struct buf options;
	int r;

	if (k->n_programs == ARRAY_SIZE(k->programs))
		return err_set(e, E2BIG, "more than %zu programs", ARRAY_SIZE(k->programs));
	buf_init(&options, 4096);
	offer_options(k, p, mlp, cut, &options);
	r = options.failed
		    ? err_set(e, ENOMEM, "options of kernel program %s: out of memory", p->file)
		    : library_program(l, p->file, buf_str(&options), program, e);
	buf_release(&options);
	if (r < 0)
		return r;
	k->n_programs++;
	return take_kernels(k, p, mlp, cut, *program, e);
}

/* Returns how often a program is made for a set: once for each of its cuts, or for each cut and MLP. 0: the set does
 * not need the program. */
static uint32_t times(const struct kernels *k, const struct program *p)
{
	if ((p->needed && !p->needed(k)) || (k->shape.only && !strstr(k->shape.only, p->file)))
		return 0;
	return (p->each_mlp ? k->shape.n_mlps : 1) * k->cuts.n[p->cuts];
}

int kernels_add_programs(struct kernels *k, struct library *l, struct err *e)
{
	const uint32_t built = l->built, loaded = l->loaded;
	struct log_progress progress = {0};
	/* On a slow device a line comes every half minute. It says that later starts have nothing to compile. */
	const char *once = l->cache_dir ? ", once: the program cache keeps them" : "";
	uint32_t all = 0, n_built = 0, n_wanted = 0;
	int r = 0;

	for (const struct program *p = programs; p < programs + ARRAY_SIZE(programs); p++)
		all += times(k, p);
	for (const struct program *p = programs; p < programs + ARRAY_SIZE(programs); p++)
		for (uint32_t i = 0, n = times(k, p); r == 0 && i < n; i++) {
			r = add_program(k, l, p, i / k->cuts.n[p->cuts], i % k->cuts.n[p->cuts], e);
			n_built = l->built - built;
			n_wanted = all - (l->loaded - loaded);
			if (r == 0 && n_built && n_built < n_wanted)
				log_progress(&progress, clock_now_ns(), (double)n_built / n_wanted,
					     "compiled %u of %u programs%s", n_built, n_wanted,
					     once);
		}
	if (r == 0)
		log_progress_end(&progress, "compiled %u of %u programs%s", n_built, n_wanted,
				 once);
	return r;
}

const char *kernels_name(size_t i)
{
	for (size_t p = 0; p < ARRAY_SIZE(programs); p++)
		for (size_t n = 0; n < KERNELS_MAX && programs[p].kernels[n].name; n++)
			if (!i--)
				return programs[p].kernels[n].shown ? programs[p].kernels[n].shown
								    : programs[p].kernels[n].name;
	return NULL;
}
