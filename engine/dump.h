/* --dump-activations: the outputs of every layer, as one safetensors file.
 *
 * Tensors are named embed, layerN.mixer and layerN.mlp (without residual), layerN (with residual), final_norm,
 * logits; float32 [tokens, width]. The rows of each step are appended in the order in which they ran; the tensors
 * `tokens` and `positions` [tokens, 1] (whole numbers, as float32) say which token each row is. The whole file is
 * written again after each step. Rows are left out that would take its data above DUMP_BYTES_MAX. */
#pragma once

#include <CL/cl.h>
#include <stdint.h>

#include "base/err.h"

#define DUMP_BYTES_MAX (1ull << 30)

struct dump;

/* New; NULL: out of memory. The queue and path are borrowed. */
struct dump *dump_new(const char *path, cl_command_queue queue);
void dump_free(struct dump *d);

/* Waits for the queue and appends rows x cols floats of a buffer whose rows are padded to 16. `name` may hold one %u
 * for index. Does nothing without a dump (NULL). */
void dump_rows(struct dump *d, const char *name, uint32_t index, cl_mem buffer, uint32_t rows,
	       uint32_t cols);

/* Appends n whole numbers. */
void dump_ints(struct dump *d, const char *name, const int32_t *v, uint32_t n);

/* Writes the file. -EIO: rows could not be kept before, or the file cannot be written; or another errno of writing. */
int dump_write(struct dump *d, struct err *e) MUST_CHECK;
