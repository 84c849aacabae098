/*
 * Opens and closes a kernel set: says which variants a device can run, chooses the default cuts and the packing, looks
 * cuts up and compiles the programs. Also turns profiling on and off.
 */
#include "kernels/kernels_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/probe.h"

static const struct tuning cpu_generic = {
	.lanes = 1,
	.vec = 16,
	.register_sums = 24,
	.queries = 8,
	.decode_blocks = 4,
	.packing = KERNEL_PACK_PANELS,
	.product = {.tile_rows = 4,
		    .tile_blocks = 4,
		    .blocks = 8,
		    .row_block = 64,
		    .ahead = 64,
		    .chains = 1},
};
/* For CPUs with 16 registers of 8 floats (AVX2) or 32 of 4 (NEON). With the tiles of cpu_generic their compilers keep
 * sums in memory, which took twice the time. */
static const struct tuning cpu_narrow = {
	.lanes = 1,
	.vec = 16,
	.register_sums = 4,
	.queries = 8,
	.decode_blocks = 4,
	.packing = KERNEL_PACK_PANELS,
	.product = {.tile_rows = 4,
		    .tile_blocks = 2,
		    .blocks = 8,
		    .row_block = 64,
		    .ahead = 64,
		    .chains = 1},
};
static const struct tuning cpu_x86 = {
	.lanes = 1,
	.vec = 16,
	.register_sums = 24,
	.queries = 8,
	.decode_blocks = 4,
	.packing = KERNEL_PACK_PAIRS,
	.product = {.tile_rows = 8,
		    .tile_blocks = 2,
		    .blocks = 8,
		    .row_block = 128,
		    .ahead = 3072,
		    .chains = 1},
};
static const struct tuning gpu_generic = {
	.lanes = 64,
	.vec = 1,
	.register_sums = 128,
	.queries = 8,
	.packing = KERNEL_PACK_PANELS,
	.product = {.tile_rows = 8,
		    .tile_blocks = 2,
		    .blocks = 2,
		    .row_block = 64,
		    .ahead = 64,
		    .chains = 1},
};
static const struct tuning gpu_nvidia = {
	.lanes = 64,
	.vec = 1,
	.register_sums = 128,
	.queries = 8,
	.decode_blocks = 1,
	.packing = KERNEL_PACK_FRAGMENTS,
	.tensor = true,
	.product = {.tile_rows = 8,
		    .tile_blocks = 2,
		    .blocks = 2,
		    .row_block = 64,
		    .ahead = 64,
		    .chains = 1},
};

const char *kernels_variant_name(enum kernel_variant variant)
{
	static const char *const names[] = {"generic", "x86", "nvidia"};

	return names[variant];
}

/* The abilities that a variant uses. One of `needs` is missing: the device cannot run the variant. */
static const struct {
	uint32_t needs, uses;
} abilities_of[] = {
	[KERNELS_GENERIC] = {0, ABILITY_DOT | ABILITY_DP4A | ABILITY_VPDPBUSD | ABILITY_VPMADDUBSW},
	[KERNELS_X86] = {ABILITY_VDPBF16PS, ABILITY_VPDPBUSD | ABILITY_VPMADDUBSW},
	[KERNELS_NVIDIA] = {ABILITY_MMA_BF16, ABILITY_WGMMA | ABILITY_DP4A},
};

bool kernels_supported(enum kernel_variant variant, uint32_t abilities)
{
	return !(abilities_of[variant].needs & ~abilities);
}

enum kernel_variant kernels_best_variant(uint32_t abilities)
{
	return kernels_supported(KERNELS_NVIDIA, abilities) ? KERNELS_NVIDIA
	       : kernels_supported(KERNELS_X86, abilities)  ? KERNELS_X86
							    : KERNELS_GENERIC;
}

bool kernels_wide_registers(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512f");
#else
	return false;
#endif
}

/* ---- cuts ---- */

int kernels_built_in_table(struct tuning_table **ret, struct err *e)
{
	static const char name[] = "tuning/cpu.tsv";
	const char *text = library_text("tuning", "cpu.tsv");

	return text ? tuning_parse(name, text, strlen(text), ret, e)
		    : err_set(e, ENOENT, "%s is not in this binary", name);
}

/* Chooses the cut of every launch that has cuts (tuning/cuts.h): from the given table, else from the built-in one,
 * else the default cut. */
static int choose_cuts(struct kernels *k, cl_device_id id, const struct tuning_options *given,
		       struct err *e)
{
	const struct tuning *t = k->tuning;
	struct tuning_cut defaults[CUT_PROGRAMS] = {
		[CUT_GEMM] = t->product,
		[CUT_ATTENTION] = {.queries = kernels_has_flash(k) ? FLASH_QUERIES : t->queries},
		[CUT_DECODE_STEP] = t->product,
	};
	struct tuning_device device = {.units = k->compute_units, .bf16 = k->shape.bf16};
	struct tuning_table *own;
	int r = kernels_built_in_table(&own, e);

	if (r < 0)
		return r;
	/* Panels of quantised weights are taken one by one (quant_gemm.clh), so that a tile has few sums, and an MLP's
	 * groups write whole groups of 32 columns (input.clh). */
	if (k->shape.quant) {
		defaults[CUT_GEMM].blocks = ROUND_UP(t->product.blocks, 2);
		defaults[CUT_GEMM].tile_rows = k->int8_dot == INT8_DOT_VPDPBUSD ? 8 : 4;
		defaults[CUT_DECODE_STEP] = defaults[CUT_GEMM];
	}
	/* A part of few bytes is over before its reads are far ahead, and quantised columns have few. */
	defaults[CUT_DECODE_STEP].blocks =
		t->decode_blocks * (k->shape.quant && t->lanes == 1 ? 2 : 1);
	clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof(device.name) - 1, device.name, NULL);
	clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof(device.driver) - 1, device.driver, NULL);
	snprintf(device.kernels, sizeof(device.kernels), "%s", kernels_variant_name(k->variant));
	cuts_choose(&k->cuts, &k->shape, defaults,
		    &(struct cuts_source){
			    .device = &device,
			    .tables = {given ? given->table : NULL, own},
			    .any_bits = given && given->any_bits,
			    .products = !kernels_on_tensor_cores(k) && !k->shape.quant,
			    .attention = !kernels_has_flash(k),
			    .decode_step = kernels_has_decode_step(k) &&
					   !kernels_decode_resident(k) && !k->shape.quant,
		    });
	tuning_free(own);
	return 0;
}

/* ---- opening ---- */

static const struct tuning *choose_tuning(cl_device_id device, const struct kernel_shape *s,
					  enum kernel_variant variant)
{
	enum kernel_width width = s->width;

	if (width == KERNEL_WIDTH_DEVICE)
		width = !probe_is_cpu(device)	   ? KERNEL_WIDTH_GPU
			: kernels_wide_registers() ? KERNEL_WIDTH_CPU
						   : KERNEL_WIDTH_NARROW;
	switch (variant) {
	case KERNELS_NVIDIA: return &gpu_nvidia;
	case KERNELS_X86:
		if (s->bf16)
			return &cpu_x86;
		break;
	case KERNELS_GENERIC: break;
	}
	return width == KERNEL_WIDTH_GPU      ? &gpu_generic
	       : width == KERNEL_WIDTH_NARROW ? &cpu_narrow
					      : &cpu_generic;
}

static enum kernel_packing choose_packing(const struct kernels *k)
{
	if (k->shape.quant)
		return kernels_on_tensor_cores(k) ? KERNEL_PACK_STAGES : KERNEL_PACK_QUANT;
	if (!k->shape.bf16)
		return KERNEL_PACK_PANELS;
#if defined(__x86_64__)
	if (k->tuning->packing == KERNEL_PACK_PAIRS && !k->shape.plain_weights &&
	    __builtin_cpu_supports("avx512vbmi"))
		return KERNEL_PACK_CODED;
#endif
	return k->tuning->packing;
}

static enum int8_dot choose_dot(const struct kernels *k)
{
	if (k->tuning->lanes == 1)
		return k->abilities & ABILITY_VPDPBUSD && k->tuning != &cpu_narrow
			       ? INT8_DOT_VPDPBUSD
		       : k->abilities & ABILITY_VPMADDUBSW ? INT8_DOT_VPMADDUBSW
							   : INT8_DOT_PLAIN;
	return k->abilities & ABILITY_DP4A  ? INT8_DOT_DP4A
	       : k->abilities & ABILITY_DOT ? INT8_DOT_PRODUCT
					    : INT8_DOT_PLAIN;
}

int kernels_open(cl_context context, cl_device_id device, cl_command_queue queue,
		 const struct kernel_shape *shape, enum kernel_variant variant, uint32_t abilities,
		 const char *cache_dir, const struct tuning_options *tuning, struct kernels **ret,
		 struct err *e)
{
	/* With elements of float the x86 variant takes the generic files, so that both variants share the compiled
	 * programs. */
	const bool generic = variant == KERNELS_X86 && !shape->bf16;
	struct library library = {
		.context = context,
		.device = device,
		.variant = kernels_variant_name(generic ? KERNELS_GENERIC : variant),
		.cache_dir = cache_dir,
	};
	struct kernels *k = calloc(1, sizeof(*k));
	cl_uint units = 1;
	cl_ulong local_memory = 0;
	int r;

	if (!k)
		return err_no_memory(e);
	clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	clGetDeviceInfo(device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(local_memory), &local_memory,
			NULL);
	k->shape = *shape;
	k->variant = variant;
	k->abilities = abilities & abilities_of[variant].uses;
	k->queue = queue;
	k->compute_units = units;
	k->local_memory = local_memory;
	k->tuning = choose_tuning(device, shape, variant);
	k->branches = !probe_is_cpu(device);
	k->int8_dot = choose_dot(k);
	k->packing = choose_packing(k);
	k->wgmma = kernels_on_tensor_cores(k) && k->abilities & ABILITY_WGMMA;
	r = choose_cuts(k, device, tuning, e);
	if (r == 0)
		r = kernels_add_programs(k, &library, e);
	if (r == 0 && !shape->only)
		r = kernels_warm_cuts(k, context, e);
	if (r < 0) {
		kernels_close(k);
		return r;
	}
	if (k->tuning->lanes > 1 && shape->heads && !kernels_split_slots(k))
		log_info(
			"attention: the keys of a token are not divided among groups, which takes longer, "
			"because the device's local memory is too small for the %u query heads of a KV head",
			shape->heads / shape->kv_heads);
	k->compiled = library.built;
	log_debug("kernels: %u programs compiled, %u from the cache", library.built,
		  library.loaded);
	*ret = k;
	return 0;
}

bool kernels_compiled(const struct kernels *k)
{
	return k->compiled;
}

/* Releases the kernels with first <= id < end, of all cuts, and all programs but the first n_programs. */
static void release(struct kernels *k, size_t first, size_t end, uint32_t n_programs)
{
	for (size_t cut = 0; cut < CUTS_MAX; cut++)
		for (size_t id = first; id < end; id++) {
			if (k->kernels[cut][id])
				clReleaseKernel(k->kernels[cut][id]);
			k->kernels[cut][id] = NULL;
		}
	while (k->n_programs > n_programs)
		clReleaseProgram(k->programs[--k->n_programs]);
}

void kernels_close(struct kernels *k)
{
	if (!k)
		return;
	profile_free(k->profile);
	release(k, 0, K_COUNT, 0);
	free(k);
}

/* ---- profiling ---- */

int kernels_profile(struct kernels *k, bool on, struct err *e)
{
	profile_free(k->profile);
	k->profile = on ? profile_new(k->queue) : NULL;
	return on && !k->profile ? err_no_memory(e) : 0;
}

int kernels_profile_take(struct kernels *k, const struct kernel_timing **ret, size_t *ret_n,
			 struct err *e)
{
	*ret_n = 0;
	return k->profile ? profile_take(k->profile, ret, ret_n, e) : 0;
}
