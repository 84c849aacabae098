/* One GGUF file, as llama.cpp and others write it: the keys and tensors of its header.
 *
 * File layout, all little endian:
 *
 *     "GGUF" | u32 version, 3 | u64 number of tensors | u64 number of keys | keys | tensors | padding | data
 *
 *     string   u64 length | bytes
 *     key      string name | u32 type (enum gguf_type) | value
 *     array    u32 type of its elements | u64 their number | elements; the value of a key of type 9
 *     tensor   string name | u32 dimensions, 1 to 4 | u64 size of each, the first one runs fastest | u32 number format |
 *              u64 offset of its data
 *
 * The data begin at a multiple of the key general.alignment (32 if it is missing), and so does each tensor, whose offset
 * counts from there.
 *
 * A file is checked as a whole when it is read. All lengths and numbers are compared with the bytes that are there
 * before they are used. No name comes twice. Each tensor has elements, lies inside the file, begins at a multiple of the
 * alignment and overlaps no other one. Names must be printable ASCII, because they appear in messages. Arrays of arrays
 * are refused, as in ggml. Strings that are values may have any bytes. */
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/checkpoint/tensor.h"

enum gguf_type {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL, /* a byte, 0 or 1 */
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	GGUF_TYPES,
};

struct gguf_key {
	const char *name;
	enum gguf_type type; /* of the value; of an array, that of its elements */
	bool array;
	uint64_t n;	      /* elements of an array; otherwise 1 */
	const uint8_t *value; /* the elements, in the file */
};

struct gguf_file {
	const char *shown;	/* borrowed: the path for messages */
	struct arena names;	/* of keys and tensors */
	struct gguf_key *keys;	/* owned, [n_keys], sorted by name */
	struct tensor *tensors; /* owned, [n_tensors], sorted by name */
	size_t n_keys, cap_keys, n_tensors, cap_tensors;
};

/* Returns whether a file with these first bytes means to be a GGUF file. */
bool gguf_magic(const void *bytes, size_t len);

/* Reads the header of a file. *ret is released by gguf_file_release, also after an error. It borrows the bytes.
 * -EINVAL: the file is wrong; -ENOMEM. The sentence names the file and, if one is at fault, the key or the tensor. */
int gguf_file_read(const char *shown, const void *bytes, size_t len, struct gguf_file *ret,
		   struct err *e) MUST_CHECK;
void gguf_file_release(struct gguf_file *g);

/* Returns the key of that name, borrowed; NULL: there is none. */
const struct gguf_key *gguf_find(const struct gguf_file *g, const char *name);

/* Returns the bytes of the string at *at, borrowed, sets *len, and moves *at behind it. For the elements of a key of
 * strings, from key->value on. */
const char *gguf_next_string(const uint8_t **at, size_t *len);

/* Sets *ret to element i, of a key of whole numbers. False: it is negative, or the key's type is another one. */
bool gguf_whole(const struct gguf_key *k, uint64_t i, uint64_t *ret);

/* Copies a text to out [size], for comparisons and messages: cut to fit, with a question mark for each byte that is not
 * printable ASCII. False, and out is empty: the key is NULL or no text. */
bool gguf_text(const struct gguf_key *k, char *out, size_t size);

/* Returns the value as a new JSON value. NULL: JSON has no such value (NaN, a string that is not UTF-8 or has a 0, a number
 * of 2^63 or more), it is an array of strings or of more than 4096 elements, or out of memory. */
json_t *gguf_json(const struct gguf_key *k);
