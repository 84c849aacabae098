/*
 * The engine: a model on a device, and one forward step of one plan. It knows no requests.
 * One thread at a time; device errors are final (-EIO: the device is lost).
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdio.h>

#include "base/err.h"
#include "engine/model_config.h"
#include "scheduler/plan.h"

struct engine;

enum engine_dtype { ENGINE_FLOAT32, ENGINE_BFLOAT16 };
enum engine_kernels {
	ENGINE_KERNELS_AUTO,
	ENGINE_KERNELS_GENERIC,
	ENGINE_KERNELS_X86,
	ENGINE_KERNELS_NVIDIA
};

struct engine_options {
	const char *model_dir;
	const char *device;	   /* NULL: the first GPU, else the first device; "0" or a part of a
				      device's name */
	const char *program_cache; /* directory, created when missing; NULL: none */
	const char *dump_activations; /* NULL, or the file every step's layer outputs go to */
	enum engine_dtype dtype;
	enum engine_kernels kernels;
	uint64_t device_memory;	    /* bytes; 0: device_memory_share of what is there */
	double device_memory_share; /* 0 < share <= 1; 0: 0.9. Of what the machine has available and
				     * the control group allows (a CPU), or of a GPU's memory */
	uint32_t page_tokens, max_seqs, max_prefill_tokens;
	uint32_t max_model_len; /* 0: what the model allows */
	bool synthetic;		/* random weights from synthetic_seed instead of files */
	uint64_t synthetic_seed;
};

struct engine_info {
	struct model_config model;
	char device_name[256], driver[128], kernels[16];
	uint32_t n_pages, n_slots, max_model_len;
	uint64_t weight_bytes, kv_bytes, state_bytes, scratch_bytes, budget_bytes;
};

/* Counts since the engine was opened; for metrics and tests. */
struct engine_counters {
	uint64_t steps, launches;
	uint64_t bytes_to_device, bytes_from_device;
};

/* New. Plans all memory before any is allocated; -ENOMEM says what is needed and what is there. */
int engine_open(const struct engine_options *o, struct engine **ret, struct err *e) MUST_CHECK;
void engine_close(struct engine *g);

const struct engine_info *engine_info(const struct engine *g);
void engine_counters(const struct engine *g, struct engine_counters *ret);

/* Runs one plan and waits for it; results [plan->n_draws]. -EIO: the device is lost. */
int engine_step(struct engine *g, const struct plan *plan, struct draw_result *results,
		struct err *e) MUST_CHECK;

/* Sets the environment that OpenCL drivers read: PoCL's cache goes below program_cache (NULL: wherever it
 * likes). engine_open does so too, but a program that has threads by then calls it before: an environment
 * that changes under getenv is a race. */
void engine_settle_environment(const char *program_cache);

/* One line a device: index, name, vendor, driver, memory. */
int engine_list_devices(FILE *out, struct err *e) MUST_CHECK;

#endif
