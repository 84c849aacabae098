/* Writes a model as a GGUF file with weights of chosen types: `tigon quantize`.
 *
 * The file has the keys, the names and the numbers that llama.cpp's converter and quantiser write. Of a model in
 * transformers' conventions these are made from its texts and weights (formats/gguf_keys.h, converted.h), without its
 * head of multi-token prediction. Of a GGUF file, or split files, the keys are copied, as are tensors that this engine
 * does not compute.
 *
 * Matrices get the types of a recipe, all other weights floats. Rows are read, quantised on all processors and written
 * a part of a tensor at a time. */
#pragma once

#include "engine/checkpoint/formats/gguf_file.h"
#include "engine/checkpoint/importance.h"
#include "engine/checkpoint/weights.h"

struct quantize_options {
	const char *recipe; /* a name that quantize_recipes lists */
	/* PATTERN=TYPE, [n_types]: matrices whose name in the GGUF file matches the shell's PATTERN (fnmatch) get this
	 * type; the last one that matches counts */
	const char *const *types;
	size_t n_types;
	const char *name; /* general.name, if the model is no GGUF file */
	/* of the columns of matrices; NULL: errors in all of them count alike */
	const struct importance *importance;
	/* instead of these sums of squares by the names of matrices, as llama.cpp's llama-imatrix writes them: tensors
	 * NAME.in_sum2 [experts, columns], and NAME.counts [experts], the rows that were added */
	const struct gguf_file *squares;
	/* Is called as the work goes on: `done` of `all` bytes are written, and tensor `name` is next. NULL: no
	 * calls. */
	void (*progress)(void *user, const char *name, uint64_t done, uint64_t all);
	void *user;
};

struct quantize_result {
	uint64_t n_tensors, elements, bytes; /* of the tensors */
	bool tokenizer;			     /* the file has one */
};

/* Returns the names of all recipes, with commas between them, static. */
const char *quantize_recipes(void);

/* Writes the model to the file `path`, under a temporary name until it is complete. table: its weights
 * (engine/layers/weights.h). -EINVAL: an option is wrong, or a weight is not finite; -ENOTSUP: GGUF files cannot say
 * what the model's files say; -ENOENT, -ENOMEM or an errno of reading and writing. */
int quantize(struct checkpoint *k, const struct model_config *c, const struct weight *table,
	     const struct quantize_options *o, const char *path, struct quantize_result *ret,
	     struct err *e) MUST_CHECK;
