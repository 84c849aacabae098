/*
 * Options of the commands of `tigon` that open an engine. tigond has options of the same names in a table of its own
 * (daemon/options.c), and takes only the lists of values from here.
 */
#pragma once

#include "base/options.h"

/* The values of --dtype, of --kv-dtype, of --kernels, of --copy-queue, and of every OPTION_CHOICE between on and off.
 * The order of each list is that of its enum (engine_dtype, engine_kv_dtype, engine_kernels, engine_copy_queue,
 * option_switch). NULL ends each list. */
extern const char *const engine_dtype_names[];
extern const char *const engine_kv_dtype_names[];
extern const char *const engine_kernels_names[];
extern const char *const engine_copy_queue_names[];
extern const char *const option_switch_names[];

enum { ENGINE_OPTIONS = 8 };

/* Writes the rows of --model, --synthetic-weights, --device, --kernels, --dtype, --kv-dtype and --program-cache to ret.
 * They fill a struct engine_options, which is at offset `at` of the struct that the whole table fills. */
void engine_options_table(size_t at, struct option_def ret[ENGINE_OPTIONS]);
