/* Writing one safetensors file: header first, then tensor after tensor through one buffer. */
#include "engine/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/macros.h"
#include "engine/file.h"

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

/* The 8 bytes of length and the JSON, padded with spaces so that the data is aligned to 8. */
static int put_header(struct buf *b, const struct tensor *tensors, size_t n)
{
	uint64_t at = 0, len;

	buf_append(b, "\0\0\0\0\0\0\0\0", 8);
	buf_puts(b, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (size_t i = 0; i < n; i++) {
		const struct tensor *t = &tensors[i];

		buf_putc(b, ',');
		put_string(b, t->name);
		buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype_name);
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

static int write_tensors(int fd, const char *path, const struct tensor *tensors, size_t n,
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
		return err_set(e, ENOMEM, "%s: out of memory for a tensor of %zu bytes", path,
			       largest);
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = produce(i, data, user, e);
		if (r == 0)
			r = file_write_all(fd, path, data, tensors[i].bytes, e);
	}
	free(data);
	return r;
}

int safetensors_write(const char *path, const struct tensor *tensors, size_t n,
		      int (*produce)(size_t index, void *data, void *user, struct err *e),
		      void *user, struct err *e)
{
	struct buf header;
	char *partial;
	int fd, r;

	if (asprintf(&partial, "%s.partial", path) < 0)
		return err_set(e, ENOMEM, "%s: out of memory", path);
	fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		r = err_set(e, errno, "%s: cannot create: %s", partial, strerror(errno));
		goto free_name;
	}
	buf_init(&header, HEADER_MAX);
	r = put_header(&header, tensors, n);
	if (r < 0)
		r = err_set(e, -r, "%s: out of memory for its header", path);
	else
		r = file_write_all(fd, path, header.data, header.len, e);
	buf_release(&header);
	if (r == 0)
		r = write_tensors(fd, path, tensors, n, produce, user, e);
	if (r == 0 && fsync(fd) < 0)
		r = err_set(e, errno, "%s: cannot write: %s", path, strerror(errno));
	if (close(fd) < 0 && r == 0)
		r = err_set(e, errno, "%s: cannot write: %s", path, strerror(errno));
	if (r == 0 && rename(partial, path) < 0)
		r = err_set(e, errno, "%s: cannot rename to it: %s", path, strerror(errno));
	if (r < 0)
		unlink(partial);
free_name:
	free(partial);
	return r;
}
