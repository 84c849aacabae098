#include "protocol/jinja/render.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "protocol/jinja/text.h"

bool render_fail(struct render *r, int code, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX - 128];
	va_list ap;

	if (r->rc)
		return false;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->rc = err_set(r->err, code, "template %.80s, line %d: %s", r->name, r->line, text);
	text_clean(r->err->text);
	return false;
}

bool render_overspent(struct render *r, size_t work)
{
	enum { STEPS = 10000 };
	uint64_t left = r->steps + r->more_steps;

	if (pace_gives_up(r->pace))
		return render_fail(r, ECANCELED, "given up");
	if (work > left)
		return render_fail(r, E2BIG, "the template does too much work");
	left -= work;
	r->steps = MIN(left, (uint64_t)STEPS);
	r->more_steps = left - r->steps;
	return !r->rc;
}

bool render_too_deep(struct render *r)
{
	return render_fail(r, E2BIG, "the template or a value in it is nested too deeply");
}

void *render_alloc(struct render *r, size_t n, size_t size)
{
	void *p = r->rc ? NULL : arena_array(&r->arena, n, size);

	if (p)
		return p;
	if (size && n > (r->arena.max - r->arena.used) / size)
		render_fail(r, E2BIG, "the template needs too much memory");
	else
		render_fail(r, ENOMEM, "out of memory");
	return NULL;
}

char *render_copy(struct render *r, const char *s, size_t len)
{
	char *p = render_charge_bytes(r, len) ? render_alloc(r, len + 1, 1) : NULL;

	if (p)
		memcpy(p, s, len);
	return p;
}

bool render_check(struct render *r, const struct buf *b)
{
	if (b->failed)
		return render_fail(r, E2BIG, "the template builds too long a text");
	return !r->rc;
}
