/* --dump-activations: the outputs of every layer, as one safetensors file.
 *
 * Tensors are float32 [tokens, width]. They are named embed, layerN.mixer and layerN.mlp (the outputs before they are
 * added to the residual stream), layerN (the residual stream behind the layer), final_norm and logits. The tensors
 * `tokens` and `positions` [tokens, 1] (whole numbers, as float32) say which token each row is.
 *
 * The rows of the steps are appended in the order in which the steps ran. The whole file is written again after each
 * step. The first rows that would take the file's data above DUMP_BYTES_MAX are left out, and all rows after them. */
#pragma once

#include <CL/cl.h>
#include <stdint.h>

#include "base/err.h"

#define DUMP_BYTES_MAX (1ull << 30)

struct dump;

/* Returns a new dump; NULL: out of memory. The queue and path are borrowed. */
struct dump *dump_new(const char *path, cl_command_queue queue);
void dump_free(struct dump *d);

/* Waits until all queued commands have run and appends `rows` rows of `cols` floats to a tensor. In `buffer` each row
 * is padded to a multiple of 16 floats. `name` may hold one %u, which stands for index. Does nothing without a dump
 * (NULL), or when the dump is full. A failure is kept for dump_write. */
void dump_rows(struct dump *d, const char *name, uint32_t index, cl_mem buffer, uint32_t rows,
	       uint32_t cols);

/* Appends n whole numbers to the tensor `name`, one in each row. Does nothing without a dump (NULL), or when the dump
 * is full. Lack of memory is kept for dump_write. */
void dump_ints(struct dump *d, const char *name, const int32_t *v, uint32_t n);

/* Writes the file. -EIO: rows could not be kept earlier, or memory is short. Other errors are those of writing a
 * file. */
int dump_write(struct dump *d, struct err *e) MUST_CHECK;
