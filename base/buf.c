#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){.max = max};
}

void buf_release(struct buf *b)
{
	free(b->data);
	*b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = 0;
}

int buf_reserve(struct buf *b, size_t n)
{
	size_t need, cap;
	char *data;

	if (n > b->max || b->len > b->max - n)
		return -ENOBUFS;
	need = b->len + n + 1;
	if (need <= b->cap)
		return 0;
	cap = MIN(b->cap * 2, b->max + 1);
	cap = MAX(cap, need);
	cap = MAX(cap, (size_t)64);
	data = realloc(b->data, cap);
	if (!data)
		return -ENOMEM;
	data[b->len] = 0;
	b->data = data;
	b->cap = cap;
	return 0;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
	if (buf_reserve(b, len) < 0) {
		b->failed = true;
		return;
	}
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = 0;
}

void buf_puts(struct buf *b, const char *text)
{
	buf_append(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c)
{
	buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || buf_reserve(b, (size_t)n) < 0) {
		b->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
	if (!n)
		return;
	memmove(b->data, b->data + n, b->len - n + 1);
	b->len -= n;
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}
