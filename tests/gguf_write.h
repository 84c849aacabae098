/* Writes GGUF files for tests (engine/checkpoint/formats/gguf_file.h has the layout). Tests run on little-endian
 * machines. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "engine/checkpoint/formats/gguf_file.h"

/* Numbers of the number formats. */
enum { GGML_F32 = 0, GGML_Q8_0 = 8, GGML_BF16 = 30 };

enum { GGUF_OUT_MAX = 1 << 30, GGUF_OUT_ALIGNMENT = 32 };

struct gguf_out {
	struct buf keys, tensors, data;
	uint64_t n_keys, n_tensors;
};

__attribute__((unused)) static void gguf_out_init(struct gguf_out *o)
{
	*o = (struct gguf_out){0};
	buf_init(&o->keys, GGUF_OUT_MAX);
	buf_init(&o->tensors, GGUF_OUT_MAX);
	buf_init(&o->data, GGUF_OUT_MAX);
}

__attribute__((unused)) static void gguf_out_release(struct gguf_out *o)
{
	buf_release(&o->keys);
	buf_release(&o->tensors);
	buf_release(&o->data);
}

static void gguf_put_u32(struct buf *b, uint32_t v)
{
	buf_append(b, &v, sizeof(v));
}

static void gguf_put_u64(struct buf *b, uint64_t v)
{
	buf_append(b, &v, sizeof(v));
}

static void gguf_put_string(struct buf *b, const char *text, size_t len)
{
	gguf_put_u64(b, len);
	buf_append(b, text, len);
}

/* Begins a key; its value of that type follows in o->keys. */
static void gguf_put_key(struct gguf_out *o, const char *name, enum gguf_type type)
{
	gguf_put_string(&o->keys, name, strlen(name));
	gguf_put_u32(&o->keys, type);
	o->n_keys++;
}

/* Begins a key with an array; its n elements follow in o->keys. */
__attribute__((unused)) static void gguf_put_array(struct gguf_out *o, const char *name,
						   enum gguf_type type, uint64_t n)
{
	gguf_put_key(o, name, GGUF_ARRAY);
	gguf_put_u32(&o->keys, type);
	gguf_put_u64(&o->keys, n);
}

__attribute__((unused)) static void gguf_put_whole(struct gguf_out *o, const char *name, uint32_t v)
{
	gguf_put_key(o, name, GGUF_U32);
	gguf_put_u32(&o->keys, v);
}

__attribute__((unused)) static void gguf_put_real(struct gguf_out *o, const char *name, float v)
{
	gguf_put_key(o, name, GGUF_F32);
	buf_append(&o->keys, &v, sizeof(v));
}

__attribute__((unused)) static void gguf_put_truth(struct gguf_out *o, const char *name, bool v)
{
	gguf_put_key(o, name, GGUF_BOOL);
	buf_putc(&o->keys, v);
}

__attribute__((unused)) static void gguf_put_text(struct gguf_out *o, const char *name,
						  const char *text)
{
	gguf_put_key(o, name, GGUF_STRING);
	gguf_put_string(&o->keys, text, strlen(text));
}

/* Adds a tensor. ne [n_dims]: its sizes, the first one runs fastest. data [bytes]. */
__attribute__((unused)) static void gguf_put_tensor(struct gguf_out *o, const char *name,
						    uint32_t type, uint32_t n_dims,
						    const uint64_t *ne, const void *data,
						    size_t bytes)
{
	static const char zeros[GGUF_OUT_ALIGNMENT];

	gguf_put_string(&o->tensors, name, strlen(name));
	gguf_put_u32(&o->tensors, n_dims);
	for (uint32_t i = 0; i < n_dims; i++)
		gguf_put_u64(&o->tensors, ne[i]);
	gguf_put_u32(&o->tensors, type);
	gguf_put_u64(&o->tensors, o->data.len);
	o->n_tensors++;
	buf_append(&o->data, data, bytes);
	if (bytes % GGUF_OUT_ALIGNMENT)
		buf_append(&o->data, zeros, GGUF_OUT_ALIGNMENT - bytes % GGUF_OUT_ALIGNMENT);
}

/* Appends the whole file to an empty buffer. */
__attribute__((unused)) static void gguf_out_file(const struct gguf_out *o, struct buf *file)
{
	buf_puts(file, "GGUF");
	gguf_put_u32(file, 3);
	gguf_put_u64(file, o->n_tensors);
	gguf_put_u64(file, o->n_keys);
	buf_append(file, o->keys.data, o->keys.len);
	buf_append(file, o->tensors.data, o->tensors.len);
	while (o->n_tensors && file->len % GGUF_OUT_ALIGNMENT)
		buf_putc(file, 0);
	buf_append(file, o->data.data, o->data.len);
}
