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

#define MLP_KERNEL(id, mlp) ((id) + (mlp) * (K_END_OF_FIRST_MLP - K_COMBINE_NORM))

/* How a variant cuts its work. */
struct tuning {
	uint32_t lanes, vec;
	uint32_t tile_rows, tile_blocks; /* accumulators of the GEMM tile */
	uint32_t blocks;		 /* column blocks of a group */
	uint32_t row_block;		 /* rows a group walks */
	uint32_t attention_queries;	 /* queries of an attention tile, about */
	uint32_t decode_blocks; /* column blocks of a group of the decode step; 0: there is none */
	enum kernel_packing packing; /* of bf16 weights */
	uint32_t tensor_lanes,
		tensor_columns; /* a group of a tensor core's product; 0: there is none */
};

static const struct tuning cpu_generic = {1, 16, 4, 4, 8, 64, 8, 4, KERNEL_PACK_PANELS, 0, 0};
static const struct tuning cpu_x86 = {1, 16, 8, 2, 8, 64, 8, 4, KERNEL_PACK_PAIRS, 0, 0};
static const struct tuning gpu_generic = {64, 1, 8, 2, 2, 64, 8, 0, KERNEL_PACK_PANELS, 0, 0};
static const struct tuning gpu_nvidia = {64, 1, 8, 2, 2, 64, 8, 0, KERNEL_PACK_FRAGMENTS, 128, 32};

struct kernels {
	struct kernel_shape shape;
	const struct tuning *tuning;
	enum kernel_variant variant;
	cl_command_queue queue;
	uint32_t compute_units;
	cl_program programs[24];
	uint32_t n_programs;
	cl_kernel kernels[K_COUNT];
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
	return k->shape.bf16 ? k->tuning->packing : KERNEL_PACK_PANELS;
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

uint32_t kernels_tile_tokens(const struct kernels *k)
{
	uint32_t repeat = k->shape.heads / MAX(k->shape.kv_heads, 1u);

	return MAX(k->tuning->attention_queries / MAX(repeat, 1u), 1u);
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

static void gemm_options(const struct kernels *k, uint32_t blocks, struct buf *o)
{
	const struct tuning *t = k->tuning;

	buf_printf(o, " -DTILE_ROWS=%u -DTILE_BLOCKS=%u -DNPG=%u -DROW_BLOCK=%u", t->tile_rows,
		   t->tile_blocks, blocks, t->row_block);
}

static void attention_options(const struct kernels *k, struct buf *o)
{
	const struct kernel_shape *s = &k->shape;

	buf_printf(o,
		   " -DHEADS=%u -DKV_HEADS=%u -DHD=%u -DPAGE=%u -DATTENTION_LD=%u -DTILE_TOKENS=%u",
		   s->heads, s->kv_heads, s->head_dim, s->page_tokens, kernels_attention_ld(s),
		   kernels_tile_tokens(k));
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
static int add_program(struct kernels *k, struct library *l, const char *file, bool bf16,
		       const char *options, const struct kernel_name *kernels, struct err *e)
{
	const struct kernel_shape *s = &k->shape;
	struct buf o;
	cl_int code;
	int r;

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
		k->kernels[kernels->id] =
			clCreateKernel(k->programs[k->n_programs - 1], kernels->name, &code);
		if (code != CL_SUCCESS)
			return cl_error(e, code, kernels->name);
	}
	return 0;
}

#define KERNELS(...) ((const struct kernel_name[]){__VA_ARGS__, {0, NULL}})

static int add_programs(struct kernels *k, struct library *l, struct err *e)
{
	const struct kernel_shape *s = &k->shape;
	const struct tuning *t = k->tuning;
	struct buf gemm, packing, rotary, o;
	int r;

	buf_init(&packing, 64);
	buf_printf(&packing, " -DPACKING=%d", kernels_packing(k));
	buf_init(&gemm, 1024);
	buf_init(&rotary, 64);
	buf_init(&o, 1024);
	gemm_options(k, t->blocks, &gemm);
	buf_printf(&rotary, " -DROT=%u", MAX(s->rotary_dim, 2u));
	r = add_program(k, l, "embed.cl", s->bf16, rotary.data, KERNELS({K_EMBED, "embed"}), e);
	if (r < 0)
		goto out;
	r = add_program(k, l, "sample.cl", s->bf16, "",
			KERNELS({K_SAMPLE, "sample"}, {K_SCORE, "score"},
				{K_SEAT_RESET, "seat_reset"}),
			e);
	if (r < 0)
		goto out;
	r = add_program(k, l, "synthesize.cl", s->bf16, packing.data,
			KERNELS({K_SYNTHESIZE, "synthesize"},
				{K_SYNTHESIZE_ROWS, "synthesize_rows"}),
			e);
	if (r < 0)
		goto out;
	/* The router's product is in float whatever the elements are. */
	buf_reset(&o);
	buf_printf(&o, "%s -DMOE=0", gemm.data);
	r = add_program(k, l, "gemm.cl", false, o.data, KERNELS({K_ROUTER_GEMM, "gemm_store"}), e);
	for (uint32_t i = 0; r == 0 && i < s->n_mlps; i++) {
		buf_reset(&o);
		mlp_options(k, i, &o);
		r = add_program(k, l, "norm.cl", s->bf16, o.data,
				KERNELS({MLP_KERNEL(K_COMBINE_NORM, i), "combine_norm"}), e);
		if (r < 0)
			goto out;
		if (!i) {
			k->kernels[K_RMS_NORM] =
				clCreateKernel(k->programs[k->n_programs - 1], "rms_norm", NULL);
		}
		r = add_program(k, l, "moe_route.cl", s->bf16, o.data,
				KERNELS({MLP_KERNEL(K_MOE_SORT, i), "moe_sort"}), e);
		if (r < 0)
			goto out;
		if (s->mlps[i].experts)
			k->kernels[MLP_KERNEL(K_MOE_TOPK, i)] =
				clCreateKernel(k->programs[k->n_programs - 1], "moe_topk", NULL);
		buf_printf(&o, "%s -DMOE=1", gemm.data);
		r = add_program(k, l, "gemm.cl", s->bf16, o.data,
				KERNELS({MLP_KERNEL(K_MOE_GATE_UP, i), "moe_gate_up"},
					{MLP_KERNEL(K_MOE_DOWN, i), "moe_down"}),
				e);
		if (r == 0 && !i) {
			k->kernels[K_GEMM_STORE] =
				clCreateKernel(k->programs[k->n_programs - 1], "gemm_store", NULL);
			k->kernels[K_GEMM_ADD] =
				clCreateKernel(k->programs[k->n_programs - 1], "gemm_add", NULL);
		}
	}
	if (r == 0 && s->heads) {
		buf_reset(&o);
		buf_printf(&o, "%s", rotary.data);
		attention_options(k, &o);
		r = add_program(k, l, "attention.cl", s->bf16, o.data,
				KERNELS({K_ATTENTION_PREPARE, "attention_prepare"},
					{K_ATTENTION, "attention"}),
				e);
	}
	if (r == 0 && s->key_heads) {
		buf_reset(&o);
		delta_options(k, &o);
		r = add_program(k, l, "delta_decode.cl", s->bf16, o.data,
				KERNELS({K_DELTA_DECODE, "delta_decode"}), e);
		if (r == 0)
			r = add_program(k, l, "delta_prefill.cl", s->bf16, o.data,
					KERNELS({K_DELTA_CONV, "delta_conv"},
						{K_DELTA_PREFILL, "delta_prefill"}),
					e);
	}
	if (r == 0 && kernels_has_decode_step(k)) {
		buf_reset(&o);
		buf_printf(&o, "%s -DMOE=1", rotary.data);
		gemm_options(k, t->decode_blocks, &o);
		mlp_options(k, 0, &o);
		attention_options(k, &o);
		delta_options(k, &o);
		r = add_program(k, l, "decode_step.cl", s->bf16, o.data,
				KERNELS({K_ADDRESS, "address"}, {K_DECODE_STEP, "decode_step"}), e);
	}
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

int kernels_open(cl_context context, cl_device_id device, cl_command_queue queue,
		 const struct kernel_shape *shape, enum kernel_variant variant,
		 const char *cache_dir, struct kernels **ret, struct err *e)
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
	r = add_programs(k, &library, e);
	if (r < 0) {
		kernels_close(k);
		return r;
	}
	log_debug("kernels: %u programs compiled, %u from the cache", library.built,
		  library.loaded);
	*ret = k;
	return 0;
}

void kernels_close(struct kernels *k)
{
	if (!k)
		return;
	profile_free(k->profile);
	for (size_t i = 0; i < K_COUNT; i++)
		if (k->kernels[i])
			clReleaseKernel(k->kernels[i]);
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

void kernels_decode_cut(const struct kernels *k, uint32_t *ret_columns, uint32_t *ret_rows,
			uint32_t *ret_router_columns)
{
	uint32_t width = k->tuning->lanes * k->tuning->vec;

	*ret_columns = width * k->tuning->decode_blocks;
	*ret_rows = k->tuning->row_block;
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
static cl_event *note_launch(struct kernels *k, int id, uint64_t x, uint64_t y)
{
	const int a_set = K_END_OF_FIRST_MLP - K_COMBINE_NORM;
	int of_mlp = id < K_COMBINE_NORM ? -1 : id < K_END_OF_FIRST_MLP ? id : id - a_set;
	uint32_t mlp = of_mlp < 0 ? 0 : (uint32_t)((id - of_mlp) / a_set);

	return profile_launch(k->profile, k->kernels[id], id == K_ROUTER_GEMM ? "router" : NULL, x,
			      y, of_mlp >= 0 && !k->shape.mlps[mlp].experts,
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
static void launch(struct kernels *k, int id, uint32_t lanes, uint64_t x, uint64_t y,
		   const struct arg *args, size_t n)
{
	size_t local[2] = {lanes, 1}, global[2] = {x * lanes, y};
	cl_int code = CL_SUCCESS;

	if (k->error.code || !x || !y)
		return;
	assert(k->kernels[id]);
	for (size_t i = 0; i < n && code == CL_SUCCESS; i++)
		code = clSetKernelArg(k->kernels[id], (cl_uint)i, args[i].size, args[i].value);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(k->queue, k->kernels[id], 2, NULL, global, local, 0,
					      NULL, k->profile ? note_launch(k, id, x, y) : NULL);
	k->launches++;
	if (code != CL_SUCCESS) {
		char name[64] = "kernel";

		clGetKernelInfo(k->kernels[id], CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name,
				NULL);
		cl_error(&k->error, code, name);
	}
}

#define LAUNCH_LANES(k, id, lanes, x, y, ...)                         \
	do {                                                          \
		const struct arg args_[] = {__VA_ARGS__};             \
		launch(k, id, lanes, x, y, args_, ARRAY_SIZE(args_)); \
	} while (0)

#define LAUNCH(k, id, x, y, ...) LAUNCH_LANES(k, id, (k)->tuning->lanes, x, y, __VA_ARGS__)

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

/* Products of elements may run on tensor cores, in groups of another size; the router's, in float, never do. */
static bool on_tensor_cores(const struct kernels *k)
{
	return k->tuning->tensor_lanes && k->shape.bf16;
}

static uint32_t product_lanes(const struct kernels *k)
{
	return on_tensor_cores(k) ? k->tuning->tensor_lanes : k->tuning->lanes;
}

/* Groups that cover N columns. */
static uint64_t column_groups(const struct kernels *k, bool tensor, uint32_t N)
{
	uint32_t width = tensor ? k->tuning->tensor_columns
				: k->tuning->lanes * k->tuning->vec * k->tuning->blocks;

	return CEIL_DIV(N, width);
}

static void note_product(struct kernels *k, uint32_t M, uint32_t N, uint32_t K)
{
	if (k->profile && M && N && !k->error.code)
		profile_product(k->profile, M, N, K);
}

void kernel_gemm_store(struct kernels *k, bool router, cl_mem A, uint32_t lda, cl_mem W, cl_mem C,
		       uint32_t ldc, uint32_t M, uint32_t N, uint32_t K)
{
	bool tensor = !router && on_tensor_cores(k);

	LAUNCH_LANES(k, router ? K_ROUTER_GEMM : K_GEMM_STORE,
		     tensor ? k->tuning->tensor_lanes : k->tuning->lanes,
		     column_groups(k, tensor, N), CEIL_DIV(M, k->tuning->row_block), ARG(A),
		     ARG(lda), ARG(W), ARG(C), ARG(ldc), ARG(M), ARG(N), ARG(K));
	note_product(k, M, N, K);
}

void kernel_gemm_add(struct kernels *k, cl_mem A, uint32_t lda, cl_mem W, cl_mem C, uint32_t ldc,
		     uint32_t M, uint32_t N, uint32_t K, cl_mem dump)
{
	LAUNCH_LANES(k, K_GEMM_ADD, product_lanes(k), column_groups(k, on_tensor_cores(k), N),
		     CEIL_DIV(M, k->tuning->row_block), ARG(A), ARG(lda), ARG(W), ARG(C), ARG(ldc),
		     ARG(M), ARG(N), ARG(K), ARG(dump));
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

	/* A tensor group has the gate and the up panel of 16 columns. */
	LAUNCH_LANES(k, MLP_KERNEL(K_MOE_GATE_UP, mlp), product_lanes(k),
		     on_tensor_cores(k) ? N / 16 : column_groups(k, false, N),
		     kernels_max_tasks(m, T), ARG(h), ARG(experts), ARG(shared), ARG(tasks),
		     ARG(rows), ARG(act));
}

void kernel_moe_down(struct kernels *k, uint32_t mlp, cl_mem act, cl_mem experts, cl_mem shared,
		     cl_mem tasks, cl_mem rows, cl_mem y, uint32_t T)
{
	LAUNCH_LANES(k, MLP_KERNEL(K_MOE_DOWN, mlp), product_lanes(k),
		     column_groups(k, on_tensor_cores(k), KERNEL_LD(k->shape.hidden)),
		     kernels_max_tasks(&k->shape.mlps[mlp], T), ARG(act), ARG(experts), ARG(shared),
		     ARG(tasks), ARG(rows), ARG(y));
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
		      cl_mem q, cl_mem k_pages, cl_mem v_pages, cl_mem out, uint32_t n_tiles)
{
	LAUNCH(k, K_ATTENTION, n_tiles, k->shape.kv_heads, ARG(step), ARG(rows_at), ARG(tiles_at),
	       ARG(proj), ARG(q), ARG(k_pages), ARG(v_pages), ARG(out));
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

void kernel_decode_step(struct kernels *k, cl_mem step, cl_int work_at, cl_mem addresses)
{
	LAUNCH(k, K_DECODE_STEP, k->compute_units, 1, ARG(step), ARG(work_at), ARG(addresses));
}
