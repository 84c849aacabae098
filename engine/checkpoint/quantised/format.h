/* A format of quantised weights: how its tensors are called, shaped and packed. For the files of this folder only. */
#pragma once

#include "engine/checkpoint/quantised/quantised.h"

/* A weight that is being opened. */
struct opening {
	const struct quantised_want *want;
	bool *used; /* [want->n] */
	struct err *e;
};

struct quantised_format {
	const char *name; /* for messages */
	/* Whether a checkpoint has the weight in this format. Looks only at names and types. */
	bool (*has)(const struct quantised_want *w);
	/* Fills q, which has format, rows, cols and expert_rows and else zeros; sizes fit into 64 bits. */
	int (*open)(struct opening *o, struct quantised *q);
	/* Writes codes as quantised_codes does. */
	void (*codes)(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
		      uint64_t n_cols, uint8_t *codes, uint64_t ld);
	/* Returns the zero of a row's group from the tensor `zeros`. NULL: there is never such a tensor. */
	uint8_t (*zero)(const struct quantised *q, uint64_t row, uint64_t group);
	bool transposed; /* the rows of the codes' tensor are columns of the weight */
};

extern const struct quantised_format quantised_awq, quantised_gptq, quantised_packed,
	quantised_nvfp4, quantised_mxfp4, quantised_blocks_of_fp8, quantised_scaled;

/* ---- tensors by name ---- */

/* Finds the tensor that a suffix makes of the weight's name. A suffix with a dot stands in place of ".weight"
 * (".qweight"), any other behind the name ("_scale"). NULL: there is none. */
const struct tensor *want_tensor(const struct quantised_want *w, const char *suffix);

/* As want_tensor, but marks the tensor as used. open_tensor sets an error if there is none. */
const struct tensor *open_optional(struct opening *o, const char *suffix);
const struct tensor *open_tensor(struct opening *o, const char *suffix);

bool tensor_is(const struct tensor *t, const char *type);

/* ---- checks: 0, or -EINVAL with a sentence ---- */

int open_type(struct opening *o, const struct tensor *t, const char *type);

/* Checks that a tensor is [rows, cols], or [experts, rows, cols] if the weight has experts. */
int open_shape(struct opening *o, const struct tensor *t, uint64_t rows, uint64_t cols);

/* Says that the shape of a tensor is wrong, which should be `wants`. */
int open_misshapen(struct opening *o, const struct tensor *t, const char *wants);

/* Takes the tensor with the codes. It must have rows of cols codes of q->bits bits, in elements of `type` of
 * `type_bits` bits; in the last one bits may be unused. */
int open_codes(struct opening *o, struct quantised *q, const struct tensor *t, const char *type,
	       uint32_t type_bits);

/* Takes the tensor of the scales, which decides the groups. It has a scale for the whole weight (of an expert), for each
 * row, for each row and group of columns, or for blocks of rows and columns. Blocks are those of config.json if they
 * make so many scales, else what divides the weight's sizes evenly. */
int open_scales(struct opening *o, struct quantised *q, const struct tensor *t);

/* Takes a tensor [groups, rows] of scales. q->group_cols is 0 if the groups do not divide the columns evenly. */
int open_transposed_scales(struct opening *o, struct quantised *q, const struct tensor *t);

/* Takes a tensor with one float (of each expert) as the common scale. */
int open_common(struct opening *o, struct quantised *q, const struct tensor *t, bool divides);

/* Takes the order of columns: int32 [cols], checked to be below q->groups. An order that says of all columns what
 * groups of neighbours say too is dropped, as is one that is -1 everywhere. q has its scales. */
int open_order(struct opening *o, struct quantised *q, const struct tensor *t);

/* ---- reading ---- */

/* Returns the common scale of a row, 1 if there is none. */
float quantised_common(const struct quantised *q, uint64_t row);

/* Returns the place of the scale of a row's group in the tensor of scales. */
uint64_t quantised_scale_place(const struct quantised *q, uint64_t row, uint64_t group);

/* The codes of a row are side by side in its bytes, the first in the lowest bits. Has the form of `codes`. */
void codes_of_rows(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
		   uint64_t n_cols, uint8_t *codes, uint64_t ld);

/* Returns the int32 with this index as unsigned number. */
uint32_t tensor_word(const struct tensor *t, uint64_t i);
