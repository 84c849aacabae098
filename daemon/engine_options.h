/*
 * The options of every tool that opens an engine, and the names of the choices among them.
 */
#pragma once

#include "base/options.h"

/* Names in the order of enum engine_dtype, enum engine_kernels and enum option_switch; NULL behind the last. */
extern const char *const engine_dtype_names[], *const engine_kernels_names[],
						       *const option_switch_names[];

enum { ENGINE_OPTIONS = 6 };

/* --model, --synthetic-weights, --device, --kernels, --dtype and --program-cache of a struct engine_options that stands at
 * an offset of the table's struct. */
void engine_options_table(size_t at, struct option_def ret[ENGINE_OPTIONS]);
