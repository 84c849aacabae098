#include "protocol/jinja/json.h"

#include <math.h>
#include <string.h>

#include "protocol/jinja/dict.h"
#include "protocol/jinja/number.h"
#include "protocol/jinja/text.h"

struct writer {
	struct render *r;
	struct buf *b;
	const struct json_style *style;
	size_t level;
};

static void write_escape(struct buf *b, uint32_t cp)
{
	static const char named[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
	const char *p = cp ? memchr(named, (int)cp, cp < 0x80 ? sizeof(named) - 1 : 0) : NULL;

	if (p)
		buf_printf(b, "\\%c", names[p - named]);
	else if (cp >= 0x10000)
		buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
			   0xdc00 + ((cp - 0x10000) & 0x3ff));
	else
		buf_printf(b, "\\u%04x", cp);
}

static void write_text(struct buf *b, struct value v, bool ensure_ascii)
{
	size_t plain = 0, len;
	uint32_t cp;

	buf_putc(b, '"');
	for (size_t i = 0; i < v.len; i += len) {
		cp = (unsigned char)v.s[i];
		len = 1;
		if (ensure_ascii && cp >= 0x80)
			len = text_next(v.s + i, v.len - i, &cp);
		if (cp >= 0x20 && cp != '"' && cp != '\\' && !(ensure_ascii && cp >= 0x7f))
			continue;
		buf_append(b, v.s + plain, i - plain);
		write_escape(b, cp);
		plain = i + len;
	}
	buf_append(b, v.s + plain, v.len - plain);
	buf_putc(b, '"');
}

static void write_float(struct buf *b, double f)
{
	char number[FLOAT_REPR_MAX];

	float_repr(f, number);
	buf_puts(b, isnan(f)	     ? "NaN"
		    : f == INFINITY  ? "Infinity"
		    : f == -INFINITY ? "-Infinity"
				     : number);
}

static void new_line(struct writer *w)
{
	if (!w->style->pretty)
		return;
	buf_putc(w->b, '\n');
	for (size_t i = 0; i < w->level && !w->b->failed; i++)
		buf_append(w->b, w->style->indent.s, w->style->indent.len);
}

/* Writes the text before an item: the separator unless it is the first, and if pretty a line break and the indent. */
static void begin_item(struct writer *w, bool first)
{
	if (!first)
		buf_append(w->b, w->style->item.s, w->style->item.len);
	new_line(w);
}

static void write_value(struct writer *w, struct value v);

static void write_items(struct writer *w, const struct list *l)
{
	for (size_t i = 0; i < l->n && !w->r->rc; i++) {
		begin_item(w, !i);
		write_value(w, l->v[i]);
	}
}

/* Writes None, a bool or a number. False: v is none of these. */
static bool write_simple(struct buf *b, struct value v)
{
	switch (v.type) {
	case V_NONE: buf_puts(b, "null"); return true;
	case V_BOOL: buf_puts(b, v.b ? "true" : "false"); return true;
	case V_INT: buf_printf(b, "%lld", (long long)v.i); return true;
	case V_FLOAT: write_float(b, v.f); return true;
	default: return false;
	}
}

static void write_key(struct writer *w, struct value key)
{
	if (key.type == V_STR) {
		write_text(w->b, key, w->style->ensure_ascii);
		return;
	}
	buf_putc(w->b, '"');
	if (!write_simple(w->b, key))
		render_fail(w->r, EINVAL,
			    "tojson: keys must be str, int, float, bool or None, not %s",
			    value_type_name(key));
	buf_putc(w->b, '"');
}

static void write_dict(struct writer *w, const struct dict *d)
{
	for (size_t i = 0; i < d->n && !w->r->rc; i++) {
		begin_item(w, !i);
		write_key(w, d->entry[i].key);
		buf_append(w->b, w->style->key.s, w->style->key.len);
		write_value(w, d->entry[i].value);
	}
}

static void write_container(struct writer *w, struct value v)
{
	bool empty = value_len(v) == 0;

	buf_putc(w->b, v.type == V_DICT ? '{' : '[');
	w->level++;
	if (v.type == V_DICT)
		write_dict(w, v.dict);
	else
		write_items(w, v.list);
	w->level--;
	if (!empty)
		new_line(w);
	buf_putc(w->b, v.type == V_DICT ? '}' : ']');
}

static void write_value(struct writer *w, struct value v)
{
	struct render *r = w->r;
	size_t before = w->b->len;

	if (!render_enter(r))
		return;
	if (v.type == V_STR)
		write_text(w->b, v, w->style->ensure_ascii);
	else if (v.type == V_DICT || value_is_list(v))
		write_container(w, v);
	else if (!write_simple(w->b, v))
		render_fail(r, EINVAL, "tojson: object of type %s is not JSON serializable",
			    value_type_name(v));
	r->depth--;
	if (render_check(r, w->b))
		render_charge_bytes(r, w->b->len - before);
}

void value_write_json(struct render *r, struct buf *b, struct value v,
		      const struct json_style *style)
{
	struct writer w = {.r = r, .b = b, .style = style};

	write_value(&w, v);
}

/* ---- from jansson ---- */

static struct value from_array(struct render *r, const json_t *j)
{
	struct list *l = list_new(r, json_array_size(j));

	for (size_t i = 0; l && i < l->n; i++)
		l->v[i] = value_from_json(r, json_array_get(j, i));
	return value_of_list(V_LIST, l);
}

static struct value from_object(struct render *r, const json_t *j)
{
	json_t *object = (json_t *)j; /* jansson's iterators take no const */
	struct dict *d = dict_new(r, json_object_size(j));

	for (void *at = json_object_iter(object); at && !r->rc;
	     at = json_object_iter_next(object, at))
		dict_set(r, d, value_str(json_object_iter_key(at), json_object_iter_key_len(at)),
			 value_from_json(r, json_object_iter_value(at)));
	return r->rc ? NOTHING : (struct value){.type = V_DICT, .dict = d};
}

struct value value_from_json(struct render *r, const json_t *j)
{
	struct value v = NOTHING;

	switch (json_typeof(j)) {
	case JSON_STRING:
		if (json_string_length(j) > UINT32_MAX)
			return value_fail(r, "a text is too long");
		return value_str(json_string_value(j), json_string_length(j));
	case JSON_INTEGER: return value_int(json_integer_value(j));
	case JSON_REAL: return value_float(json_real_value(j));
	case JSON_TRUE: return value_bool(true);
	case JSON_FALSE: return value_bool(false);
	case JSON_NULL: return value_none();
	default: break;
	}
	if (!render_enter(r))
		return v;
	v = json_is_object(j) ? from_object(r, j) : from_array(r, j);
	r->depth--;
	return v;
}
