#include "engine/checkpoint/formats/gguf_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

enum { ALIGNMENT = 32, VERSION = 3, HEADER_MAX = 1 << 30 };

/* ---- values ---- */

/* Appends the lowest n bytes of a number, the lowest first. */
static void put_number(struct buf *b, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		buf_putc(b, (char)(v >> 8 * i));
}

static void put_string(struct buf *b, const char *text, size_t len)
{
	put_number(b, len, 8);
	buf_append(b, text, len);
}

static void begin_key(struct gguf_keys *k, const char *name, enum gguf_type type)
{
	put_string(&k->bytes, name, strlen(name));
	put_number(&k->bytes, type, 4);
	k->n++;
}

/* ---- keys ---- */

void gguf_keys_init(struct gguf_keys *k)
{
	*k = (struct gguf_keys){0};
	buf_init(&k->bytes, HEADER_MAX);
}

void gguf_keys_release(struct gguf_keys *k)
{
	buf_release(&k->bytes);
}

void gguf_add_text(struct gguf_keys *k, const char *name, const char *text, size_t len)
{
	begin_key(k, name, GGUF_STRING);
	put_string(&k->bytes, text, len);
}

void gguf_add_whole(struct gguf_keys *k, const char *name, uint32_t v)
{
	begin_key(k, name, GGUF_U32);
	put_number(&k->bytes, v, 4);
}

void gguf_add_int(struct gguf_keys *k, const char *name, int32_t v)
{
	begin_key(k, name, GGUF_I32);
	put_number(&k->bytes, (uint32_t)v, 4);
}

void gguf_add_real(struct gguf_keys *k, const char *name, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	begin_key(k, name, GGUF_F32);
	put_number(&k->bytes, bits, 4);
}

void gguf_add_truth(struct gguf_keys *k, const char *name, bool v)
{
	begin_key(k, name, GGUF_BOOL);
	put_number(&k->bytes, v, 1);
}

void gguf_add_array(struct gguf_keys *k, const char *name, enum gguf_type type, uint64_t n)
{
	begin_key(k, name, GGUF_ARRAY);
	put_number(&k->bytes, type, 4);
	put_number(&k->bytes, n, 8);
}

void gguf_add_element(struct gguf_keys *k, const char *text, size_t len)
{
	put_string(&k->bytes, text, len);
}

/* Returns the end of a key's value. */
static const uint8_t *value_end(const struct gguf_key *k)
{
	static const uint8_t sizes[GGUF_TYPES] = {
		[GGUF_U8] = 1,	[GGUF_I8] = 1,	[GGUF_U16] = 2, [GGUF_I16] = 2,
		[GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
		[GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
	};
	const uint8_t *at = k->value;
	size_t len;

	if (k->type != GGUF_STRING)
		return at + k->n * sizes[k->type];
	for (uint64_t i = 0; i < k->n; i++)
		(void)gguf_next_string(&at, &len);
	return at;
}

void gguf_add_copy(struct gguf_keys *k, const struct gguf_key *from)
{
	if (from->array)
		gguf_add_array(k, from->name, from->type, from->n);
	else
		begin_key(k, from->name, from->type);
	buf_append(&k->bytes, from->value, (size_t)(value_end(from) - from->value));
}

/* ---- the file ---- */

void gguf_put_header(struct buf *b, const struct gguf_keys *keys, const struct tensor *tensors,
		     size_t n)
{
	uint64_t at = 0;

	buf_puts(b, "GGUF");
	put_number(b, VERSION, 4);
	put_number(b, n, 8);
	put_number(b, keys->n, 8);
	buf_append(b, keys->bytes.data, keys->bytes.len);
	for (size_t i = 0; i < n; i++) {
		const struct tensor *t = &tensors[i];

		put_string(b, t->name, strlen(t->name));
		put_number(b, t->n_dims, 4);
		for (uint32_t d = t->n_dims; d; d--)
			put_number(b, t->shape[d - 1], 8);
		put_number(b, (uint32_t)stored_type_number(t->type), 4);
		put_number(b, at, 8);
		at += ROUND_UP(t->bytes, (uint64_t)ALIGNMENT);
	}
	while (!b->failed && b->len % ALIGNMENT)
		buf_putc(b, 0);
}

int gguf_write(const char *path, const struct gguf_keys *keys, const struct tensor *tensors,
	       size_t n,
	       int (*produce)(size_t index, struct file_draft *to, void *user, struct err *e),
	       void *user, struct err *e)
{
	static const char zeros[ALIGNMENT];
	struct file_draft d;
	struct buf header;
	int r = file_draft_open(&d, path, e);

	if (r < 0)
		return r;
	buf_init(&header, HEADER_MAX);
	gguf_put_header(&header, keys, tensors, n);
	if (keys->bytes.failed || header.failed)
		r = err_set(e, ENOMEM, "%s: out of memory for its header", path);
	else
		r = file_draft_write(&d, header.data, header.len, e);
	buf_release(&header);
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = produce(i, &d, user, e);
		if (r == 0 && tensors[i].bytes % ALIGNMENT)
			r = file_draft_write(&d, zeros, ALIGNMENT - tensors[i].bytes % ALIGNMENT,
					     e);
	}
	return file_draft_close(&d, r, e);
}
