/* A checkpoint of one or many safetensors files, mapped read-only.
 *
 * File layout: u64 little endian N, then N bytes of JSON {name: {dtype, shape, data_offsets}}, then the data; offsets
 * count from the end of the header. A file is checked before any tensor in it is used: the header is at most 100 MB
 * large, as in the format's own library, and is valid JSON; all offsets are inside the file; a tensor has the bytes of
 * its shape and dtype; tensors do not overlap, and leave no hole; no name comes twice, in one file or over all files of
 * a checkpoint. Names of tensors must be printable ASCII, because they appear in messages. The names of files in
 * model.safetensors.index.json must be printable ASCII too, and must not leave the directory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/checkpoint/tensor.h"

struct safetensors;

/* Opens the checkpoint in a directory: the files that model.safetensors.index.json names; without it model.safetensors;
 * without both every *.safetensors. *ret is new. -ENOENT: no directory, no checkpoint in it, or a file of the index is
 * missing; -EINVAL: a file is wrong, and the sentence names the file and, if one is at fault, the tensor; or another
 * errno. */
int safetensors_open(const char *dir, struct safetensors **ret, struct err *e) MUST_CHECK;
void safetensors_close(struct safetensors *s);

/* Returns all tensors, sorted by name; borrowed. */
const struct tensor *safetensors_list(const struct safetensors *s, size_t *n);

/* Does the work of checkpoint_forget (mapped_files.h). Any thread may call it. */
void safetensors_forget(struct safetensors *s, const void *data, size_t bytes);

/* Checks one file's bytes. If the whole file is valid, visits every tensor in the order of the data; a tensor's name
 * lives until its visit ends. A visitor's negative result ends the parse and is returned.
 * -EINVAL: the file is wrong; -ENOMEM. */
int safetensors_parse(const char *file, const void *bytes, size_t len,
		      int (*visit)(const struct tensor *t, void *user), void *user,
		      struct err *e) MUST_CHECK;

/* Writes one safetensors file: the header for n tensors (offsets in their order), then each tensor's bytes, which
 * `produce` puts into `data` [tensors[index].bytes]. Uses name, shape, n_dims, type and bytes of each tensor, not its
 * data. The file is written under a temporary name and renamed. Errors: those of `produce`, -ENOMEM, or an errno of
 * writing. */
int safetensors_write(const char *path, const struct tensor *tensors, size_t n,
		      int (*produce)(size_t index, void *data, void *user, struct err *e),
		      void *user, struct err *e) MUST_CHECK;
