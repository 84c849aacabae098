/* Filters on texts, numbers and single values. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/text/jinja_methods.h"
#include "protocol/text/jinja_pystr.h"

#define FILTER(name)                                                                         \
	static int name(struct render *r, const struct value *self, const struct value *arg, \
			struct value *ret)

/* The text of any value; Markup stays Markup. */
static int soft_str(struct render *r, const struct value *v, struct value *ret)
{
	if (v->type == V_STR) {
		*ret = *v;
		return 0;
	}
	return value_to_str(r, v, ret);
}

static int recase(struct render *r, const struct value *self, enum pystr_case to, struct value *ret)
{
	size_t start = text_begin(r);
	struct value text;
	int rc = soft_str(r, self, &text);

	if (rc < 0)
		return rc;
	pystr_recase(&r->scratch, text.s, text.len, to);
	rc = text_end(r, start, ret);
	ret->safe = text.safe;
	return rc;
}

FILTER(filter_upper)
{
	return recase(r, self, PYSTR_UPPER, ret);
}

FILTER(filter_lower)
{
	return recase(r, self, PYSTR_LOWER, ret);
}

FILTER(filter_capitalize)
{
	return recase(r, self, PYSTR_CAPITALIZE, ret);
}

/* Words begin behind white space, a hyphen or an opening bracket, unlike in str.title(). */
FILTER(filter_title)
{
	size_t start = text_begin(r), len, from = 0;
	struct value text;
	bool separator = false;
	uint32_t cp;
	int rc = soft_str(r, self, &text);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i <= text.len; i += len) {
		bool now = false, end = i == text.len;

		len = pystr_next(text.s + i, text.len - i, &cp);
		if (!end)
			now = cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' ||
			      pystr_isspace(cp);
		if (i > from && (end || now != separator)) {
			size_t first = pystr_next(text.s + from, i - from, &cp);

			pystr_recase(&r->scratch, text.s + from, first, PYSTR_UPPER);
			pystr_recase(&r->scratch, text.s + from + first, i - from - first,
				     PYSTR_LOWER);
			from = i;
		}
		separator = now;
		if (end)
			break;
	}
	return text_end(r, start, ret);
}

FILTER(filter_trim)
{
	struct value text;
	int rc = soft_str(r, self, &text);

	return rc < 0 ? rc : text_strip(r, &text, &arg[0], STRIP_BOTH, ret);
}

FILTER(filter_string)
{
	return soft_str(r, self, ret);
}

FILTER(filter_safe)
{
	int rc = value_to_str(r, self, ret);

	ret->safe = true;
	return rc;
}

FILTER(filter_escape)
{
	return value_escape(r, self, ret);
}

FILTER(filter_forceescape)
{
	int rc = value_to_str(r, self, ret);

	return rc < 0 ? rc : value_escape(r, ret, ret);
}

FILTER(filter_replace)
{
	struct value text, old, new;
	int64_t count = -1;
	int rc = value_to_str(r, self, &text);

	if (!rc)
		rc = value_to_str(r, &arg[0], &old);
	if (!rc)
		rc = value_to_str(r, &arg[1], &new);
	if (!rc && arg[2].type != V_MISSING && arg[2].type != V_NONE)
		rc = arg_int(r, "replace", &arg[2], &count);
	return rc < 0 ? rc : text_replace(r, &text, &old, &new, count, ret);
}

FILTER(filter_center)
{
	struct value text;
	int64_t width = 80;
	int rc = soft_str(r, self, &text);

	if (!rc && arg[0].type != V_MISSING)
		rc = arg_int(r, "center", &arg[0], &width);
	return rc < 0 ? rc : text_center(r, &text, width, " ", 1, ret);
}

/* The text that lines are indented with: given, or so many spaces. */
static int indent_text(struct render *r, const struct value *width, struct value *ret)
{
	int64_t n = 4;
	struct value space = value_str(" ", 1), count;
	int rc = 0;

	if (width->type == V_STR) {
		*ret = *width;
		return 0;
	}
	if (width->type != V_MISSING)
		rc = arg_int(r, "indent", width, &n);
	count = value_int(n);
	return rc < 0 ? rc : value_binary(r, OP_MUL, &space, &count, ret);
}

FILTER(filter_indent)
{
	bool first = value_truth(&arg[1]), blank = value_truth(&arg[2]);
	size_t start = text_begin(r), at = 0, line, end = 0;
	struct value indent;
	int rc = arg_str(r, "indent", self);

	if (!rc)
		rc = indent_text(r, &arg[0], &indent);
	if (!rc && self->safe)
		indent.safe = true;
	if (rc < 0)
		return rc;
	/* As if a newline stood at the end: a text that ends with one has an empty line more. */
	for (bool begin = true; at < self->len || begin || end; begin = false) {
		line = pystr_line(self->s + at, self->len - at, &end);
		if (!begin)
			buf_putc(&r->scratch, '\n');
		if (begin ? first : blank || line)
			buf_append(&r->scratch, indent.s, indent.len);
		buf_append(&r->scratch, self->s + at, line);
		at += line + end;
		if (r->scratch.failed || (at == self->len && at && self->s[at - 1] == '\r'))
			break;
	}
	rc = text_end(r, start, ret);
	ret->safe = self->safe;
	return rc;
}

FILTER(filter_truncate)
{
	struct value end = value_str("...", 3), head = *self;
	int64_t length = 255, leeway = 5, keep, len = value_len(self);
	size_t cut;
	int rc = 0;

	if (arg[0].type != V_MISSING)
		rc = arg_int(r, "truncate", &arg[0], &length);
	if (!rc && arg[2].type != V_MISSING) {
		end = arg[2];
		rc = arg_str(r, "truncate", &end);
	}
	if (!rc && arg[3].type != V_MISSING && arg[3].type != V_NONE)
		rc = arg_int(r, "truncate", &arg[3], &leeway);
	if (rc < 0)
		return rc;
	keep = length - (int64_t)pystr_length(end.s, end.len);
	if (length < 0 || keep < 0 || leeway < 0)
		return render_fail(r, EINVAL, "truncate: the length is too small");
	*ret = *self;
	if (len >= 0 && (len <= length || len - length <= leeway))
		return 0; /* short enough, whatever it is */
	rc = arg_str(r, "truncate", self);
	if (rc < 0)
		return rc;
	head.len = pystr_offset(self->s, self->len, (size_t)keep);
	if (!value_truth(&arg[1])) {
		cut = pystr_rfind(head.s, head.len, " ", 1);
		head.len = cut == SIZE_MAX ? head.len : cut;
	}
	return value_binary(r, OP_ADD, &head, &end, ret);
}

FILTER(filter_wordcount)
{
	struct value text;
	bool in_word = false;
	int64_t n = 0;
	uint32_t cp;
	int rc = soft_str(r, self, &text);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < text.len;) {
		bool word;

		i += pystr_next(text.s + i, text.len - i, &cp);
		word = cp == '_' || pystr_isalnum(cp);
		n += word && !in_word;
		in_word = word;
	}
	*ret = value_int(n);
	return render_charge_bytes(r, text.len);
}

static int filter_format(struct render *r, const struct value *self, const struct args *args,
			 struct value *ret)
{
	struct value text, values;
	int rc = soft_str(r, self, &text);

	if (!rc && args->n && args->nkw)
		rc = render_fail(r, EINVAL, "format takes positional or keyword arguments");
	if (!rc)
		rc = args->nkw ? value_new_dict(r, V_DICT, &values)
			       : value_new_list(r, V_TUPLE, args->n, &values);
	if (!rc && args->n)
		memcpy(values.list->v, args->v, args->n * sizeof(*args->v));
	for (size_t i = 0; i < args->nkw && !rc; i++) {
		struct value key = value_str(args->kw[i].name, args->kw[i].len);

		rc = dict_set(r, values.dict, &key, &args->kw[i].value);
	}
	return rc < 0 ? rc : value_format_percent(r, &text, &values, ret);
}

/* Each byte that may not stand in a URL as %XX. */
FILTER(filter_urlencode)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				    "_.-~/";
	size_t start = text_begin(r);
	struct value text;
	int rc;

	if (self->type != V_STR && value_len(self) >= 0)
		return render_fail(r, EINVAL, "urlencode of a '%s' is not supported",
				   value_type_name(self));
	rc = value_to_str(r, self, &text);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < text.len; i++) {
		if (text.s[i] && strchr(plain, text.s[i]))
			buf_putc(&r->scratch, text.s[i]);
		else
			buf_printf(&r->scratch, "%%%02X", (unsigned char)text.s[i]);
	}
	return text_end(r, start, ret);
}

/* ---- numbers ---- */

FILTER(filter_abs)
{
	if (self->type == V_FLOAT) {
		*ret = value_float(fabs(self->f));
		return 0;
	}
	if (!value_is_number(self))
		return render_fail(r, EINVAL, "bad operand type for abs(): '%s'",
				   value_type_name(self));
	return value_negate(r, self, value_number(self) < 0, ret);
}

/* int(f): false when there is no such integer; an overflow is an error. */
static int int_of_float(struct render *r, double f, bool *ret_ok, struct value *ret)
{
	*ret_ok = !isnan(f) && !isinf(f);
	if (!*ret_ok)
		return 0;
	if (!(f > -0x1p63 && f < 0x1p63))
		return render_fail(r, EINVAL, "integer overflow (64 bits)");
	*ret = value_int((int64_t)f);
	return 0;
}

FILTER(filter_int)
{
	struct value other = arg[0].type == V_MISSING ? value_int(0) : arg[0];
	int64_t base = 10, i;
	bool ok = false;
	double f;
	int rc = 0;

	if (self->type == V_UNDEFINED)
		return value_fail_undefined(r, self);
	if (value_index(self, &i)) {
		*ret = value_int(i);
		return 0;
	}
	if (self->type == V_FLOAT) {
		rc = int_of_float(r, self->f, &ok, ret);
		if (isinf(self->f))
			return render_fail(r, EINVAL, "cannot convert float infinity to integer");
	} else if (self->type == V_STR) {
		if (arg[1].type != V_MISSING && !value_index(&arg[1], &base))
			base = 1; /* no base at all: Python's TypeError ends the same way */
		switch (text_to_int(self->s, self->len, base, &i)) {
		case PARSE_INT_OK: *ret = value_int(i); return 0;
		case PARSE_INT_BIG: return render_fail(r, EINVAL, "integer overflow (64 bits)");
		case PARSE_INT_BAD: break;
		}
		if (text_to_float(self->s, self->len, &f))
			rc = int_of_float(r, f, &ok, ret);
	}
	if (!rc && !ok)
		*ret = other;
	return rc;
}

FILTER(filter_float)
{
	double f;

	if (self->type == V_UNDEFINED)
		return value_fail_undefined(r, self);
	if (value_is_number(self))
		*ret = value_float(value_number(self));
	else if (self->type == V_STR && text_to_float(self->s, self->len, &f))
		*ret = value_float(f);
	else
		*ret = arg[0].type == V_MISSING ? value_float(0) : arg[0];
	return 0;
}

/* round(int, digits): to a multiple of a power of ten, halves to the even one. */
static int round_int(int64_t i, int64_t digits, struct value *ret)
{
	int64_t unit = 1, rest, down;

	if (digits >= 0) {
		*ret = value_int(i);
		return 0;
	}
	for (; digits && unit <= INT64_MAX / 10; digits++)
		unit *= 10;
	if (digits) {
		*ret = value_int(0);
		return 0;
	}
	rest = i % unit;
	if (rest < 0)
		rest += unit;
	if (__builtin_sub_overflow(i, rest, &down))
		return -EOVERFLOW;
	if (rest > unit / 2 || (rest == unit / 2 && (down / unit) % 2))
		if (__builtin_add_overflow(down, unit, &down))
			return -EOVERFLOW;
	*ret = value_int(down);
	return 0;
}

/* round(float, digits), exactly: through the decimal digits. */
static double round_float(double f, int64_t digits)
{
	char text[768];
	double unit;

	if (!isfinite(f) || digits > 323)
		return f;
	if (digits < -308)
		return copysign(0, f);
	if (digits >= 0) {
		snprintf(text, sizeof(text), "%.*f", (int)digits, f);
		return strtod(text, NULL);
	}
	unit = pow(10, (double)-digits);
	return nearbyint(f / unit) * unit;
}

static int round_common(struct render *r, const struct value *self, int64_t digits,
			struct value *ret)
{
	int64_t i;

	if (self->type == V_FLOAT) {
		*ret = value_float(round_float(self->f, digits));
		return 0;
	}
	value_index(self, &i);
	if (round_int(i, digits, ret) < 0)
		return render_fail(r, EINVAL, "integer overflow (64 bits)");
	return 0;
}

FILTER(filter_round)
{
	struct value method = arg[1], ten = value_int(10), scale, scaled, whole;
	int64_t digits = 0;
	bool ok, up;
	int rc = 0;

	if (method.type == V_MISSING)
		method = value_cstr("common");
	if (arg[0].type != V_MISSING)
		rc = arg_int(r, "round", &arg[0], &digits);
	if (!rc)
		rc = arg_str(r, "round", &method);
	if (rc < 0)
		return rc;
	if (!value_is_number(self))
		return render_fail(r, EINVAL, "round: '%s' is not a number", value_type_name(self));
	if (method.len == 6 && !memcmp(method.s, "common", 6))
		return round_common(r, self, digits, ret);
	up = method.len == 4 && !memcmp(method.s, "ceil", 4);
	if (!up && !(method.len == 5 && !memcmp(method.s, "floor", 5)))
		return render_fail(r, EINVAL, "round: method must be common, ceil or floor");
	whole = value_int(digits);
	rc = value_binary(r, OP_POW, &ten, &whole, &scale);
	if (!rc)
		rc = value_binary(r, OP_MUL, self, &scale, &scaled);
	if (rc < 0)
		return rc;
	if (scaled.type == V_FLOAT) {
		rc = int_of_float(r, up ? ceil(scaled.f) : floor(scaled.f), &ok, &whole);
		if (!rc && !ok)
			rc = render_fail(r, EINVAL, "round: the number is not finite");
	} else {
		whole = scaled;
	}
	return rc < 0 ? rc : value_binary(r, OP_DIV, &whole, &scale, ret);
}

/* ---- any value ---- */

FILTER(filter_default)
{
	bool missing = self->type == V_UNDEFINED || (value_truth(&arg[1]) && !value_truth(self));

	*ret = *self;
	if (missing)
		*ret = arg[0].type == V_MISSING ? value_cstr("") : arg[0];
	return 0;
}

FILTER(filter_attr)
{
	int rc = arg_str(r, "attr", &arg[0]);

	if (!rc)
		rc = value_attribute(r, self, arg[0].s, arg[0].len, ret);
	if (rc)
		return rc < 0 ? rc : 0;
	return value_undefined_member(r, self, &arg[0], ret);
}

/* The text each level of a pretty printed JSON begins with. */
static int json_indent(struct render *r, const struct value *v, struct value *ret)
{
	struct value space = value_str(" ", 1);
	int64_t n;

	if (v->type == V_STR) {
		*ret = *v;
		return 0;
	}
	if (!value_index(v, &n))
		return render_fail(r, EINVAL, "tojson: indent must be a number or a string");
	return value_binary(r, OP_MUL, &space, v, ret);
}

static int json_separators(struct render *r, const struct value *v, struct json_style *style)
{
	if ((v->type != V_LIST && v->type != V_TUPLE) || value_len(v) != 2)
		return render_fail(r, EINVAL, "tojson: separators must be two strings");
	style->item = value_item(v, 0);
	style->key = value_item(v, 1);
	if (style->item.type != V_STR || style->key.type != V_STR)
		return render_fail(r, EINVAL, "tojson: separators must be two strings");
	return 0;
}

FILTER(filter_tojson)
{
	struct json_style style = {
		.ensure_ascii = value_truth(&arg[0]),
		.sort_keys = value_truth(&arg[3]),
		.item = value_cstr(", "),
		.key = value_cstr(": "),
	};
	size_t start = text_begin(r);
	int rc = 0;

	if (arg[1].type != V_MISSING && arg[1].type != V_NONE) {
		style.pretty = true;
		style.item = value_cstr(",");
		rc = json_indent(r, &arg[1], &style.indent);
	}
	if (!rc && arg[2].type != V_MISSING && arg[2].type != V_NONE)
		rc = json_separators(r, &arg[2], &style);
	if (!rc)
		rc = value_write_json(r, &r->scratch, self, &style);
	return rc < 0 ? rc : text_end(r, start, ret);
}

const struct builtin text_filters[] = {
	{"trim", filter_trim, .params = {"chars"}},
	{"tojson", filter_tojson, NULL, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
	{"default", filter_default, NULL, 0, {"default_value", "boolean"}},
	{"d", filter_default, NULL, 0, {"default_value", "boolean"}},
	{"string", filter_string},
	{"safe", filter_safe},
	{"upper", filter_upper},
	{"lower", filter_lower},
	{"capitalize", filter_capitalize},
	{"title", filter_title},
	{"replace", filter_replace, NULL, 2, {"old", "new", "count"}},
	{"indent", filter_indent, NULL, 0, {"width", "first", "blank"}},
	{"int", filter_int, NULL, 0, {"default", "base"}},
	{"float", filter_float, NULL, 0, {"default"}},
	{"abs", filter_abs},
	{"round", filter_round, NULL, 0, {"precision", "method"}},
	{"format", .raw = filter_format},
	{"escape", filter_escape},
	{"e", filter_escape},
	{"forceescape", filter_forceescape},
	{"center", filter_center, NULL, 0, {"width"}},
	{"truncate", filter_truncate, NULL, 0, {"length", "killwords", "end", "leeway"}},
	{"wordcount", filter_wordcount},
	{"urlencode", filter_urlencode},
	{"attr", filter_attr, NULL, 1, {"name"}},
};
const size_t text_filters_count = ARRAY_SIZE(text_filters);
