#include "protocol/jinja/format.h"

#include <string.h>

#include "protocol/jinja/write.h"

/* The arguments of a format, taken one after another. */
struct source {
	const struct value *v;
	size_t n, used;
};

static struct value take(struct render *r, struct source *s)
{
	if (s->used == s->n)
		return value_fail(r, "format: not enough arguments");
	return s->v[s->used++];
}

/* Returns the integer that %d writes for a number: a float loses its fraction. */
static struct value as_int(struct render *r, struct value v)
{
	int64_t i;

	if (value_index(v, &i))
		return value_int(i);
	if (v.type != V_FLOAT)
		return value_fail_type(r, "%d", "a number", v);
	if (!(v.f > -0x1p63 && v.f < 0x1p63))
		return value_fail(r, "integer overflow (64 bits)");
	return value_int((int64_t)v.f);
}

/* Appends the text for the conversion at s, which is a % or a brace and the byte behind it. n: bytes from s to the end
 * of the format. */
static void put(struct render *r, struct source *args, const char *s, size_t n)
{
	int shown = (int)MIN(n, (size_t)8);

	if (n > 1 && s[1] == s[0])
		buf_putc(&r->scratch, s[0]); /* %%, {{, }} */
	else if (s[0] == '}' || n == 1)
		value_fail(r, "format: single '%c' in format string", s[0]);
	else if (s[0] == '{' && s[1] == '}')
		value_write_str(r, &r->scratch, take(r, args));
	else if (s[0] == '{')
		value_fail(r, "'%.*s' is not supported in chat templates: only {} is", shown, s);
	else if (s[1] == 's')
		value_write_str(r, &r->scratch, take(r, args));
	else if (s[1] == 'd')
		value_write_str(r, &r->scratch, as_int(r, take(r, args)));
	else
		value_fail(r, "'%.*s' is not supported in chat templates: only %%s and %%d are",
			   shown, s);
}

/* Returns the format with its conversions replaced by values. signs: the characters that begin a conversion. */
static struct value format_all(struct render *r, struct value format, const char *signs,
			       struct source *args)
{
	size_t start = r->scratch.len;

	if (format.safe)
		return value_fail(r, "formatting a text of the filter 'safe' is not supported in "
				     "chat templates");
	for (size_t i = 0; i < format.len && !r->rc; i++) {
		if (format.s[i] && strchr(signs, format.s[i])) {
			put(r, args, format.s + i, format.len - i);
			i++;
		} else {
			buf_putc(&r->scratch, format.s[i]);
		}
	}
	return value_take(r, start);
}

struct value value_format_percent(struct render *r, struct value format, struct value args)
{
	bool tuple = args.type == V_TUPLE;
	struct source s = {tuple ? args.list->v : &args, tuple ? args.list->n : 1, 0};
	struct value text = format_all(r, format, "%", &s);

	/* A single argument that can be indexed, other than a str, may stay unused: Python takes it for a mapping. */
	if (s.used < s.n && args.type != V_DICT && args.type != V_LIST && args.type != V_RANGE &&
	    args.type != V_UNDEFINED)
		return value_fail(r, "not all arguments converted during string formatting");
	return text;
}

struct value value_format_braces(struct render *r, struct value format, const struct args *args)
{
	struct source s = {args->v, args->n, 0};

	return format_all(r, format, "{}", &s);
}
