/*
 * "%s and %d" % (a, b), and "{} and {name}".format(...): both come down to a number or a text put
 * into a field of some width.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/text/jinja_builtin.h"
#include "protocol/text/jinja_pystr.h"

enum { FORMAT_DIGITS = 1000 }; /* more than any double has */

/* One field of either language. */
struct field {
	struct value fill; /* one character */
	char align;	   /* '<', '>', '^', or '=': between sign and digits; 0 when not said */
	char sign;	   /* '-', '+' or ' ' */
	bool alternate;	   /* '#' */
	char group;	   /* ',' or '_' between thousands, or 0 */
	int64_t width, precision; /* -1: not given */
	char type;		  /* 0 when not given */
};

/* A text ready to be put into a field: the padding may go between sign and digits. */
struct body {
	const char *sign, *prefix;
	struct value digits;
};

static int put_field(struct render *r, const struct field *f, const struct body *b, char align)
{
	struct buf *out = &r->scratch;
	int64_t len = (int64_t)(strlen(b->sign) + strlen(b->prefix) +
				pystr_length(b->digits.s, b->digits.len));
	int64_t space = f->width > len ? f->width - len : 0, left;
	int rc = render_charge(r, (size_t)space);

	if (rc < 0)
		return rc;
	left = align == '>' ? space : align == '^' ? space / 2 : 0;
	for (int64_t i = 0; i < left && !out->failed; i++)
		buf_append(out, f->fill.s, f->fill.len);
	buf_puts(out, b->sign);
	buf_puts(out, b->prefix);
	for (int64_t i = 0; align == '=' && i < space && !out->failed; i++)
		buf_append(out, f->fill.s, f->fill.len);
	buf_append(out, b->digits.s, b->digits.len);
	for (int64_t i = left; align != '=' && i < space && !out->failed; i++)
		buf_append(out, f->fill.s, f->fill.len);
	return 0;
}

static int put_text(struct render *r, const struct field *f, const struct value *text)
{
	struct body b = {"", "", *text};

	if (f->precision >= 0)
		b.digits.len = pystr_offset(text->s, text->len, (size_t)f->precision);
	return put_field(r, f, &b, f->align ? f->align : '<');
}

static const char *sign_text(const struct field *f, bool negative)
{
	return negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

/* Copies digits with a separator between groups from the point leftwards. */
static int group_digits(struct render *r, const struct field *f, struct value *digits)
{
	size_t start = text_begin(r), whole = 0;
	size_t every = f->type == 'x' || f->type == 'X' || f->type == 'o' || f->type == 'b' ? 4 : 3;

	while (whole < digits->len && digits->s[whole] >= '0' &&
	       (digits->s[whole] <= '9' || every == 4))
		whole++;
	for (size_t i = 0; i < whole; i++) {
		if (i && (whole - i) % every == 0)
			buf_putc(&r->scratch, f->group);
		buf_putc(&r->scratch, digits->s[i]);
	}
	buf_append(&r->scratch, digits->s + whole, digits->len - whole);
	return text_end(r, start, digits);
}

static int put_number(struct render *r, const struct field *f, struct body *b)
{
	int rc = f->group ? group_digits(r, f, &b->digits) : 0;

	return rc < 0 ? rc : put_field(r, f, b, f->align ? f->align : '>');
}

/* Digits of an integer in base 2, 8, 10 or 16. */
static int put_int(struct render *r, const struct field *f, int64_t i)
{
	uint64_t left = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
	const char *set = f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
	unsigned base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : 10;
	char digits[FORMAT_DIGITS + 72];
	size_t at = sizeof(digits);
	struct body b = {sign_text(f, i < 0), "", {0}};

	if (f->type == 'x' || f->type == 'X')
		base = 16;
	do {
		digits[--at] = set[left % base];
		left /= base;
	} while (left);
	while (f->precision > (int64_t)(sizeof(digits) - at))
		digits[--at] = '0';
	if (f->alternate && base != 10)
		b.prefix = base == 2 ? "0b" : base == 8 ? "0o" : f->type == 'X' ? "0X" : "0x";
	b.digits = value_str(digits + at, sizeof(digits) - at);
	return put_number(r, f, &b);
}

/* No type at all, but a precision: like 'g', except that a whole number keeps a ".0", or gets an
 * exponent where that has no room. */
static int print_plain(char *out, size_t size, int precision, double d)
{
	int count = precision ? precision : 1, exponent, n;
	char *e;

	n = snprintf(out, size, "%.*e", count - 1, d);
	e = strchr(out, 'e');
	exponent = (int)strtol(e + 1, NULL, 10);
	if (exponent == count - 1) {
		char *end = e;

		while (end > out + 1 && (end[-1] == '0' || end[-1] == '.'))
			if (*--end == '.')
				break;
		memmove(end, e, strlen(e) + 1);
		return n - (int)(e - end);
	}
	n = snprintf(out, size, "%.*g", count, d);
	if (!strpbrk(out, ".e"))
		n += snprintf(out + n, size - (size_t)n, ".0");
	return n;
}

static int print_float(char *out, size_t size, char type, bool alternate, int precision, double d)
{
	switch (type | 0x20) {
	case 'e':
		return alternate ? snprintf(out, size, "%#.*e", precision, d)
				 : snprintf(out, size, "%.*e", precision, d);
	case 'f':
		return alternate ? snprintf(out, size, "%#.*f", precision, d)
				 : snprintf(out, size, "%.*f", precision, d);
	case 'g':
		return alternate ? snprintf(out, size, "%#.*g", precision, d)
				 : snprintf(out, size, "%.*g", precision, d);
	default: return print_plain(out, size, precision, d);
	}
}

static int put_float(struct render *r, const struct field *f, double d)
{
	char digits[FORMAT_DIGITS + 400];
	struct body b = {sign_text(f, signbit(d) && !isnan(d)), "", {0}};
	int n;

	d = fabs(d);
	if (f->type == '%')
		d *= 100;
	if (!isfinite(d)) {
		n = snprintf(digits, sizeof(digits), "%s", isnan(d) ? "nan" : "inf");
	} else if (!f->type && f->precision < 0) {
		float_repr(d, digits);
		n = (int)strlen(digits);
	} else {
		n = print_float(digits, sizeof(digits), f->type == '%' ? 'f' : f->type,
				f->alternate, (int)(f->precision < 0 ? 6 : f->precision), d);
	}
	for (int i = 0; i < n && f->type >= 'E' && f->type <= 'G'; i++)
		if (digits[i] >= 'a')
			digits[i] -= 0x20;
	if (f->type == '%')
		digits[n++] = '%';
	b.digits = value_str(digits, (size_t)n);
	return put_number(r, f, &b);
}

static int check_precision(struct render *r, const struct field *f)
{
	if (f->precision > FORMAT_DIGITS)
		return render_fail(r, E2BIG, "format: the precision is too large");
	return 0;
}

static int put_char(struct render *r, const struct field *f, int64_t cp)
{
	char bytes[4];
	struct value text;

	if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		return render_fail(r, EINVAL, "format: %%c needs a Unicode character");
	text = value_str(bytes, utf8_encode((uint32_t)cp, bytes));
	return put_field(r, f, &(struct body){"", "", text}, f->align ? f->align : '<');
}

/* ---- "..." % args ---- */

struct percent {
	struct render *r;
	const struct value *format;
	size_t at;
	struct value args; /* what is formatted, or the tuple of it */
	size_t used;
	bool tuple, mapping;
};

static int next_arg(struct percent *p, struct value *ret)
{
	if (p->used >= (p->tuple ? p->args.list->n : 1))
		return render_fail(p->r, EINVAL, "not enough arguments for format string");
	*ret = p->tuple ? p->args.list->v[p->used] : p->args;
	p->used++;
	return 0;
}

static char peek(const struct percent *p)
{
	return p->at < p->format->len ? p->format->s[p->at] : 0;
}

/* "%(name)": from here on the value of that name is formatted. */
static int percent_key(struct percent *p, const struct value *mapping)
{
	size_t from = ++p->at, depth = 1;
	struct value key;
	int rc;

	for (; depth && p->at < p->format->len; p->at++)
		depth += (peek(p) == '(') - (peek(p) == ')');
	if (depth)
		return render_fail(p->r, EINVAL, "incomplete format key");
	if (mapping->type != V_DICT)
		return render_fail(p->r, EINVAL, "format requires a mapping");
	key = value_str(p->format->s + from, p->at - 1 - from);
	rc = dict_find(p->r, mapping, &key, &p->args);
	if (!rc)
		return render_fail(p->r, EINVAL, "format: no such key '%.*s'",
				   (int)MIN(key.len, (size_t)64), key.s);
	p->tuple = false;
	p->used = 0;
	return rc < 0 ? rc : 0;
}

/* A number, or "*": the next argument. */
static int percent_number(struct percent *p, int64_t *ret)
{
	struct value v;
	int rc;

	if (peek(p) == '*') {
		p->at++;
		rc = next_arg(p, &v);
		return rc < 0 ? rc : arg_int(p->r, "format: * ", &v, ret);
	}
	for (*ret = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
		*ret = *ret * 10 + (peek(p) - '0');
		if (*ret > INT32_MAX)
			return render_fail(p->r, E2BIG, "format: the width is too large");
	}
	return 0;
}

static int percent_spec(struct percent *p, struct field *f)
{
	bool zero = false;
	int rc;

	*f = (struct field){.fill = value_str(" ", 1), .align = '>', .sign = '-', .precision = -1};
	for (;; p->at++) {
		char c = peek(p);

		if (c == '-')
			f->align = '<';
		else if (c == '+')
			f->sign = '+';
		else if (c == ' ')
			f->sign = f->sign == '+' ? '+' : ' ';
		else if (c == '#')
			f->alternate = true;
		else if (c == '0')
			zero = true;
		else
			break;
	}
	rc = percent_number(p, &f->width);
	if (rc < 0)
		return rc;
	if (f->width < 0) {
		f->align = '<';
		f->width = f->width < -INT32_MAX ? INT32_MAX : -f->width;
	}
	if (peek(p) == '.') {
		p->at++;
		rc = percent_number(p, &f->precision);
		if (rc < 0)
			return rc;
		f->precision = MAX(f->precision, (int64_t)0);
	}
	if (peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L')
		p->at++;
	if (p->at >= p->format->len)
		return render_fail(p->r, EINVAL, "incomplete format");
	f->type = p->format->s[p->at++];
	if (zero && strchr("diuxXoeEfFgG", f->type)) {
		f->fill = value_str("0", 1);
		if (f->align == '>')
			f->align = '=';
		else
			f->fill = value_str(" ", 1);
	}
	return 0;
}

static int percent_text(struct percent *p, const struct field *f, const struct value *v)
{
	struct render *r = p->r;
	size_t start;
	struct value text;
	int rc;

	start = text_begin(r);
	rc = f->type == 's' ? value_write_str(r, &r->scratch, v)
			    : value_write_repr(r, &r->scratch, v);
	if (!rc)
		rc = text_end(r, start, &text);
	if (!rc && p->format->safe) {
		text.safe = f->type == 's' && v->type == V_STR && v->safe;
		rc = value_escape(r, &text, &text);
	}
	return rc < 0 ? rc : put_text(r, f, &text);
}

static int percent_int(struct percent *p, const struct field *f, const struct value *v)
{
	bool decimal = strchr("diu", f->type);
	int64_t i;

	if (v->type == V_FLOAT && decimal) {
		if (!(v->f > -0x1p63 && v->f < 0x1p63))
			return render_fail(p->r, EINVAL, "integer overflow (64 bits)");
		i = (int64_t)v->f;
	} else if (!value_index(v, &i)) {
		return render_fail(p->r, EINVAL, "%%%c format: a number is required, not '%s'",
				   f->type, value_type_name(v));
	}
	return put_int(p->r, f, i);
}

static int percent_char(struct percent *p, const struct field *f, const struct value *v)
{
	uint32_t cp;
	int64_t i;

	if (v->type == V_STR && v->len && pystr_next(v->s, v->len, &cp) == v->len)
		return put_char(p->r, f, cp);
	if (!value_index(v, &i))
		return render_fail(p->r, EINVAL, "%%c requires an int or one character");
	return put_char(p->r, f, i);
}

static int percent_field(struct percent *p, const struct value *mapping)
{
	struct field f;
	struct value v;
	int rc = 0;

	if (peek(p) == '(')
		rc = percent_key(p, mapping);
	if (!rc)
		rc = percent_spec(p, &f);
	if (rc < 0)
		return rc;
	if (f.type == '%') {
		buf_putc(&p->r->scratch, '%');
		return 0;
	}
	rc = next_arg(p, &v);
	if (rc < 0)
		return rc;
	switch (f.type) {
	case 's':
	case 'r': return percent_text(p, &f, &v);
	case 'c': return percent_char(p, &f, &v);
	case 'd':
	case 'i':
	case 'u':
	case 'x':
	case 'X':
	case 'o': rc = check_precision(p->r, &f); return rc < 0 ? rc : percent_int(p, &f, &v);
	case 'e':
	case 'E':
	case 'f':
	case 'F':
	case 'g':
	case 'G':
		if (!value_is_number(&v))
			return render_fail(p->r, EINVAL,
					   "%%%c format: a number is required, not '%s'", f.type,
					   value_type_name(&v));
		rc = check_precision(p->r, &f);
		return rc < 0 ? rc : put_float(p->r, &f, value_number(&v));
	default:
		return render_fail(p->r, EINVAL, "unsupported format character '%c'",
				   f.type >= ' ' && f.type < 0x7f ? f.type : '?');
	}
}

int value_format_percent(struct render *r, const struct value *format, const struct value *args,
			 struct value *ret)
{
	struct percent p = {.r = r, .format = format, .args = *args};
	size_t start = text_begin(r), from;
	int rc = render_charge_bytes(r, format->len);

	p.tuple = args->type == V_TUPLE;
	/* What can be indexed may also be left alone: Python takes it for a mapping. */
	p.mapping = args->type == V_DICT || args->type == V_LIST || args->type == V_RANGE ||
		    args->type == V_UNDEFINED;
	while (p.at < format->len && !rc) {
		for (from = p.at; p.at < format->len && peek(&p) != '%'; p.at++)
			;
		buf_append(&r->scratch, format->s + from, p.at - from);
		if (p.at++ < format->len)
			rc = percent_field(&p, args);
	}
	if (rc < 0)
		return rc;
	if (p.used < (p.tuple ? p.args.list->n : 1) && !p.mapping)
		return render_fail(r, EINVAL,
				   "not all arguments converted during string formatting");
	rc = text_end(r, start, ret);
	ret->safe = format->safe;
	return rc;
}

/* ---- "...".format() ---- */

struct braces {
	struct render *r;
	const struct args *args;
	bool safe;
	int64_t next; /* number of the next {}, -1 once fields have numbers of their own */
	bool automatic;
};

static int braces_error(struct braces *b, const char *what)
{
	return render_fail(b->r, EINVAL, "format: %s", what);
}

/* The argument called s, or with that number. */
static int find_argument(struct braces *b, const char *s, size_t n, struct value *ret)
{
	int64_t index;

	if (n && strspn(s, "0123456789") >= n) {
		if (text_to_int(s, n, 10, &index) != PARSE_INT_OK || (uint64_t)index >= b->args->n)
			return braces_error(b, "not enough arguments");
		*ret = b->args->v[index];
		return 0;
	}
	for (size_t i = 0; i < b->args->nkw; i++) {
		if (b->args->kw[i].len != n || memcmp(b->args->kw[i].name, s, n))
			continue;
		*ret = b->args->kw[i].value;
		return 0;
	}
	return render_fail(b->r, EINVAL, "format: no argument '%.*s'", (int)MIN(n, (size_t)64), s);
}

/* "{}", or all digits: a format has either the one or the other. Fields with attributes may be
 * among both. */
static int check_numbering(struct braces *b, const char *s, size_t n)
{
	if (n && strspn(s, "0123456789") < n)
		return 0;
	if (n ? b->automatic : b->next < 0)
		return braces_error(b, "cannot mix numbered fields and {}");
	if (n)
		b->next = -1;
	else
		b->automatic = true;
	return 0;
}

/* "name.attribute[index]" */
static int find_field(struct braces *b, const char *s, size_t n, struct value *ret)
{
	size_t i = 0, from;
	struct value obj, key;
	int rc;

	rc = check_numbering(b, s, n);
	if (!rc && !n && (uint64_t)b->next >= b->args->n)
		rc = braces_error(b, "not enough arguments");
	if (rc < 0)
		return rc;
	if (!n) {
		*ret = b->args->v[b->next++];
		return 0;
	}
	while (i < n && s[i] != '.' && s[i] != '[')
		i++;
	rc = find_argument(b, s, i, &obj);
	while (i < n && !rc) {
		bool item = s[i] == '[';

		from = ++i;
		while (i < n && s[i] != (item ? ']' : '.') && (item || s[i] != '['))
			i++;
		if (i == from || (item && i == n))
			return braces_error(b, "empty attribute in a field");
		key = value_str(s + from, i - from);
		if (!item) {
			rc = value_getattr(b->r, &obj, key.s, key.len, &obj);
			continue;
		}
		if (strspn(key.s, "0123456789") >= key.len) {
			int64_t index;

			if (text_to_int(key.s, key.len, 10, &index) != PARSE_INT_OK)
				return braces_error(b, "too large an index");
			key = value_int(index);
		}
		rc = value_getitem(b->r, &obj, &key, &obj);
		i++;
		if (!rc && i < n && s[i] != '.' && s[i] != '[')
			return braces_error(b, "only '.' or '[' may follow ']'");
	}
	*ret = obj;
	return rc;
}

static int spec_number(struct braces *b, const char **s, const char *end, int64_t *ret)
{
	for (*ret = 0; *s < end && **s >= '0' && **s <= '9'; ++*s) {
		*ret = *ret * 10 + (**s - '0');
		if (*ret > INT32_MAX)
			return render_fail(b->r, E2BIG, "format: the width is too large");
	}
	return 0;
}

static bool is_align(char c)
{
	return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static int parse_spec(struct braces *b, const struct value *spec, struct field *f)
{
	const char *s = spec->s, *end = s + spec->len;
	uint32_t cp;
	size_t len = pystr_next(s, spec->len, &cp);
	int rc;

	*f = (struct field){.fill = value_str(" ", 1), .sign = '-', .width = -1, .precision = -1};
	if (spec->len > len && is_align(s[len])) {
		f->fill = value_str(s, len);
		f->align = s[len];
		s += len + 1;
	} else if (s < end && is_align(*s)) {
		f->align = *s++;
	}
	if (s < end && (*s == '+' || *s == '-' || *s == ' '))
		f->sign = *s++;
	if (s < end && *s == '#') {
		f->alternate = true;
		s++;
	}
	if (s < end && *s == '0') {
		if (!f->align) {
			f->fill = value_str("0", 1);
			f->align = '=';
		}
		s++;
	}
	rc = spec_number(b, &s, end, &f->width);
	if (!rc && s < end && (*s == ',' || *s == '_')) {
		f->group = *s++;
		if (f->align == '=' && f->width > 0)
			rc = braces_error(b, "zero padding with separators is not supported");
	}
	if (!rc && s < end && *s == '.') {
		s++;
		if (s == end || *s < '0' || *s > '9')
			return braces_error(b, "format specifier missing precision");
		rc = spec_number(b, &s, end, &f->precision);
	}
	if (!rc && s < end)
		f->type = *s++;
	if (!rc && s < end)
		rc = braces_error(b, "invalid format specifier");
	return rc;
}

static int format_text(struct braces *b, struct field *f, const struct value *v)
{
	if ((f->type && f->type != 's') || f->align == '=' || f->sign != '-' || f->group ||
	    f->alternate)
		return braces_error(b, "invalid format specifier for a string");
	return put_text(b->r, f, v);
}

static int format_int(struct braces *b, struct field *f, int64_t i)
{
	if (f->type && strchr("eEfFgG%", f->type)) {
		int rc = check_precision(b->r, f);

		return rc < 0 ? rc : put_float(b->r, f, (double)i);
	}
	if (f->precision >= 0)
		return braces_error(b, "precision not allowed in integer format");
	if (f->type == 'c')
		return put_char(b->r, f, i);
	if (f->type && !strchr("bdnoxX", f->type))
		return braces_error(b, "unknown format code for an integer");
	return put_int(b->r, f, i);
}

static int format_number(struct braces *b, struct field *f, const struct value *v)
{
	int64_t i;
	int rc;

	if (value_index(v, &i))
		return format_int(b, f, i);
	if (f->type && !strchr("eEfFgGn%", f->type))
		return braces_error(b, "unknown format code for a float");
	if (f->type == 'n')
		f->type = 'g';
	rc = check_precision(b->r, f);
	return rc < 0 ? rc : put_float(b->r, f, v->f);
}

static int format_value(struct braces *b, const struct value *v, const struct value *spec)
{
	struct render *r = b->r;
	size_t start = text_begin(r);
	struct field f;
	struct value text;
	int rc;

	if (!spec->len)
		rc = value_write_str(r, &r->scratch, v);
	else if (v->type != V_STR && !value_is_number(v))
		rc = render_fail(r, EINVAL, "format: '%s' takes no format specifier",
				 value_type_name(v));
	else if (b->safe && v->type == V_STR && v->safe)
		rc = braces_error(b, "markup takes no format specifier");
	else {
		rc = parse_spec(b, spec, &f);
		if (!rc)
			rc = v->type == V_STR ? format_text(b, &f, v) : format_number(b, &f, v);
	}
	if (rc < 0 || !b->safe)
		return rc;
	rc = text_end(r, start, &text);
	text.safe = v->type == V_STR && v->safe;
	if (!rc)
		rc = value_escape(r, &text, &text);
	if (!rc)
		buf_append(&r->scratch, text.s, text.len);
	return rc;
}

static int format_string(struct braces *b, const char *s, size_t n, int level);

/* What stands between "{" and the "}" that closes it. */
static int format_field(struct braces *b, const char *s, size_t n, int level)
{
	struct render *r = b->r;
	size_t name = 0, open = 0, at, start;
	struct value v, spec = value_str("", 0);
	char conversion = 0;
	int rc;

	while (name < n && (open || (s[name] != '!' && s[name] != ':'))) {
		open += s[name] == '[';
		if (open && s[name] == ']')
			open--;
		name++;
	}
	at = name;
	rc = find_field(b, s, name, &v);
	if (rc < 0)
		return rc;
	if (at < n && s[at] == '!') {
		if (at + 1 >= n || (at + 2 < n && s[at + 2] != ':'))
			return braces_error(b, "expected one conversion character behind '!'");
		conversion = s[at + 1];
		at += 2;
	}
	if (conversion && conversion != 's' && conversion != 'r')
		return braces_error(b, "unknown conversion");
	if (conversion) {
		start = text_begin(r);
		rc = conversion == 'r' ? value_write_repr(r, &r->scratch, &v)
				       : value_write_str(r, &r->scratch, &v);
		if (!rc)
			rc = text_end(r, start, &v);
	}
	if (!rc && at < n) {
		start = text_begin(r);
		rc = format_string(b, s + at + 1, n - at - 1, level + 1);
		if (!rc)
			rc = text_end(r, start, &spec);
	}
	return rc < 0 ? rc : format_value(b, &v, &spec);
}

static int format_string(struct braces *b, const char *s, size_t n, int level)
{
	size_t from, depth;
	int rc = 0;

	if (level > 1)
		return memchr(s, '{', n) ? braces_error(b, "fields are nested too deeply")
					 : (buf_append(&b->r->scratch, s, n), 0);
	for (size_t i = 0; i < n && !rc;) {
		for (from = i; i < n && s[i] != '{' && s[i] != '}'; i++)
			;
		buf_append(&b->r->scratch, s + from, i - from);
		if (i == n)
			break;
		if (i + 1 < n && s[i + 1] == s[i]) {
			buf_putc(&b->r->scratch, s[i]);
			i += 2;
			continue;
		}
		if (s[i] == '}' || i + 1 == n)
			return braces_error(b, "single brace in format string");
		for (from = ++i, depth = 1; i < n && depth; i++)
			depth += (size_t)(s[i] == '{') - (size_t)(s[i] == '}');
		if (depth)
			return braces_error(b, "expected '}' before end of string");
		rc = format_field(b, s + from, i - 1 - from, level);
	}
	return rc;
}

int value_format_braces(struct render *r, const struct value *format, const struct args *args,
			struct value *ret)
{
	struct braces b = {.r = r, .args = args, .safe = format->safe};
	size_t start = text_begin(r);
	int rc = render_charge_bytes(r, format->len);

	if (!rc)
		rc = format_string(&b, format->s, format->len, 0);
	if (!rc)
		rc = text_end(r, start, ret);
	ret->safe = format->safe;
	return rc;
}
