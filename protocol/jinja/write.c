#include "protocol/jinja/write.h"

#include <string.h>

#include "protocol/jinja/number.h"
#include "protocol/jinja/text.h"

static void repr_text(struct buf *b, struct value v)
{
	char quote = memchr(v.s, '\'', v.len) && !memchr(v.s, '"', v.len) ? '"' : '\'';
	static const char named[] = "\n\r\t", names[] = "nrt";
	size_t len;
	uint32_t cp;

	buf_puts(b, v.safe ? "Markup(" : "");
	buf_putc(b, quote);
	for (size_t i = 0; i < v.len; i += len) {
		const char *p;

		len = text_next(v.s + i, v.len - i, &cp);
		if (cp == '\\' || cp == (unsigned char)quote)
			buf_printf(b, "\\%c", (char)cp);
		else if (cp && cp < 0x20 && (p = strchr(named, (int)cp)))
			buf_printf(b, "\\%c", names[p - named]);
		else if (text_is(cp, TEXT_PRINTABLE))
			buf_append(b, v.s + i, len);
		else
			buf_printf(b,
				   cp < 0x100	  ? "\\x%02x"
				   : cp < 0x10000 ? "\\u%04x"
						  : "\\U%08x",
				   cp);
	}
	buf_putc(b, quote);
	buf_puts(b, v.safe ? ")" : "");
}

static void repr_items(struct render *r, struct buf *b, struct value v)
{
	static const char *const ends[][2] = {
		[V_LIST] = {"[", "]"},
		[V_TUPLE] = {"(", ")"},
		[V_KEYS] = {"dict_keys([", "])"},
		[V_VALUES] = {"dict_values([", "])"},
		[V_ITEMS] = {"dict_items([", "])"},
	};
	const struct list *l = v.list;

	buf_puts(b, ends[v.type][0]);
	for (size_t i = 0; i < l->n && !r->rc; i++) {
		buf_puts(b, i ? ", " : "");
		value_write_repr(r, b, l->v[i]);
	}
	buf_puts(b, v.type == V_TUPLE && l->n == 1 ? "," : "");
	buf_puts(b, ends[v.type][1]);
}

static void repr_dict(struct render *r, struct buf *b, const struct dict *d)
{
	buf_putc(b, '{');
	for (size_t i = 0; i < d->n && !r->rc; i++) {
		buf_puts(b, i ? ", " : "");
		value_write_repr(r, b, d->entry[i].key);
		buf_puts(b, ": ");
		value_write_repr(r, b, d->entry[i].value);
	}
	buf_putc(b, '}');
}

void value_write_repr(struct render *r, struct buf *b, struct value v)
{
	char number[FLOAT_REPR_MAX];
	size_t before = b->len;

	if (!render_enter(r))
		return;
	switch (v.type) {
	case V_NONE: buf_puts(b, "None"); break;
	case V_BOOL: buf_puts(b, v.b ? "True" : "False"); break;
	case V_INT: buf_printf(b, "%lld", (long long)v.i); break;
	case V_FLOAT:
		float_repr(v.f, number);
		buf_puts(b, number);
		break;
	case V_STR: repr_text(b, v); break;
	case V_LIST:
	case V_TUPLE:
	case V_KEYS:
	case V_VALUES:
	case V_ITEMS: repr_items(r, b, v); break;
	case V_DICT: repr_dict(r, b, v.dict); break;
	case V_NAMESPACE:
		buf_puts(b, "<Namespace ");
		repr_dict(r, b, v.dict);
		buf_putc(b, '>');
		break;
	case V_MISSING:
	case V_UNDEFINED: buf_puts(b, "Undefined"); break;
	default:
		value_fail(r, "the text of a %s is not supported in chat templates",
			   value_type_name(v));
	}
	r->depth--;
	if (render_check(r, b))
		render_charge_bytes(r, b->len - before);
}

void value_write_str(struct render *r, struct buf *b, struct value v)
{
	if (v.type == V_UNDEFINED)
		return;
	if (v.type != V_STR) {
		value_write_repr(r, b, v);
		return;
	}
	buf_append(b, v.s, v.len);
	if (render_check(r, b))
		render_charge_bytes(r, v.len);
}

struct value value_soft_str(struct render *r, struct value v)
{
	size_t start = r->scratch.len;

	if (v.type == V_STR)
		return v;
	value_write_str(r, &r->scratch, v);
	return value_take(r, start);
}

struct value value_to_str(struct render *r, struct value v)
{
	v = value_soft_str(r, v);
	v.safe = false;
	return v;
}

struct value value_escape(struct render *r, struct value v)
{
	static const char *const entities[] = {
		['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&#34;", ['\''] = "&#39;"};
	size_t start = r->scratch.len, plain = 0;
	struct value text = value_soft_str(r, v);

	if (text.safe || text.type != V_STR)
		return text;
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.s[i];

		if (c >= ARRAY_SIZE(entities) || !entities[c])
			continue;
		buf_append(&r->scratch, text.s + plain, i - plain);
		buf_puts(&r->scratch, entities[c]);
		plain = i + 1;
	}
	buf_append(&r->scratch, text.s + plain, text.len - plain);
	text = value_take(r, start);
	text.safe = true;
	return text;
}
