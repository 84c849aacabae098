/* Global functions that every template has. raise_exception and strftime_now are transformers' own. */
#include <string.h>
#include <time.h>

#include "protocol/jinja/dict.h"
#include "protocol/jinja/tables.h"
#include "protocol/jinja/write.h"

#define FUNCTION(name) static struct value name(struct render *r, const struct builtin_call *c)

/* Returns the number of items of range(start, stop, step). */
static uint64_t range_length(int64_t start, int64_t stop, int64_t step)
{
	uint64_t span, by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;

	if (step > 0 ? start >= stop : start <= stop)
		return 0;
	span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
	return (span - 1) / by + 1;
}

FUNCTION(global_range)
{
	bool one = c->arg[1].type == V_MISSING;
	int64_t start = one ? 0 : c->arg[0].i, stop = c->arg[!one].i;
	int64_t step = c->arg[2].type == V_MISSING ? 1 : c->arg[2].i;
	struct list *l;
	uint64_t n;

	if (!step)
		return value_fail(r, "range: the step may not be zero");
	n = range_length(start, stop, step);
	if (n > RENDER_RANGE) {
		render_fail(r, E2BIG, "range: more than %d items", RENDER_RANGE);
		return NOTHING;
	}
	l = render_charge(r, n) ? list_new(r, (size_t)n) : NULL;
	/* The unsigned sums may wrap around; the items fit into 64 bits. */
	for (size_t i = 0; l && i < n; i++)
		l->v[i] = value_int((int64_t)((uint64_t)start + i * (uint64_t)step));
	return value_of_list(V_RANGE, l);
}

/* dict(mapping, **more), namespace(mapping, **more). The member `data` of the row (builtin.h) is the type of the
 * result. */
FUNCTION(global_dict)
{
	struct dict *d = dict_new(r, 0), none = {0};
	const struct dict *from = &none;

	if (c->args.n > 1)
		return value_fail(r, "%s takes at most 1 positional argument", c->b->name);
	if (c->args.n && c->args.v[0].type != V_DICT)
		return value_fail(r, "%s of anything but a dict is not supported in chat templates",
				  c->b->name);
	if (c->args.n)
		from = c->args.v[0].dict;
	for (size_t i = 0; i < from->n; i++)
		dict_set(r, d, from->entry[i].key, from->entry[i].value);
	for (size_t i = 0; i < c->args.nkw; i++)
		dict_set(r, d, c->args.kw[i].name, c->args.kw[i].value);
	for (size_t i = 0; !r->rc && i < d->n && c->b->data == V_NAMESPACE; i++)
		if (d->entry[i].key.type == V_STR && d->entry[i].key.len &&
		    d->entry[i].key.s[0] == '_')
			return value_fail(r, "a namespace's attribute may not begin with '_'");
	return r->rc ? NOTHING : (struct value){.type = (uint8_t)c->b->data, .dict = d};
}

/* raise_exception(message). The error is the message alone, without the template's name and the line: it tells the
 * client why the template refuses the messages. */
FUNCTION(global_raise)
{
	struct value text = value_to_str(r, c->arg[0]);
	size_t n = MIN((size_t)text.len, (size_t)ERR_TEXT_MAX - 1);
	char *s;

	while (n < text.len && n && ((unsigned char)text.s[n] & 0xc0) == 0x80)
		n--;
	s = render_copy(r, text.s, n);
	for (size_t i = 0; s && i < n; i++)
		s[i] = s[i] ? s[i] : ' ';
	if (s)
		r->rc = err_set(r->err, EBADMSG, "%s", s);
	return NOTHING;
}

enum { FORMAT_MAX = 512 };

FUNCTION(global_strftime_now)
{
	struct value format = value_copy(r, c->arg[0].s, c->arg[0].len); /* with a 0 behind it */
	size_t start = r->scratch.len, size = 1024;
	struct timespec now;
	struct tm local;

	if (r->rc)
		return NOTHING;
	if (format.len >= FORMAT_MAX)
		return value_fail(r, "strftime_now: the format is too long");
	if (memchr(format.s, 0, format.len))
		return value_fail(r, "strftime_now: the format has a NUL");
	for (const char *p = format.s; (p = strchr(p, '%')) && p[1]; p += 2)
		if (strchr("fzZ", p[1]))
			return value_fail(r,
					  "strftime_now: '%%%c' is not supported in chat templates",
					  p[1]);
	clock_gettime(CLOCK_REALTIME, &now);
	if (!localtime_r(&now.tv_sec, &local))
		return value_fail(r, "strftime_now: there is no local time");
	/* Python has the same bound: a longer text becomes empty in Python, too. */
	while (size < 256 * (size_t)format.len)
		size *= 2;
	if (buf_reserve(&r->scratch, size) < 0) {
		r->scratch.failed = true;
		return value_take(r, start);
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	r->scratch.len += strftime(r->scratch.data + start, size, format.s, &local);
#pragma GCC diagnostic pop
	return value_take(r, start);
}

static const struct builtin globals[] = {
	{"range", global_range, 0, BUILTIN_POSITIONAL, 1, {"i:start", "i:stop", "i:step"}},
	{"namespace", global_dict, V_NAMESPACE, BUILTIN_RAW},
	{"dict", global_dict, V_DICT, BUILTIN_RAW},
	{"raise_exception", global_raise, .required = 1, .params = {"message"}},
	{"strftime_now", global_strftime_now, .required = 1, .params = {"s:format"}},
};
const struct builtin_table global_functions = {GLOBAL, globals, ARRAY_SIZE(globals),
					       "cycler joiner lipsum"};
