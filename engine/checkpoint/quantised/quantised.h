/* Weights that safetensors files hold as codes with scales.
 *
 * A quantised weight has a group of tensors in place of one with its numbers: codes, scales, and perhaps zeros and an
 * order of its columns. The numbers are
 *
 *     w[r, c] = (code[r, c] - zero[r, g]) * scale[r, g],   g = c / group_cols, or order[c] if there is an order
 *
 * where codes are whole numbers, or codes of e4m3 or e2m1 (types/float8.h), which have no zeros. Rows are outputs, columns
 * inputs, whatever way round the tensors have them. A weight of experts in one tensor has all experts' rows, one expert
 * behind the other. Each format is a file of this folder and a row of the table in quantised.c (format.h).
 *
 * Every weight of a checkpoint decides by its tensors whether it is quantised and how; config.json only says what they do
 * not (config.h).
 *
 * Floats are those of the format's own decoder when that computes in float32 (compressed-tensors, transformers, AutoAWQ,
 * AutoGPTQ): the difference of code and zero is exact, a scale is a float, and their product is rounded once.
 *
 * Kernels read most formats as they are, codes with scales (blocks.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/checkpoint/quantised/config.h"
#include "engine/checkpoint/tensor.h"

struct quant_type;
struct quantised_format;

enum quantised_code {
	QUANTISED_WHOLE, /* from 0 on */
	QUANTISED_E4M3,
	QUANTISED_E2M1,
};

/* One quantised weight. The tensors are borrowed. Only the files of this folder read the members behind `groups`. */
struct quantised {
	const struct quantised_format *format;
	enum quantised_code code;
	uint32_t bits; /* of a code: 2, 4 or 8 */
	uint64_t rows, cols;
	/* A scale is for so many rows and columns; the last ones of an expert may have fewer. With an order of columns
	 * group_cols has no meaning. */
	uint64_t group_rows, group_cols;
	uint64_t groups; /* scales of a row */

	uint64_t expert_rows; /* rows of an expert; of a weight without experts: rows */
	const struct tensor *codes, *scales;
	const struct tensor *zeros; /* NULL: all zeros are `zero` */
	const struct tensor
		*order; /* int32 [cols], each below `groups`; NULL: groups of neighbours */
	const struct tensor *common; /* a scale of all rows (of each expert); NULL: 1 */
	bool divides;		     /* scales are divided by the common one, not multiplied */
	bool zeros_less_one;	     /* `zeros` has numbers less one (GPTQ) */
	uint8_t zero;
	float (*scale_at)(const struct tensor *t, uint64_t i);
	uint64_t scale_row,
		scale_group; /* steps between scales of neighbouring blocks of rows and groups */
};

/* What quantised_open is asked for: a weight by the name that its tensor has when it is not quantised, and its sizes. */
struct quantised_want {
	const char *path;	   /* of the checkpoint, for messages */
	const struct tensor *list; /* all tensors of the checkpoint, sorted by name [n] */
	size_t n;
	const char *name;
	uint64_t experts, rows,
		cols; /* experts: 0, or that of one tensor with all; rows: of one expert */
	const struct quantised_config *config; /* borrowed, as all of this is */
};

/* Returns the format in which a checkpoint has the weight of that name, static; NULL: it has it plainly or not at all. */
const struct quantised_format *quantised_find(const struct tensor *list, size_t n,
					      const char *name);

/* Finds a weight's tensors and checks them against its sizes, and each other: what was opened can be read. Sets
 * used [n] of each tensor of the group. -ENOENT, -EINVAL, -ENOTSUP: the sentence names tensor and file. */
int quantised_open(const struct quantised_format *f, const struct quantised_want *want, bool *used,
		   struct quantised *ret, struct err *e) MUST_CHECK;

/* Returns the method to which a tensor belongs, if none of the formats here has tensors with such names ("bitsandbytes"),
 * static; NULL: its name says no such thing. */
const char *quantised_unserved(const char *name);

/* Returns whether a tensor belongs to a quantised weight but not to its numbers (scales of activations, of the KV cache).
 * These are ignored: activations are not rounded to such formats here. */
bool quantised_ignored(const char *name);

/* ---- numbers ---- */

/* Writes n rows from `row` on to out, as bf16 or floats; row i begins with element i * ld. Neighbouring rows of some
 * formats share words, so many at once are read faster. */
void quantised_read(const struct quantised *q, uint64_t row, uint64_t n, bool bf16, void *out,
		    uint64_t ld);

/* ---- codes and scales as they are stored, for kernels that read these ---- */

/* Writes codes of n rows and n_cols columns from `col` on, a multiple of 16, a byte each: codes [n, ld]. */
void quantised_codes(const struct quantised *q, uint64_t row, uint64_t n, uint64_t col,
		     uint64_t n_cols, uint8_t *codes, uint64_t ld);

/* Writes the scales, and unless zeros is NULL the zeros, of n groups of a row. The zeros are those of whole numbers:
 * whatever is stored, they are subtracted from the codes that quantised_codes writes. */
void quantised_scales(const struct quantised *q, uint64_t row, uint64_t group, uint64_t n,
		      float *scales, uint8_t *zeros);

/* Returns the type of kernels/quant.h in whose blocks kernels read the weight without a loss; NULL: there is none, and
 * the weight is read as floats (an order of columns, 2 bits, groups or columns that blocks do not divide). */
const struct quant_type *quantised_type(const struct quantised *q);

/* Writes n rows from `row` on to out, one behind the other, as blocks of quantised_type. Their numbers are those of
 * quantised_read (blocks.c says where they differ in the last bit). Returns false if a scale or a code is not finite;
 * the rows are complete all the same. */
bool quantised_blocks(const struct quantised *q, const struct quant_type *t, uint64_t row,
		      uint64_t n, void *out);

/* Returns the scale that the tensor (of an expert: its part) has for a row's blocks; 1: it has none. */
float quantised_factor(const struct quantised *q, uint64_t row);

/* Returns the group of a column. */
uint64_t quantised_group(const struct quantised *q, uint64_t col);

/* Tells which bytes of the codes' tensor the rows row .. row + n - 1 have. In transposed formats that is all bytes, once
 * the last row is among them, and none before. */
void quantised_span(const struct quantised *q, uint64_t row, uint64_t n, const void **data,
		    size_t *bytes);
