/* Writes one GGUF file (gguf_file.h has the layout). */
#pragma once

#include "base/buf.h"
#include "base/file.h"
#include "engine/checkpoint/formats/gguf_file.h"

/* The keys of a file that is being made, one behind the other. If memory is short, bytes.failed is set, and gguf_write
 * fails. */
struct gguf_keys {
	struct buf bytes;
	uint64_t n;
};

void gguf_keys_init(struct gguf_keys *k);
void gguf_keys_release(struct gguf_keys *k);

/* Each adds a key. Texts may have any bytes. */
void gguf_add_text(struct gguf_keys *k, const char *name, const char *text, size_t len);
void gguf_add_whole(struct gguf_keys *k, const char *name, uint32_t v);
void gguf_add_int(struct gguf_keys *k, const char *name, int32_t v);
void gguf_add_real(struct gguf_keys *k, const char *name, float v);
void gguf_add_truth(struct gguf_keys *k, const char *name, bool v);

/* Adds a key of an array. Its n elements follow in k->bytes: strings by gguf_add_element, others as they are. */
void gguf_add_array(struct gguf_keys *k, const char *name, enum gguf_type type, uint64_t n);
void gguf_add_element(struct gguf_keys *k, const char *text, size_t len);

/* Adds a key of another file. */
void gguf_add_copy(struct gguf_keys *k, const struct gguf_key *from);

/* Appends the header of a file, which is all in front of its data: the keys, and name, shape and type of n tensors. */
void gguf_put_header(struct buf *b, const struct gguf_keys *keys, const struct tensor *tensors,
		     size_t n);

/* Writes a file: the header, with name, shape and type of n tensors, then their data, each of which `produce` writes to
 * the draft: tensors[index].bytes bytes. The file is written under a temporary name and renamed. Errors: those of
 * `produce`, -ENOMEM, or an errno of writing. */
int gguf_write(const char *path, const struct gguf_keys *keys, const struct tensor *tensors,
	       size_t n,
	       int (*produce)(size_t index, struct file_draft *to, void *user, struct err *e),
	       void *user, struct err *e) MUST_CHECK;
