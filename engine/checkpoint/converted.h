/* The tensors of a model as a GGUF file has them: their list, and their rows as floats. Of a GGUF file they are its own
 * tensors. Of a model in transformers' conventions they are made as llama.cpp's converter makes them; reading such a
 * file (families/gguf_names.c, model_config.h) is the way back:
 *
 *     names, shapes   those of the family's gguf_sets
 *     norms           1 is added, if the family multiplies by 1 + w
 *     ssm_a           -exp(A_log)
 *     value heads     of families with gguf_tiles_heads: head k r + j of key head k goes to place j Hk + k (r value
 *                     heads for each of Hk key heads)
 *     pairs           rows i and i + head_dim / 2 of Llama's queries and keys are neighbours
 *     rope_freqs      what Llama 3's scaling of RoPE divides frequencies by
 */
#pragma once

#include "base/arena.h"
#include "engine/checkpoint/layout.h"
#include "engine/checkpoint/weights.h"

struct converted {
	/* name, shape and bytes; data and type of the tensor itself if it is one of a GGUF file. Other tensors have no
	 * data; their type is that of the weight's numbers where these are plain, else F32. */
	struct tensor tensor;
	/* the weight of which the tensor's first rows are; NULL: none, the tensor's data are copied as they are */
	const struct weight *weight;
	struct layout layout; /* of a tensor without data */
};

struct conversion {
	struct checkpoint *k; /* borrowed, as are c and w */
	const struct model_config *c;
	const struct weights *w;
	struct converted *list; /* owned, [n] */
	size_t n, cap;
	struct arena arena; /* names, numbers of rope_freqs */
	bool failed;	    /* out of memory */
};

/* Makes the list. The caller releases *ret, also after an error. -ENOMEM, or an error of checkpoint_tensors. */
int conversion_open(struct checkpoint *k, const struct model_config *c, const struct weights *w,
		    struct conversion *ret, struct err *e) MUST_CHECK;
void conversion_release(struct conversion *x);

/* Returns the rows of a tensor, the columns of one, and whether it is a matrix that may be quantised. */
uint64_t converted_rows(const struct converted *t);
uint64_t converted_cols(const struct converted *t);
bool converted_is_matrix(const struct converted *t);

/* Writes a row to out [cols]. scratch [cols]. Several threads may call it at the same time. */
void converted_row(const struct conversion *x, const struct converted *t, uint64_t row, float *out,
		   float *scratch);

/* Puts numbers of the columns of a tensor's weight [cols] in the order of the tensor's columns. scratch [cols]. */
void converted_columns(const struct conversion *x, const struct converted *t, float *v,
		       float *scratch);

/* Returns the name of the checkpoint's tensor that has the numbers of a row, for messages; borrowed. */
const char *converted_name(const struct conversion *x, const struct converted *t, uint64_t row);

/* Says that a tensor's rows were read and are not needed again. */
void converted_forget(const struct conversion *x, const struct converted *t);
