#include "daemon/engine_options.h"

#include "engine/engine.h"

const char *const engine_dtype_names[] = {"float32", "bfloat16", NULL};
const char *const engine_kv_dtype_names[] = {"auto", "int8", NULL};
const char *const engine_kernels_names[] = {"auto", "generic", "x86", "nvidia", NULL};
const char *const engine_copy_queue_names[] = {"auto", "shared", "own", NULL};
const char *const option_switch_names[] = {[OPTION_ON] = "on", [OPTION_OFF] = "off", NULL};

#define AT(member) offsetof(struct engine_options, member)

static const struct option_def table[ENGINE_OPTIONS] = {
	{"model", "DIR", OPTION_TEXT, AT(model_dir),
	 .text = "config.json, and the weights unless they are synthetic; or a GGUF file"},
	{"synthetic-weights", "SEED", OPTION_NUMBER, AT(synthetic_seed), .given = AT(synthetic),
	 .max = UINT64_MAX, .initial_text = "off", .text = "random weights made from this seed"},
	{"synthetic-types", "RECIPE", OPTION_TEXT, AT(synthetic_types), .initial_text = "none",
	 .text = "types of synthetic matrices: Q4_K or another type, or Q4_K_M"},
	{"device", "WHICH", OPTION_TEXT, AT(device),
	 .initial_text = "the first GPU, else the first device",
	 .text = "as in tigond; tigon devices lists them"},
	{"kernels", "VARIANT", OPTION_CHOICE, AT(kernels), .choices = engine_kernels_names,
	 .text = "kernel variant; auto takes what the device can do"},
	{"dtype", "TYPE", OPTION_CHOICE, AT(dtype), .choices = engine_dtype_names, .initial = 1,
	 .text = "number format of weights, KV cache and GEMM inputs"},
	{"kv-dtype", "TYPE", OPTION_CHOICE, AT(kv_dtype), .choices = engine_kv_dtype_names,
	 .text = "number format of the KV cache: that of --dtype (auto), or int8"},
	{"program-cache", "DIR", OPTION_TEXT, AT(program_cache),
	 .initial_text = "tigon below the user's cache directory",
	 .text = "where compiled programs are kept; an empty DIR keeps none"},
};

void engine_options_table(size_t at, struct option_def ret[ENGINE_OPTIONS])
{
	for (size_t i = 0; i < ENGINE_OPTIONS; i++) {
		ret[i] = table[i];
		ret[i].offset += at;
		if (ret[i].given)
			ret[i].given += at;
	}
}
