#include "protocol/jinja/ast.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "protocol/jinja/text.h"

bool reader_fail(struct reader *rd, int line, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX - 128];
	va_list ap;

	if (rd->rc)
		return false;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rd->rc = err_set(rd->err, EINVAL, "template %.80s, line %d: %s", rd->t->name, line, text);
	if (rd->err)
		text_clean(rd->err->text);
	return false;
}

static void *checked(struct reader *rd, void *p)
{
	if (!p && !rd->rc)
		rd->rc = err_set(rd->err, ENOMEM, "template %.80s: out of memory", rd->t->name);
	return p;
}

void *reader_alloc(struct reader *rd, size_t n, size_t size)
{
	return checked(rd, rd->rc ? NULL : arena_array(&rd->t->arena, n, size));
}

void *reader_grow(struct reader *rd, void *array, size_t n, size_t *cap, size_t size)
{
	void *p = array;

	if (rd->rc || n < *cap)
		return rd->rc ? NULL : array;
	*cap = *cap ? *cap * 2 : 64;
	p = checked(rd, arena_array(&rd->scratch, *cap, size));
	return p && n ? memcpy(p, array, n * size) : p;
}
