/* Functions a template finds without being given them: range, namespace, raise_exception... */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/text/jinja_builtin.h"

#define GLOBAL(name)                                                                         \
	static int name(struct render *r, const struct value *self, const struct value *arg, \
			struct value *ret)

#define GLOBAL_RAW(name)                                                                     \
	static int name(struct render *r, const struct value *self, const struct args *args, \
			struct value *ret)

/* ---- range ---- */

/* Number of items from start to stop, exclusive. */
static uint64_t range_length(int64_t start, int64_t stop, int64_t step)
{
	uint64_t span, by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;

	if (step > 0 ? start >= stop : start <= stop)
		return 0;
	span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
	return (span - 1) / by + 1;
}

GLOBAL(global_range)
{
	int64_t at[3] = {0, 0, 1};
	struct range *range;
	uint64_t n;
	int rc = 0;

	for (int i = 0; i < 3 && !rc; i++)
		if (arg[i].type != V_MISSING)
			rc = arg_int(r, "range", &arg[i], &at[i]);
	if (!rc && !at[2])
		rc = render_fail(r, EINVAL, "range: the step may not be zero");
	if (rc < 0)
		return rc;
	if (arg[1].type == V_MISSING) {
		at[1] = at[0];
		at[0] = 0;
	}
	n = range_length(at[0], at[1], at[2]);
	if (n > RENDER_RANGE)
		return render_fail(r, E2BIG, "range: more than %d items", RENDER_RANGE);
	range = render_alloc(r, 1, sizeof(*range));
	if (!range)
		return -r->err->code;
	*range = (struct range){at[0], at[1], at[2], (size_t)n};
	*ret = (struct value){.type = V_RANGE, .range = range};
	return 0;
}

/* ---- dict, namespace ---- */

static int add_pair(struct render *r, struct dict *d, const struct value *pair)
{
	struct value both;
	int rc = value_to_list(r, pair, &both);

	if (rc < 0)
		return rc;
	if (both.list->n != 2)
		return render_fail(r, EINVAL, "dict: expected pairs of key and value");
	return dict_set(r, d, &both.list->v[0], &both.list->v[1]);
}

static int add_entries(struct render *r, struct dict *d, const struct value *from)
{
	struct dict_cursor c = {0};
	struct value key, value;
	struct iter *it;
	int rc = 0;

	if (from->type == V_DICT) {
		while (!rc && dict_next(from, &c, &key, &value))
			rc = dict_set(r, d, &key, &value);
		return rc;
	}
	rc = from->type == V_UNDEFINED ? value_fail_undefined(r, from) : value_iter(r, from, &it);
	if (rc < 0)
		return rc;
	while ((rc = iter_next(r, it, &value)) > 0) {
		rc = add_pair(r, d, &value);
		if (rc < 0)
			break;
	}
	return rc;
}

/* dict(mapping or pairs, **more) */
static int new_dict(struct render *r, enum value_type type, const struct args *args,
		    struct value *ret)
{
	int rc = value_new_dict(r, type, ret);

	if (args->n > 1)
		return render_fail(r, EINVAL, "dict takes at most 1 positional argument");
	if (!rc && args->n)
		rc = add_entries(r, ret->dict, &args->v[0]);
	for (size_t i = 0; i < args->nkw && !rc; i++) {
		struct value key = value_str(args->kw[i].name, args->kw[i].len);

		rc = dict_set(r, ret->dict, &key, &args->kw[i].value);
	}
	return rc;
}

GLOBAL_RAW(global_dict)
{
	return new_dict(r, V_DICT, args, ret);
}

GLOBAL_RAW(global_namespace)
{
	int rc = new_dict(r, V_NAMESPACE, args, ret);

	for (size_t i = 0; !rc && i < ret->dict->n; i++) {
		const struct value *key = &ret->dict->entry[i].key;

		if (key->type == V_STR && key->len && key->s[0] == '_')
			rc = render_fail(r, EINVAL,
					 "a namespace's attribute may not begin with '_'");
	}
	return rc;
}

/* ---- cycler, joiner ---- */

GLOBAL_RAW(global_cycler)
{
	struct cycler *c;

	if (!args->n || args->nkw)
		return render_fail(r, EINVAL, "cycler needs items to cycle through");
	c = render_alloc(r, 1, sizeof(*c));
	if (!c)
		return -r->err->code;
	c->n = args->n;
	c->v = render_alloc(r, c->n, sizeof(*c->v));
	if (!c->v)
		return -r->err->code;
	memcpy(c->v, args->v, c->n * sizeof(*c->v));
	*ret = (struct value){.type = V_CYCLER, .cycler = c};
	return 0;
}

GLOBAL(global_joiner)
{
	struct joiner *j = render_alloc(r, 1, sizeof(*j));

	if (!j)
		return -r->err->code;
	j->separator = arg[0].type == V_MISSING ? value_cstr(", ") : arg[0];
	*ret = (struct value){.type = V_JOINER, .joiner = j};
	return 0;
}

/* ---- transformers' own ---- */

/* The message alone, for the client: it is what the template has to say about the messages. */
GLOBAL(global_raise)
{
	struct value text;
	char *s;
	size_t n;
	int rc = value_to_str(r, &arg[0], &text);

	if (rc < 0)
		return rc;
	n = MIN(text.len, (size_t)ERR_TEXT_MAX - 1);
	while (n < text.len && n && ((unsigned char)text.s[n] & 0xc0) == 0x80)
		n--;
	s = render_alloc(r, n + 1, 1);
	if (!s)
		return -r->err->code;
	for (size_t i = 0; i < n; i++)
		s[i] = text.s[i] ? text.s[i] : ' ';
	return err_set(r->err, EBADMSG, "%s", s);
}

enum { STRFTIME_MAX = 4096 };

/* What datetime.strftime does itself before libc sees the format: no time zone, microseconds. */
static void expand_format(struct buf *b, const struct value *format, long microseconds)
{
	for (size_t i = 0; i < format->len; i++) {
		char c = format->s[i], next = i + 1 < format->len ? format->s[i + 1] : 0;

		if (c == '%' && (next == 'z' || next == 'Z')) {
			i++;
		} else if (c == '%' && next == 'f') {
			buf_printf(b, "%06ld", microseconds);
			i++;
		} else {
			buf_putc(b, c);
			if (c == '%' && next) {
				buf_putc(b, next);
				i++;
			}
		}
	}
}

GLOBAL(global_strftime_now)
{
	size_t start = text_begin(r), n;
	struct value format;
	struct timespec now;
	struct tm local;
	char *out;
	int rc = arg_str(r, "strftime_now", &arg[0]);

	if (rc < 0)
		return rc;
	if (arg[0].len >= STRFTIME_MAX / 8 || memchr(arg[0].s, 0, arg[0].len))
		return render_fail(r, EINVAL, "strftime_now: the format is too long");
	clock_gettime(CLOCK_REALTIME, &now);
	if (!localtime_r(&now.tv_sec, &local))
		return render_fail(r, EINVAL, "strftime_now: there is no local time");
	expand_format(&r->scratch, &arg[0], now.tv_nsec / 1000);
	rc = text_end(r, start, &format);
	if (rc < 0)
		return rc;
	out = render_alloc(r, STRFTIME_MAX, 1);
	if (!out)
		return -r->err->code;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	n = strftime(out, STRFTIME_MAX, format.s, &local);
#pragma GCC diagnostic pop
	*ret = value_str(out, n);
	return 0;
}

static const struct builtin globals[] = {
	{"range", global_range, NULL, 1, {"start", "stop", "step"}, true},
	{"namespace", .raw = global_namespace},
	{"raise_exception", global_raise, NULL, 1, {"message"}},
	{"strftime_now", global_strftime_now, NULL, 1, {"format"}},
	{"dict", .raw = global_dict},
	{"cycler", .raw = global_cycler},
	{"joiner", global_joiner, .params = {"sep"}},
};

const struct builtin *global_find(const char *name, size_t len)
{
	return builtin_search(globals, ARRAY_SIZE(globals), name, len);
}
