/* The weights of a model by role, whatever names the checkpoint gives them.
 *
 * A role names one weight of a layer, which is a matrix or a vector; every expert has its own. A table
 * [n_layers][WEIGHT_ROLES] lists the weights of a model with their sizes; rows = 0: the layer has no such weight.
 * (layers_weights of engine/layers, a room above this one, makes the table.) Opening finds each weight in the
 * checkpoint, under any known prefix and in any form that the family allows (interleaved projections, packed experts, a
 * tied embedding) and number format, and checks its shape before a row is read. weights_view then gives a row as it is
 * stored, without a copy, or weights_quantised the codes and scales of a quantised one, and weights_row converts it.
 *
 * Synthetic weights have the same calls, except weights_view and weights_tensor. Each element is a pure function of
 * (seed, role, layer, expert, row, column) and of the sizes and the distribution in the table. A kernel computes this
 * function too (kernels/generic/synthetic.clh), so that host and device produce the same bits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/quantised/quantised.h"
#include "engine/checkpoint/stored_type.h"
#include "engine/checkpoint/weight.h"

struct weights;

/* Checks that a checkpoint has every weight of a table in its right shape, and no other tensors (resolve.h has the
 * exceptions). *ret is new; the table is copied, the checkpoint is borrowed until the weights are closed. -ENOENT,
 * -EINVAL, -ENOTSUP or another errno: the sentence names the cause. */
int weights_open(struct checkpoint *k, const struct model_config *c, const struct weight *table,
		 struct weights **ret, struct err *e) MUST_CHECK;

/* Makes random weights; *ret is new. The table is copied. recipe: the types of matrices (recipe.h), NULL: all are plain.
 * The numbers of a quantised matrix are not those of a plain one: its codes are random. -EINVAL: there is no such
 * recipe; -ENOMEM. */
int weights_synthetic(uint64_t seed, const char *recipe, const struct model_config *c,
		      const struct weight *table, struct weights **ret) MUST_CHECK;
void weights_close(struct weights *w);

/* Returns the types of the matrices: bit n stands for type n of kernels/quant_types.h, bit 0 for plain ones (of which
 * the embedding is none: it may be plain where all other matrices are quantised, and the reverse). */
uint32_t weights_quant(const struct weights *w);

/* Counts the weights that safetensors files hold as codes with scales: those that stay codes on the device, and those
 * that are floats there. */
void weights_count_codes(const struct weights *w, uint32_t *ret_kept, uint32_t *ret_floats);

/* Returns the table of all weights, borrowed. */
const struct weight *weights_all(const struct weights *w);

/* Returns the weight of a role in a layer, borrowed; NULL: the layer has none. */
const struct weight *weights_find(const struct weights *w, enum weight_role role, uint32_t layer);

/* In the calls below, layer and expert are 0 where they do not apply, and the layer must have the weight. The calls
 * only read, so several threads may make them at the same time. */

/* A row as it is stored: its elements begin at data, which has any alignment. Borrowed from the checkpoint's mapping.
 * For rows that have no weights_quantised. Not for synthetic weights. */
struct weight_view {
	const struct stored_type *type;
	const void *data;
};
struct weight_view weights_view(const struct weights *w, enum weight_role role, uint32_t layer,
				uint32_t expert, uint64_t row);

/* Returns the codes and scales of which a row is made, borrowed; *ret_row is its number there. NULL: the row is stored
 * as weights_view has it. Not for synthetic weights. */
const struct quantised *weights_quantised(const struct weights *w, enum weight_role role,
					  uint32_t layer, uint32_t expert, uint64_t row,
					  uint64_t *ret_row);

/* Writes n rows from `row` on, which weights_quantised has and which the device reads as codes (weight.quant), as
 * blocks of that type to out, one behind the other. *ret_factor: the factor of all of them (quant_pack). Returns false
 * if a scale or a code is not finite. */
bool weights_blocks(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		    uint64_t row, uint64_t n, void *out, float *ret_factor);

/* Returns the name of the tensor that has a row (of a quantised one: its codes), borrowed from the checkpoint. Not for synthetic weights. */
const char *weights_tensor(const struct weights *w, enum weight_role role, uint32_t layer,
			   uint32_t expert, uint64_t row);

/* Writes a row to out [columns], as bf16 if bf16 is true, else as floats: converts a stored row, computes a synthetic
 * one. weights_rows does this for n rows, of which row i begins with element i * ld of out; rows of some quantised formats
 * are read faster together. */
void weights_row(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		 uint64_t row, bool bf16, void *out);
void weights_rows(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		  uint64_t row, uint64_t n, bool bf16, void *out, uint64_t ld);

/* Computes the parameters with which a kernel makes a synthetic weight. False: the weights are not synthetic. */
bool weights_synthesis(const struct weights *w, enum weight_role role, uint32_t layer,
		       uint32_t expert, struct weight_synthesis *ret);

/* Says that the rows row .. row + n - 1 of a weight were read and are not needed soon. The memory pages of the file
 * that hold them then need not stay in this process (checkpoint_forget). Does nothing with synthetic weights. */
void weights_forget(const struct weights *w, enum weight_role role, uint32_t layer, uint32_t expert,
		    uint64_t row, uint64_t n);
