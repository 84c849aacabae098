/* Filters on numbers, and on values of any type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "protocol/jinja/json.h"
#include "protocol/jinja/number.h"
#include "protocol/jinja/ops.h"
#include "protocol/jinja/tables.h"

#define FUNCTION(name) static struct value name(struct render *r, const struct builtin_call *c)

/* ---- numbers ---- */

FUNCTION(filter_abs)
{
	if (c->self.type == V_FLOAT)
		return value_float(fabs(c->self.f));
	return value_negate(r, c->self, value_is_number(c->self) && value_number(c->self) < 0);
}

static struct value int_of_float(struct render *r, double f)
{
	if (!(f > -0x1p63 && f < 0x1p63))
		return value_fail(r, "integer overflow (64 bits)");
	return value_int((int64_t)f);
}

FUNCTION(filter_int)
{
	struct value v = c->self, other = c->arg[0].type == V_MISSING ? value_int(0) : c->arg[0];
	int64_t i;
	double f;

	if (value_fail_undefined(r, v))
		return NOTHING;
	if (value_index(v, &i))
		return value_int(i);
	if (v.type == V_FLOAT)
		return isnan(v.f) ? other : int_of_float(r, v.f);
	if (v.type != V_STR)
		return other;
	switch (text_to_int(v.s, v.len, &i)) {
	case PARSE_INT_OK: return value_int(i);
	case PARSE_INT_BIG: return value_fail(r, "integer overflow (64 bits)");
	case PARSE_INT_BAD: break;
	}
	if (!text_to_float(v.s, v.len, &r->scratch, &f) || !isfinite(f))
		return render_check(r, &r->scratch) ? other : NOTHING;
	return int_of_float(r, f);
}

FUNCTION(filter_float)
{
	struct value v = c->self;
	double f;

	if (value_fail_undefined(r, v))
		return NOTHING;
	if (value_is_number(v))
		return value_float(value_number(v));
	if (v.type == V_STR && text_to_float(v.s, v.len, &r->scratch, &f))
		return value_float(f);
	if (!render_check(r, &r->scratch))
		return NOTHING;
	return c->arg[0].type == V_MISSING ? value_float(0) : c->arg[0];
}

/* Returns exactly Python's round(f, digits), by way of the decimal digits. */
static double round_float(double f, int64_t digits)
{
	char text[768];

	if (!isfinite(f) || digits > 323)
		return f;
	snprintf(text, sizeof(text), "%.*f", (int)digits, f);
	return strtod(text, NULL);
}

FUNCTION(filter_round)
{
	int64_t digits = c->arg[0].type == V_INT ? c->arg[0].i : 0, i;

	if (digits < 0)
		return value_fail(r, "round: a negative precision is not supported in chat "
				     "templates");
	if (c->self.type == V_FLOAT)
		return value_float(round_float(c->self.f, digits));
	return value_index(c->self, &i) ? value_int(i)
					: value_fail_type(r, "round", "a number", c->self);
}

/* ---- any value ---- */

FUNCTION(filter_default)
{
	bool empty = value_truth(c->arg[1]) && !value_truth(c->self);

	if (c->self.type != V_UNDEFINED && !empty)
		return c->self;
	return c->arg[0].type == V_MISSING ? value_cstr("") : c->arg[0];
}

/* Returns the text that indents pretty-printed JSON by one level: v itself if it is a text, else v spaces. */
static struct value json_indent(struct render *r, struct value v)
{
	int64_t n;

	if (v.type != V_STR && !value_index(v, &n))
		return value_fail_type(r, "tojson", "a number or a string as indent", v);
	return v.type == V_STR ? v : value_binary(r, OP_MUL, value_str(" ", 1), v);
}

static void json_separators(struct render *r, struct value v, struct json_style *style)
{
	if (value_is_list(v) && v.list->n == 2) {
		style->item = v.list->v[0];
		style->key = v.list->v[1];
		if (style->item.type == V_STR && style->key.type == V_STR)
			return;
	}
	value_fail_type(r, "tojson", "two strings as separators", v);
}

static bool given(struct value v)
{
	return v.type != V_MISSING && v.type != V_NONE;
}

FUNCTION(filter_tojson)
{
	struct json_style style = {
		.ensure_ascii = value_truth(c->arg[0]),
		.pretty = given(c->arg[1]),
		.item = value_cstr(given(c->arg[1]) ? "," : ", "),
		.key = value_cstr(": "),
	};
	size_t start = r->scratch.len;

	if (style.pretty)
		style.indent = json_indent(r, c->arg[1]);
	if (given(c->arg[2]))
		json_separators(r, c->arg[2], &style);
	if (!r->rc)
		value_write_json(r, &r->scratch, c->self, &style);
	return value_take(r, start);
}

static const struct builtin filters[] = {
	{"tojson", filter_tojson,
	 .params = {"ensure_ascii", "indent", "separators", "x:sort_keys"}},
	{"default", filter_default, .params = {"default_value", "boolean"}},
	{"d", filter_default, .params = {"default_value", "boolean"}},
	{"int", filter_int, .params = {"default", "x:base"}},
	{"float", filter_float, .params = {"default"}},
	{"abs", filter_abs},
	{"round", filter_round, .params = {"i:precision", "x:method"}},
};
const struct builtin_table value_filters = {FILTER, filters, ARRAY_SIZE(filters),
					    "attr filesizeformat pprint"};
