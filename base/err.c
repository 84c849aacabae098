#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PRINTF(4, 0)
static void fill(struct err *e, int code, const char *param, const char *fmt, va_list ap)
{
	if (!e)
		return;
	e->code = code;
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	snprintf(e->param, sizeof(e->param), "%s", param);
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(e, code, "", fmt, ap);
	va_end(ap);
	return -code;
}

int err_no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "out of memory");
}

int err_param(struct err *e, int code, const char *param, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(e, code, param, fmt, ap);
	va_end(ap);
	return -code;
}

void err_prefix(struct err *e, const char *fmt, ...)
{
	char old[ERR_TEXT_MAX];
	va_list ap;
	int n;

	if (!e)
		return;
	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(e->text))
		snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", old);
}
