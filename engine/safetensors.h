/*
 * A checkpoint of one or many safetensors files, mapped read-only.
 *
 * File layout: u64 little endian N, then N bytes of JSON {name: {dtype, shape, data_offsets}},
 * then the data; offsets count from the end of the header. Nothing in a file is believed before
 * it was checked: header size, JSON, offsets inside the file, bytes = shape x dtype, no overlap.
 */
#ifndef ENGINE_SAFETENSORS_H
#define ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum tensor_dtype { TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_OTHER };
enum { TENSOR_DIMS_MAX = 8 };

struct tensor {
	const char *name;  /* borrowed */
	const char *file;  /* borrowed: for messages */
	const void *data;  /* borrowed: inside the mapping, any alignment */
	size_t bytes;
	uint64_t shape[TENSOR_DIMS_MAX];
	uint32_t n_dims;
	enum tensor_dtype dtype;
};

struct safetensors;

/* Opens DIR/model.safetensors.index.json's files, or DIR/model.safetensors, or every *.safetensors
 * in DIR. New; errors name file and tensor. */
int safetensors_open(const char *dir, struct safetensors **ret, struct err *e) MUST_CHECK;
void safetensors_close(struct safetensors *s);

/* The tensor of that name, borrowed; NULL when there is none. */
const struct tensor *safetensors_find(const struct safetensors *s, const char *name);

/* All tensors, sorted by name. */
const struct tensor *safetensors_list(const struct safetensors *s, size_t *n);

/* Checks one file's bytes; what fuzzers call. Visits every tensor that passes. */
int safetensors_parse(const char *file, const void *bytes, size_t len,
		      int (*visit)(const struct tensor *t, void *user), void *user, struct err *e)
	MUST_CHECK;

/* Writes one safetensors file: the header for n tensors (offsets in their order), then each
 * tensor's bytes, which `produce` puts into `data` [tensors[index].bytes]. Written under a temporary
 * name and renamed. */
int safetensors_write(const char *path, const struct tensor *tensors, size_t n,
		      int (*produce)(size_t index, void *data, void *user, struct err *e),
		      void *user, struct err *e) MUST_CHECK;

#endif
