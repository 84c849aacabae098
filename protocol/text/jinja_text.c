/* Texts of values: str(), repr(), json.dumps() as Python writes them, and numbers read back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "protocol/text/jinja_eval.h"
#include "protocol/text/jinja_pystr.h"
#include "protocol/text/jinja_value.h"

/* ---- numbers ---- */

/* The digits of f, `count` of them, rounded: d.ddd * 10^exponent. */
static int64_t decimals(double f, int count, int *ret_exponent)
{
	int64_t digits = 0;
	char text[32], *p;

	snprintf(text, sizeof(text), "%.*e", count - 1, fabs(f));
	for (p = text; *p && *p != 'e'; p++)
		if (*p != '.')
			digits = digits * 10 + (*p - '0');
	*ret_exponent = (int)strtol(*p ? p + 1 : "0", NULL, 10);
	return digits;
}

static bool reads_as(int64_t digits, int exponent, double f)
{
	char text[48];

	snprintf(text, sizeof(text), "%llde%d", (long long)digits, exponent);
	return strtod(text, NULL) == fabs(f);
}

/* The fewest digits that read as f: their number, the value they have, and the exponent. */
static int shortest(double f, int64_t *ret_digits, int *ret_exponent)
{
	int count;

	/* Fifteen digits always survive a round trip, so fewer are those with zeros cut off, and
	 * seventeen always make one; only below the normal range can fewer do. */
	for (count = fabs(f) < 0x1p-1022 ? 1 : 15; count < 17; count++) {
		*ret_digits = decimals(f, count, ret_exponent);
		if (reads_as(*ret_digits, *ret_exponent - count + 1, f))
			break;
		/* Above a power of two the doubles lie further apart than below it: the number
		 * next to the nearest may do where the nearest does not. */
		if (reads_as(*ret_digits + 1, *ret_exponent - count + 1, f)) {
			++*ret_digits;
			break;
		}
	}
	if (count == 17)
		*ret_digits = decimals(f, count, ret_exponent);
	while (count > 1 && *ret_digits % 10 == 0) {
		*ret_digits /= 10;
		count--;
	}
	return count;
}

void float_repr(double f, char out[FLOAT_REPR_MAX])
{
	int exponent = 0, n;
	int64_t value;
	char digits[24];
	char *o = out;

	if (isnan(f) || isinf(f)) {
		snprintf(out, FLOAT_REPR_MAX, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	n = shortest(f, &value, &exponent);
	snprintf(digits, sizeof(digits), "%lld", (long long)value);
	if (digits[n]) { /* 9.9 + 0.1 has a digit more */
		exponent++;
		digits[n] = 0;
	}
	if (signbit(f))
		*o++ = '-';
	if (exponent < -4 || exponent >= 16) {
		snprintf(o, FLOAT_REPR_MAX - 1, "%c%s%.17se%c%02d", digits[0], n > 1 ? "." : "",
			 digits + 1, exponent < 0 ? '-' : '+', abs(exponent) % 1000);
	} else if (exponent < 0) {
		snprintf(o, FLOAT_REPR_MAX - 1, "0.%.*s%.17s", -exponent - 1, "000", digits);
	} else if (n <= exponent + 1) {
		snprintf(o, FLOAT_REPR_MAX - 1, "%.17s%.*s.0", digits, exponent + 1 - n,
			 "0000000000000000");
	} else {
		snprintf(o, FLOAT_REPR_MAX - 1, "%.*s.%.17s", exponent + 1, digits,
			 digits + exponent + 1);
	}
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

static int prefix_base(char c)
{
	switch (c | 0x20) {
	case 'x': return 16;
	case 'o': return 8;
	case 'b': return 2;
	default: return 0;
	}
}

enum parse_int text_to_int(const char *s, size_t n, int64_t base, int64_t *ret)
{
	bool negative = false, digit = false, big = false;
	uint64_t value = 0, limit;
	size_t i = pystr_skip_space(s, n);

	n = MAX(pystr_trim_space(s, n), i);
	if (base != 0 && (base < 2 || base > 36))
		return PARSE_INT_BAD;
	if (i < n && (s[i] == '+' || s[i] == '-'))
		negative = s[i++] == '-';
	if (n - i >= 2 && s[i] == '0' && prefix_base(s[i + 1]) &&
	    (base == 0 || base == prefix_base(s[i + 1]))) {
		base = prefix_base(s[i + 1]);
		i += 2;
		if (i < n && s[i] == '_')
			i++;
	} else if (base == 0) {
		base = 10;
		for (size_t k = i; n - i > 1 && s[i] == '0' && k < n; k++)
			if (s[k] != '0' && s[k] != '_')
				return PARSE_INT_BAD; /* "012" is no Python literal */
	}
	limit = (uint64_t)INT64_MAX + negative;
	for (; i < n; i++) {
		int d;

		if (s[i] == '_' && digit && i + 1 < n) {
			digit = false;
			continue;
		}
		d = digit_value(s[i]);
		if (d >= base)
			return PARSE_INT_BAD;
		digit = true;
		if (value > (limit - (uint64_t)d) / (uint64_t)base)
			big = true;
		else
			value = value * (uint64_t)base + (uint64_t)d;
	}
	if (!digit)
		return PARSE_INT_BAD;
	if (big)
		return PARSE_INT_BIG;
	*ret = negative ? (int64_t)(0 - value) : (int64_t)value;
	return PARSE_INT_OK;
}

bool text_to_float(const char *s, size_t n, double *ret)
{
	char text[512], *end;
	size_t i = pystr_skip_space(s, n), len = 0, word;

	n = MAX(pystr_trim_space(s, n), i);
	if (n == i || n - i >= sizeof(text))
		return false;
	for (; i < n; i++) {
		char c = s[i];

		if (c == '_') { /* between digits only */
			if (!len || digit_value(text[len - 1]) > 9 || i + 1 >= n ||
			    digit_value(s[i + 1]) > 9)
				return false;
			continue;
		}
		text[len++] = c;
	}
	text[len] = 0;
	word = text[0] == '+' || text[0] == '-';
	/* strtod reads hexadecimal and "nan(...)" too, Python does not. */
	if (strspn(text + word, "0123456789.eE+-") != len - word &&
	    strcasecmp(text + word, "inf") && strcasecmp(text + word, "infinity") &&
	    strcasecmp(text + word, "nan"))
		return false;
	*ret = strtod(text, &end);
	return end == text + len;
}

/* ---- repr ---- */

static void repr_text(struct buf *b, const struct value *v)
{
	char quote = memchr(v->s, '\'', v->len) && !memchr(v->s, '"', v->len) ? '"' : '\'';
	size_t len;
	uint32_t cp;

	if (v->safe)
		buf_puts(b, "Markup(");
	buf_putc(b, quote);
	for (size_t i = 0; i < v->len; i += len) {
		len = pystr_next(v->s + i, v->len - i, &cp);
		if (cp == '\\' || cp == (unsigned char)quote)
			buf_printf(b, "\\%c", (char)cp);
		else if (cp == '\n')
			buf_puts(b, "\\n");
		else if (cp == '\r')
			buf_puts(b, "\\r");
		else if (cp == '\t')
			buf_puts(b, "\\t");
		else if (pystr_isprintable(cp))
			buf_append(b, v->s + i, len);
		else if (cp < 0x100)
			buf_printf(b, "\\x%02x", cp);
		else if (cp < 0x10000)
			buf_printf(b, "\\u%04x", cp);
		else
			buf_printf(b, "\\U%08x", cp);
	}
	buf_putc(b, quote);
	if (v->safe)
		buf_putc(b, ')');
}

static int repr_items(struct render *r, struct buf *b, const struct value *v, const char *open,
		      const char *close)
{
	int64_t n = value_len(v);

	buf_puts(b, open);
	for (int64_t i = 0; i < n; i++) {
		struct value item = value_item(v, (size_t)i);
		int rc;

		if (i)
			buf_puts(b, ", ");
		rc = value_write_repr(r, b, &item);
		if (rc < 0)
			return rc;
	}
	buf_puts(b, v->type == V_TUPLE && n == 1 ? ",)" : close);
	return 0;
}

static int repr_dict(struct render *r, struct buf *b, const struct value *v)
{
	struct dict_cursor c = {0};
	struct value key, value;
	bool first = true;
	int rc;

	buf_putc(b, '{');
	while (dict_next(v, &c, &key, &value)) {
		if (!first)
			buf_puts(b, ", ");
		first = false;
		rc = value_write_repr(r, b, &key);
		if (rc < 0)
			return rc;
		buf_puts(b, ": ");
		rc = value_write_repr(r, b, &value);
		if (rc < 0)
			return rc;
	}
	buf_putc(b, '}');
	return 0;
}

static int repr_view(struct render *r, struct buf *b, const struct value *v)
{
	struct value all;
	int rc = value_to_list(r, v, &all);

	buf_printf(b, "%s(", value_type_name(v));
	if (!rc)
		rc = repr_items(r, b, &all, "[", "]");
	buf_putc(b, ')');
	return rc;
}

static int repr_loop(struct render *r, struct buf *b, const struct value *v)
{
	struct value length;
	int rc = loop_attribute(r, v->loop, "length", 6, &length);

	if (rc < 0)
		return rc;
	buf_printf(b, "<LoopContext %lld/%lld>", (long long)v->loop->index0 + 1,
		   (long long)length.i);
	return 0;
}

static int write_repr(struct render *r, struct buf *b, const struct value *v)
{
	char number[FLOAT_REPR_MAX];

	switch (v->type) {
	case V_MISSING:
	case V_UNDEFINED: buf_puts(b, "Undefined"); return 0;
	case V_NONE: buf_puts(b, "None"); return 0;
	case V_BOOL: buf_puts(b, v->b ? "True" : "False"); return 0;
	case V_INT: buf_printf(b, "%lld", (long long)v->i); return 0;
	case V_FLOAT:
		float_repr(v->f, number);
		buf_puts(b, number);
		return 0;
	case V_STR: repr_text(b, v); return 0;
	case V_LIST: return repr_items(r, b, v, "[", "]");
	case V_TUPLE: return repr_items(r, b, v, "(", ")");
	case V_DICT: return repr_dict(r, b, v);
	case V_RANGE:
		buf_printf(b, "range(%lld, %lld", (long long)v->range->start,
			   (long long)v->range->stop);
		if (v->range->step != 1)
			buf_printf(b, ", %lld", (long long)v->range->step);
		buf_putc(b, ')');
		return 0;
	case V_VIEW: return repr_view(r, b, v);
	case V_NAMESPACE: {
		struct value dict = *v;
		int rc;

		dict.type = V_DICT;
		buf_puts(b, "<Namespace ");
		rc = repr_dict(r, b, &dict);
		buf_putc(b, '>');
		return rc;
	}
	case V_LOOP: return repr_loop(r, b, v);
	case V_FUNCTION: buf_printf(b, "<function %s>", v->function->name); return 0;
	case V_METHOD: buf_printf(b, "<method %s>", v->method->builtin->name); return 0;
	default: buf_printf(b, "<%s object>", value_type_name(v)); return 0;
	}
}

int value_write_repr(struct render *r, struct buf *b, const struct value *v)
{
	size_t before = b->len;
	int rc = render_enter(r);

	if (rc < 0)
		return rc;
	rc = write_repr(r, b, v);
	render_leave(r);
	if (rc < 0)
		return rc;
	if (b->failed)
		return render_fail(r, E2BIG, "the template builds too long a text");
	return render_charge_bytes(r, b->len - before);
}

int value_write_str(struct render *r, struct buf *b, const struct value *v)
{
	if (v->type == V_UNDEFINED)
		return 0;
	if (v->type != V_STR)
		return value_write_repr(r, b, v);
	buf_append(b, v->s, v->len);
	if (b->failed)
		return render_fail(r, E2BIG, "the template builds too long a text");
	return render_charge_bytes(r, v->len);
}

int value_to_str(struct render *r, const struct value *v, struct value *ret)
{
	size_t start;
	int rc;

	if (v->type == V_STR) {
		*ret = value_str(v->s, v->len);
		return 0;
	}
	start = text_begin(r);
	rc = value_write_str(r, &r->scratch, v);
	return rc < 0 ? rc : text_end(r, start, ret);
}

/* ---- JSON ---- */

struct json_writer {
	struct render *r;
	struct buf *b;
	const struct json_style *style;
	size_t level;
};

static void json_escape(struct buf *b, uint32_t cp)
{
	switch (cp) {
	case '"': buf_puts(b, "\\\""); break;
	case '\\': buf_puts(b, "\\\\"); break;
	case '\n': buf_puts(b, "\\n"); break;
	case '\r': buf_puts(b, "\\r"); break;
	case '\t': buf_puts(b, "\\t"); break;
	case '\f': buf_puts(b, "\\f"); break;
	case '\b': buf_puts(b, "\\b"); break;
	default:
		if (cp >= 0x10000)
			buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
				   0xdc00 + ((cp - 0x10000) & 0x3ff));
		else
			buf_printf(b, "\\u%04x", cp);
	}
}

static void json_text(struct buf *b, const char *s, size_t n, bool ensure_ascii)
{
	size_t plain = 0, len;
	uint32_t cp;

	buf_putc(b, '"');
	for (size_t i = 0; i < n; i += len) {
		cp = (unsigned char)s[i];
		len = 1;
		if (ensure_ascii && cp >= 0x80)
			len = pystr_next(s + i, n - i, &cp);
		if (cp >= 0x20 && cp != '"' && cp != '\\' && !(ensure_ascii && cp >= 0x7f))
			continue;
		buf_append(b, s + plain, i - plain);
		json_escape(b, cp);
		plain = i + len;
	}
	buf_append(b, s + plain, n - plain);
	buf_putc(b, '"');
}

static void json_float(struct buf *b, double f)
{
	char number[FLOAT_REPR_MAX];

	if (isnan(f) || isinf(f)) {
		buf_puts(b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
		return;
	}
	float_repr(f, number);
	buf_puts(b, number);
}

static void json_new_line(struct json_writer *w)
{
	if (!w->style->pretty)
		return;
	buf_putc(w->b, '\n');
	for (size_t i = 0; i < w->level && !w->b->failed; i++)
		buf_append(w->b, w->style->indent.s, w->style->indent.len);
}

static int json_write(struct json_writer *w, const struct value *v);

static int json_items(struct json_writer *w, const struct value *v)
{
	int64_t n = value_len(v);
	int rc;

	if (!n) {
		buf_puts(w->b, "[]");
		return 0;
	}
	buf_putc(w->b, '[');
	w->level++;
	for (int64_t i = 0; i < n; i++) {
		struct value item = value_item(v, (size_t)i);

		if (i)
			buf_append(w->b, w->style->item.s, w->style->item.len);
		json_new_line(w);
		rc = json_write(w, &item);
		if (rc < 0)
			return rc;
	}
	w->level--;
	json_new_line(w);
	buf_putc(w->b, ']');
	return 0;
}

static int json_key(struct json_writer *w, const struct value *key)
{
	struct buf *b = w->b;

	switch (key->type) {
	case V_STR: json_text(b, key->s, key->len, w->style->ensure_ascii); return 0;
	case V_BOOL: buf_puts(b, key->b ? "\"true\"" : "\"false\""); return 0;
	case V_NONE: buf_puts(b, "\"null\""); return 0;
	case V_INT: buf_printf(b, "\"%lld\"", (long long)key->i); return 0;
	case V_FLOAT:
		buf_putc(b, '"');
		json_float(b, key->f);
		buf_putc(b, '"');
		return 0;
	default:
		return render_fail(w->r, EINVAL,
				   "tojson: keys must be str, int, float, bool or None, not %s",
				   value_type_name(key));
	}
}

static int json_member(struct json_writer *w, const struct value *key, const struct value *value,
		       bool first)
{
	int rc;

	if (!first)
		buf_append(w->b, w->style->item.s, w->style->item.len);
	json_new_line(w);
	rc = json_key(w, key);
	if (rc < 0)
		return rc;
	buf_append(w->b, w->style->key.s, w->style->key.len);
	return json_write(w, value);
}

static int json_sorted(struct json_writer *w, const struct value *v)
{
	size_t n = (size_t)value_len(v), i = 0, *order;
	struct value *keys = render_alloc(w->r, n, sizeof(*keys));
	struct value *values = render_alloc(w->r, n, sizeof(*values));
	struct dict_cursor c = {0};
	int rc;

	if (!keys || !values)
		return -w->r->err->code;
	for (i = 0; i < n && dict_next(v, &c, &keys[i], &values[i]); i++)
		;
	rc = value_sort(w->r, keys, n, false, &order);
	for (i = 0; i < n && !rc; i++)
		rc = json_member(w, &keys[order[i]], &values[order[i]], i == 0);
	return rc;
}

static int json_dict(struct json_writer *w, const struct value *v)
{
	struct dict_cursor c = {0};
	struct value key, value;
	bool first = true;
	int rc = 0;

	if (!value_len(v)) {
		buf_puts(w->b, "{}");
		return 0;
	}
	buf_putc(w->b, '{');
	w->level++;
	if (w->style->sort_keys)
		rc = json_sorted(w, v);
	else
		for (; !rc && dict_next(v, &c, &key, &value); first = false)
			rc = json_member(w, &key, &value, first);
	if (rc < 0)
		return rc;
	w->level--;
	json_new_line(w);
	buf_putc(w->b, '}');
	return 0;
}

static int json_write(struct json_writer *w, const struct value *v)
{
	struct render *r = w->r;
	struct buf *b = w->b;
	size_t before = b->len;
	int rc = render_enter(r);

	if (rc < 0)
		return rc;
	switch (v->type) {
	case V_NONE: buf_puts(b, "null"); break;
	case V_BOOL: buf_puts(b, v->b ? "true" : "false"); break;
	case V_INT: buf_printf(b, "%lld", (long long)v->i); break;
	case V_FLOAT: json_float(b, v->f); break;
	case V_STR: json_text(b, v->s, v->len, w->style->ensure_ascii); break;
	case V_LIST:
	case V_TUPLE: rc = json_items(w, v); break;
	case V_DICT: rc = json_dict(w, v); break;
	default:
		rc = render_fail(r, EINVAL, "tojson: object of type %s is not JSON serializable",
				 value_type_name(v));
	}
	render_leave(r);
	if (rc < 0)
		return rc;
	if (b->failed)
		return render_fail(r, E2BIG, "the template builds too long a text");
	return render_charge_bytes(r, b->len - before);
}

int value_write_json(struct render *r, struct buf *b, const struct value *v,
		     const struct json_style *style)
{
	struct json_writer w = {.r = r, .b = b, .style = style};

	return json_write(&w, v);
}
