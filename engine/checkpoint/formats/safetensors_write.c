/* Writes one safetensors file: the header first, then tensor after tensor through one buffer. */
#include "engine/checkpoint/formats/safetensors.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/file.h"

enum { HEADER_MAX = 100000000 };

static void put_string(struct buf *b, const char *text)
{
	buf_putc(b, '"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_putc(b, '\\');
		buf_putc(b, *text);
	}
	buf_putc(b, '"');
}

/* Appends the header: 8 bytes with the length of the JSON, then the JSON, padded with spaces so that the data behind it
 * is aligned to 8 bytes. */
static int put_header(struct buf *b, const struct tensor *tensors, size_t n)
{
	uint64_t at = 0, len;

	buf_append(b, "\0\0\0\0\0\0\0\0", 8);
	buf_puts(b, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (size_t i = 0; i < n; i++) {
		const struct tensor *t = &tensors[i];

		buf_putc(b, ',');
		put_string(b, t->name);
		buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", t->type->name);
		for (uint32_t k = 0; k < t->n_dims; k++)
			buf_printf(b, "%s%llu", k ? "," : "", (unsigned long long)t->shape[k]);
		buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
			   (unsigned long long)(at + t->bytes));
		at += t->bytes;
	}
	buf_putc(b, '}');
	while (!b->failed && b->len % 8)
		buf_putc(b, ' ');
	if (b->failed)
		return -ENOMEM;
	len = b->len - 8;
	for (int i = 0; i < 8; i++)
		b->data[i] = (char)(len >> 8 * i);
	return 0;
}

static int write_tensors(struct file_draft *d, const struct tensor *tensors, size_t n,
			 int (*produce)(size_t index, void *data, void *user, struct err *e),
			 void *user, struct err *e)
{
	size_t largest = 1;
	void *data;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		largest = MAX(largest, tensors[i].bytes);
	data = malloc(largest);
	if (!data)
		return err_set(e, ENOMEM, "%s: out of memory for a tensor of %zu bytes", d->path,
			       largest);
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = produce(i, data, user, e);
		if (r == 0)
			r = file_draft_write(d, data, tensors[i].bytes, e);
	}
	free(data);
	return r;
}

int safetensors_write(const char *path, const struct tensor *tensors, size_t n,
		      int (*produce)(size_t index, void *data, void *user, struct err *e),
		      void *user, struct err *e)
{
	struct file_draft d;
	struct buf header;
	int r = file_draft_open(&d, path, e);

	if (r < 0)
		return r;
	buf_init(&header, HEADER_MAX);
	r = put_header(&header, tensors, n);
	if (r < 0)
		r = err_set(e, -r, "%s: out of memory for its header", path);
	else
		r = file_draft_write(&d, header.data, header.len, e);
	buf_release(&header);
	if (r == 0)
		r = write_tensors(&d, tensors, n, produce, user, e);
	return file_draft_close(&d, r, e);
}
