/* One tensor of a checkpoint, in the mapped file. */
#pragma once

#include "engine/checkpoint/stored_type.h"

enum { TENSOR_DIMS_MAX = 8, TENSOR_NAME_MAX = 255 };

struct tensor {
	const char *name; /* borrowed */
	const char *file; /* borrowed: for messages */
	const void *data; /* borrowed: inside a mapping, any alignment */
	size_t bytes;
	uint64_t shape[TENSOR_DIMS_MAX]; /* the last dimension runs fastest */
	uint32_t n_dims;
	const struct stored_type *type;
};

/* Returns the tensor of that name in a list that is sorted by name; NULL: there is none. */
const struct tensor *tensor_find(const struct tensor *list, size_t n, const char *name);

bool name_ends_in(const char *name, const char *end);

/* Writes the sizes of n dimensions to out [size], separated by commas. */
void tensor_print_shape(char *out, size_t size, const uint64_t *shape, uint32_t n);
