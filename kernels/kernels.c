/*
 * The kernel set: which variant and cuts it takes, and what is asked of it.
 */
#include "kernels/kernels_internal.h"

#include <CL/cl_ext.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cl_error.h"
#include "kernels/sample.h"
#include "kernels/step.h"

static const struct tuning cpu_generic = {1, 16, 4, 4, 8, 64, 8, 4, 64, KERNEL_PACK_PANELS, 0, 0};
static const struct tuning cpu_x86 = {1, 16, 8, 2, 8, 128, 8, 4, 3072, KERNEL_PACK_PAIRS, 0, 0};
static const struct tuning gpu_generic = {64, 1, 8, 2, 2, 64, 8, 0, 64, KERNEL_PACK_PANELS, 0, 0};
static const struct tuning gpu_nvidia = {64,  1, 8, 2, 2, 64, 8, 0, 64, KERNEL_PACK_FRAGMENTS,
					 128, 32};

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
	return ((s->attention_gate ? 2 : 1) * s->heads + 2 * s->kv_heads) * s->head_dim;
}

uint32_t kernels_delta_ld(const struct kernel_shape *s)
{
	return 2 * s->key_heads * s->key_dim + 2 * s->value_heads * s->value_dim +
	       2 * KERNEL_LD(s->value_heads);
}

uint32_t kernels_delta_groups(const struct kernels *k)
{
	return k->tuning->lanes == 1 ? k->compute_units : k->compute_units * 2;
}

uint32_t kernels_delta_group_floats(const struct kernel_shape *s)
{
	return s->key_dim * 64 + 2 * 64 * 64 + 2 * 64 * s->value_dim;
}

uint64_t kernels_delta_scratch(const struct kernels *k)
{
	return k->shape.key_heads
		       ? (uint64_t)kernels_delta_groups(k) * kernels_delta_group_floats(&k->shape)
		       : 0;
}

uint64_t kernels_sample_floats(const struct kernel_shape *s)
{
	return SAMPLE_FLOATS((uint64_t)s->vocab);
}

/* Every expert may end in a part of a task. */
uint64_t kernels_max_tasks(const struct kernel_mlp *m, uint32_t T)
{
	uint64_t choices = (uint64_t)T * m->topk;

	return MIN((uint64_t)m->experts, choices) + choices / TASK_ROWS +
	       CEIL_DIV(T, (uint32_t)TASK_ROWS);
}

uint64_t kernels_task_ints(const struct kernel_mlp *m, uint32_t n_tokens)
{
	return TASK_AT(kernels_max_tasks(m, n_tokens));
}

/* ---- cuts ---- */

uint32_t kernels_cut_tile_tokens(const struct kernels *k, uint32_t cut)
{
	return cuts_tile_tokens(&k->shape, &k->cuts.of[CUT_ATTENTION][cut]);
}

uint32_t kernels_tile_tokens(const struct kernels *k, uint32_t T)
{
	struct tuning_place p = cuts_attention(&k->shape, T);

	return kernels_cut_tile_tokens(k, cuts_find(&k->cuts, &p));
}

uint32_t kernels_least_tile_tokens(const struct kernels *k)
{
	uint32_t least = kernels_cut_tile_tokens(k, 0);

	for (uint32_t i = 1; i < k->cuts.n[CUT_ATTENTION]; i++)
		least = MIN(least, kernels_cut_tile_tokens(k, i));
	return least;
}

bool kernels_on_tensor_cores(const struct kernels *k)
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
	struct tuning_cut defaults[CUT_PROGRAMS] = {
		[CUT_GEMM] = gemm,
		[CUT_ATTENTION] = {.queries = t->attention_queries},
		[CUT_DECODE_STEP] = gemm,
	};
	struct tuning_device device = {.units = k->compute_units, .bf16 = k->shape.bf16};
	struct tuning_table *own;
	int r = tuning_built_in(&own, e);

	if (r < 0)
		return r;
	defaults[CUT_DECODE_STEP].blocks = t->decode_blocks;
	clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof(device.name) - 1, device.name, NULL);
	clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof(device.driver) - 1, device.driver, NULL);
	snprintf(device.kernels, sizeof(device.kernels), "%s", kernels_variant_name(k->variant));
	cuts_choose(&k->cuts, &k->shape, defaults,
		    &(struct cuts_source){
			    .device = &device,
			    .tables = {given ? given->table : NULL, own},
			    .any_bits = given && given->any_bits,
			    .products = !kernels_on_tensor_cores(k),
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

struct tuning_use kernels_tuning_use(const struct kernels *k)
{
	return k->cuts.given;
}

void kernels_use_default_cuts(struct kernels *k, bool on)
{
	k->cuts.defaults = on;
}

bool kernels_other_bits(const struct kernels *k, char ret[33])
{
	if (k->cuts.same_bits)
		return false;
	cuts_identity(&k->cuts, ret);
	return true;
}

/* ---- opening ---- */

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
		r = kernels_add_programs(k, &library, e);
	if (r == 0)
		r = kernels_warm_cuts(k, context, e);
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
