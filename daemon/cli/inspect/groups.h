/* The tensors of a checkpoint in groups: those whose names differ in numbers alone and that have the same type and
 * shape. Tensors of one kind of all layers are a group, and so are those of all experts. */
#pragma once

#include "base/err.h"
#include "engine/checkpoint/tensor.h"

struct tensor_group {
	char name[TENSOR_NAME_MAX + 1]; /* with '*' in the place of each number between dots */
	const struct tensor *first;	/* borrowed: one of them, with type, shape and file */
	uint64_t n, elements, bytes;	/* of all of them */
};

/* Makes the groups of n tensors, sorted by name. *ret is new, [*ret_n]. */
int tensor_groups(const struct tensor *list, size_t n, struct tensor_group **ret, size_t *ret_n,
		  struct err *e) MUST_CHECK;

/* Makes one group of all tensors of each type, with the type's name, those with most bytes first. */
int tensor_types(const struct tensor *list, size_t n, struct tensor_group **ret, size_t *ret_n,
		 struct err *e) MUST_CHECK;
