#include "protocol/jinja/format.h"

#include <errno.h>
#include <string.h>

#include "protocol/jinja/number.h"
#include "protocol/jinja/write.h"

/* Whether the % or the {} at s is one that this file knows; fails if it is not. */
static bool known(struct render *r, bool is, const char *s, size_t n, const char *those)
{
	if (is)
		return true;
	return render_fail(r, EINVAL, "'%.*s' is not supported in chat templates: only %s are",
			   (int)MIN(n, (size_t)40), s, those);
}

static bool not_safe(struct render *r, struct value format)
{
	if (!format.safe)
		return true;
	return render_fail(r, EINVAL,
			   "formatting a text of the filter 'safe' is not supported in "
			   "chat templates");
}

/* ---- % ---- */

static void put_int(struct render *r, struct value v)
{
	int64_t i = 0;

	if (v.type == V_FLOAT && v.f > -0x1p63 && v.f < 0x1p63)
		i = (int64_t)v.f;
	else if (v.type == V_FLOAT)
		render_fail(r, EINVAL, "integer overflow (64 bits)");
	else if (!value_index(v, &i))
		value_fail_type(r, "%d", "a number", v);
	buf_printf(&r->scratch, "%lld", (long long)i);
}

/* One conversion: the letter behind "%". */
static void put_converted(struct render *r, char how, struct value v)
{
	if (how == 's')
		value_write_str(r, &r->scratch, v);
	else if (how == 'r')
		value_write_repr(r, &r->scratch, v);
	else
		put_int(r, v);
}

/* Values that can be indexed may also be left alone: Python takes them for mappings. */
static bool may_stay(struct value v)
{
	return v.type == V_DICT || v.type == V_LIST || v.type == V_RANGE || v.type == V_UNDEFINED;
}

struct value value_format_percent(struct render *r, struct value format, struct value args)
{
	bool tuple = args.type == V_TUPLE;
	size_t n = tuple ? args.list->n : 1, used = 0, start = r->scratch.len;

	if (!not_safe(r, format) || !render_charge_bytes(r, format.len))
		return NOTHING;
	for (size_t at = 0, end; at < format.len && !r->rc; at = end) {
		const char *s = format.s + at, *p = memchr(s, '%', format.len - at);
		char how;

		end = p ? (size_t)(p - format.s) : format.len;
		buf_append(&r->scratch, s, end - at);
		if (!p)
			break;
		end += 2;
		how = end <= format.len ? p[1] : 0;
		if (how == '%')
			buf_putc(&r->scratch, '%');
		else if (!how)
			return value_fail(r, "incomplete format");
		else if (!known(r, strchr("srdi", how), p, MIN(format.len - end + 2, (size_t)8),
				"%s, %r, %d, %i and %%"))
			break;
		else if (used == n)
			return value_fail(r, "not enough arguments for format string");
		else
			put_converted(r, how, tuple ? args.list->v[used++] : (used++, args));
	}
	if (used < n && !may_stay(args))
		return value_fail(r, "not all arguments converted during string formatting");
	return value_take(r, start);
}

/* ---- {} ---- */

struct fields {
	const struct args *args;
	size_t next;		/* number of the next {} */
	bool counted, numbered; /* there was a {}, a {0} */
};

/* The argument that the field s stands for: "", "0" or "name". */
static struct value find_argument(struct render *r, struct fields *f, const char *s, size_t n)
{
	int64_t index;

	if (n && strspn(s, "0123456789") < n) {
		struct value name = value_str(s, n);

		for (size_t i = 0; i < f->args->nkw; i++)
			if (value_same(f->args->kw[i].name, name))
				return f->args->kw[i].value;
		return value_fail(r, "format: no argument '%.*s'", (int)MIN(n, (size_t)64), s);
	}
	f->counted |= !n;
	f->numbered |= n > 0;
	if (f->counted && f->numbered)
		return value_fail(r, "format: cannot mix numbered fields and {}");
	if (!n)
		index = (int64_t)f->next++;
	else if (text_to_int(s, n, &index) != PARSE_INT_OK)
		index = INT64_MAX;
	if ((uint64_t)index >= f->args->n)
		return value_fail(r, "format: not enough arguments");
	return f->args->v[index];
}

/* The field or the pair of braces at s: how many bytes it takes, 0 after a failure. */
static size_t put_field(struct render *r, struct fields *f, const char *s, size_t n)
{
	size_t end = 1 + (n > 1 ? strcspn(s + 1, "{}") : 0);

	if (n > 1 && s[1] == s[0]) {
		buf_putc(&r->scratch, s[0]);
		return 2;
	}
	if (s[0] == '}' || n == 1)
		return render_fail(r, EINVAL, "format: single '%c' in format string", s[0]);
	if (end >= n)
		return render_fail(r, EINVAL, "format: expected '}' before end of string");
	if (!known(r, s[end] == '}' && strcspn(s + 1, "!:.[{}") == end - 1, s, end + 1,
		   "{}, {0} and {name}"))
		return 0;
	value_write_str(r, &r->scratch, find_argument(r, f, s + 1, end - 1));
	return end + 1;
}

struct value value_format_braces(struct render *r, struct value format, const struct args *args)
{
	struct fields f = {.args = args};
	size_t start = r->scratch.len, at = 0, used = 1;
	struct value text = value_copy(r, format.s, format.len); /* with a 0 behind it */

	if (!not_safe(r, format) || r->rc)
		return NOTHING;
	while (at < text.len && used) {
		size_t plain = strcspn(text.s + at, "{}");

		buf_append(&r->scratch, text.s + at, plain);
		at += plain;
		used = 1;
		if (at < text.len && text.s[at])
			used = put_field(r, &f, text.s + at, text.len - at);
		else if (at < text.len)
			buf_putc(&r->scratch, 0);
		at += used;
	}
	return value_take(r, start);
}
