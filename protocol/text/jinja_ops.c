/* Arithmetic and the joining of texts and lists: the operators of Python on values. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "protocol/text/jinja_builtin.h"

static int overflow(struct render *r)
{
	return render_fail(r, EINVAL, "integer overflow (64 bits)");
}

static int divided_by_zero(struct render *r)
{
	return render_fail(r, EINVAL, "division by zero");
}

static int wrong_types(struct render *r, enum binary_op op, const struct value *a,
		       const struct value *b)
{
	static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};

	if (a->type == V_UNDEFINED)
		return value_fail_undefined(r, a);
	if (b->type == V_UNDEFINED)
		return value_fail_undefined(r, b);
	return render_fail(r, EINVAL, "unsupported operand types for %s: '%s' and '%s'", signs[op],
			   value_type_name(a), value_type_name(b));
}

/* ---- numbers ---- */

static int power_int(struct render *r, int64_t base, int64_t exponent, struct value *ret)
{
	int64_t result = 1;

	if (exponent < 0) {
		if (!base)
			return divided_by_zero(r);
		*ret = value_float(pow((double)base, (double)exponent));
		return 0;
	}
	while (exponent) {
		if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
			return overflow(r);
		exponent >>= 1;
		if (exponent && __builtin_mul_overflow(base, base, &base))
			return overflow(r);
	}
	*ret = value_int(result);
	return 0;
}

static int binary_int(struct render *r, enum binary_op op, int64_t a, int64_t b, struct value *ret)
{
	int64_t x = 0;
	bool big = false;

	if (!b && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
		return divided_by_zero(r);
	switch (op) {
	case OP_ADD: big = __builtin_add_overflow(a, b, &x); break;
	case OP_SUB: big = __builtin_sub_overflow(a, b, &x); break;
	case OP_MUL: big = __builtin_mul_overflow(a, b, &x); break;
	case OP_DIV: *ret = value_float((double)((long double)a / (long double)b)); return 0;
	case OP_FLOORDIV:
		if (a == INT64_MIN && b == -1)
			return overflow(r);
		x = a / b - (a % b && (a < 0) != (b < 0));
		break;
	case OP_MOD:
		x = b == -1 ? 0 : a % b;
		if (x && (x < 0) != (b < 0))
			x += b;
		break;
	case OP_POW: return power_int(r, a, b, ret);
	}
	if (big)
		return overflow(r);
	*ret = value_int(x);
	return 0;
}

static int power_float(struct render *r, double a, double b, struct value *ret)
{
	double x;

	if (a == 0 && b < 0)
		return divided_by_zero(r);
	if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
		return render_fail(r, EINVAL, "complex numbers are not supported");
	x = pow(a, b);
	if (isinf(x) && isfinite(a) && isfinite(b))
		return render_fail(r, EINVAL, "numerical result out of range");
	*ret = value_float(x);
	return 0;
}

/* As CPython's float_divmod: the remainder has the divisor's sign. */
static void divmod(double a, double b, double *ret_floor, double *ret_mod)
{
	double mod = fmod(a, b), div = (a - mod) / b, down;

	if (mod) {
		if ((b < 0) != (mod < 0)) {
			mod += b;
			div -= 1;
		}
	} else {
		mod = copysign(0, b);
	}
	down = floor(div);
	if (div && div - down > 0.5)
		down += 1;
	*ret_floor = div ? down : copysign(0, a / b);
	*ret_mod = mod;
}

static int binary_float(struct render *r, enum binary_op op, double a, double b, struct value *ret)
{
	double down, mod;

	if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
		return divided_by_zero(r);
	switch (op) {
	case OP_ADD: *ret = value_float(a + b); return 0;
	case OP_SUB: *ret = value_float(a - b); return 0;
	case OP_MUL: *ret = value_float(a * b); return 0;
	case OP_DIV: *ret = value_float(a / b); return 0;
	case OP_POW: return power_float(r, a, b, ret);
	default: break;
	}
	divmod(a, b, &down, &mod);
	*ret = value_float(op == OP_MOD ? mod : down);
	return 0;
}

int value_negate(struct render *r, const struct value *v, bool minus, struct value *ret)
{
	int64_t i;

	if (v->type == V_UNDEFINED)
		return value_fail_undefined(r, v);
	if (v->type == V_FLOAT) {
		*ret = value_float(minus ? -v->f : v->f);
		return 0;
	}
	if (!value_index(v, &i))
		return render_fail(r, EINVAL, "bad operand type for unary %c: '%s'",
				   minus ? '-' : '+', value_type_name(v));
	if (minus && i == INT64_MIN)
		return overflow(r);
	*ret = value_int(minus ? -i : i);
	return 0;
}

/* ---- texts and lists ---- */

int value_escape(struct render *r, const struct value *v, struct value *ret)
{
	size_t start = text_begin(r), plain = 0;
	struct buf *b = &r->scratch;
	struct value text;
	int rc;

	if (v->type == V_STR && v->safe) {
		*ret = *v;
		return 0;
	}
	rc = value_to_str(r, v, &text);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < text.len; i++) {
		const char *entity;

		switch (text.s[i]) {
		case '&': entity = "&amp;"; break;
		case '<': entity = "&lt;"; break;
		case '>': entity = "&gt;"; break;
		case '"': entity = "&#34;"; break;
		case '\'': entity = "&#39;"; break;
		default: continue;
		}
		buf_append(b, text.s + plain, i - plain);
		buf_puts(b, entity);
		plain = i + 1;
	}
	buf_append(b, text.s + plain, text.len - plain);
	rc = text_end(r, start, ret);
	ret->safe = true;
	return rc;
}

static int add_text(struct render *r, const struct value *a, const struct value *b,
		    struct value *ret)
{
	struct value left = *a, right = *b;
	bool safe = a->safe || b->safe;
	char *p;
	int rc = 0;

	if (safe)
		rc = value_escape(r, a, &left);
	if (safe && !rc)
		rc = value_escape(r, b, &right);
	if (!rc)
		rc = render_charge_bytes(r, left.len + right.len);
	if (rc < 0)
		return rc;
	p = render_alloc(r, left.len + right.len + 1, 1);
	if (!p)
		return -r->err->code;
	memcpy(p, left.s, left.len);
	memcpy(p + left.len, right.s, right.len);
	*ret = value_str(p, left.len + right.len);
	ret->safe = safe;
	return 0;
}

static int add_lists(struct render *r, const struct value *a, const struct value *b,
		     struct value *ret)
{
	size_t n = (size_t)value_len(a), m = (size_t)value_len(b);
	int rc = render_charge(r, n + m);

	if (!rc)
		rc = value_new_list(r, a->type, n + m, ret);
	for (size_t i = 0; i < n && !rc; i++)
		ret->list->v[i] = value_item(a, i);
	for (size_t i = 0; i < m && !rc; i++)
		ret->list->v[n + i] = value_item(b, i);
	return rc;
}

static int repeat(struct render *r, const struct value *v, int64_t times, struct value *ret)
{
	size_t len = v->type == V_STR ? v->len : (size_t)value_len(v), total;
	char *p;
	int rc;

	if (times < 0 || !len)
		times = 0;
	if (__builtin_mul_overflow(len, (size_t)times, &total) || total >= SIZE_MAX / 64)
		return render_fail(r, E2BIG, "the template needs too much memory");
	rc = v->type == V_STR ? render_charge_bytes(r, total) : render_charge(r, total);
	if (rc < 0)
		return rc;
	if (v->type != V_STR) {
		rc = value_new_list(r, v->type, total, ret);
		for (size_t i = 0; i < total && !rc; i++)
			ret->list->v[i] = value_item(v, i % len);
		return rc;
	}
	p = render_alloc(r, total + 1, 1);
	if (!p)
		return -r->err->code;
	/* Each copy doubles what is there: few of them, however short the text is. */
	if (total)
		memcpy(p, v->s, len);
	for (size_t have = len; have < total; have *= 2)
		memcpy(p + have, p, MIN(have, total - have));
	*ret = value_str(p, total);
	ret->safe = v->safe;
	return 0;
}

static bool is_sequence(const struct value *v)
{
	return v->type == V_STR || v->type == V_LIST || v->type == V_TUPLE;
}

/* Takes copies: ret may be one of the operands. */
static int binary(struct render *r, enum binary_op op, struct value a, struct value b,
		  struct value *ret)
{
	int64_t i, k;

	if (value_index(&a, &i) && value_index(&b, &k))
		return binary_int(r, op, i, k, ret);
	if (value_is_number(&a) && value_is_number(&b))
		return binary_float(r, op, value_number(&a), value_number(&b), ret);
	if (op == OP_ADD && a.type == b.type && is_sequence(&a))
		return a.type == V_STR ? add_text(r, &a, &b, ret) : add_lists(r, &a, &b, ret);
	if (op == OP_MUL && is_sequence(&a) && value_index(&b, &k))
		return repeat(r, &a, k, ret);
	if (op == OP_MUL && is_sequence(&b) && value_index(&a, &k))
		return repeat(r, &b, k, ret);
	if (op == OP_MOD && a.type == V_STR)
		return value_format_percent(r, &a, &b, ret);
	return wrong_types(r, op, &a, &b);
}

int value_binary(struct render *r, enum binary_op op, const struct value *a, const struct value *b,
		 struct value *ret)
{
	return binary(r, op, *a, *b, ret);
}
