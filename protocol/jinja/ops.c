#include "protocol/jinja/ops.h"

#include <string.h>

#include "protocol/jinja/format.h"
#include "protocol/jinja/write.h"

static struct value overflow(struct render *r)
{
	return value_fail(r, "integer overflow (64 bits)");
}

/* ---- numbers ---- */

static struct value binary_int(struct render *r, enum binary_op op, int64_t a, int64_t b)
{
	int64_t x = 0;
	bool big = false;

	if (!b && op >= OP_DIV)
		return value_fail(r, "division by zero");
	switch (op) {
	case OP_ADD: big = __builtin_add_overflow(a, b, &x); break;
	case OP_SUB: big = __builtin_sub_overflow(a, b, &x); break;
	case OP_MUL: big = __builtin_mul_overflow(a, b, &x); break;
	case OP_DIV: return value_float((double)((long double)a / (long double)b));
	case OP_FLOORDIV:
		big = a == INT64_MIN && b == -1;
		x = big ? 0 : a / b - (a % b && (a < 0) != (b < 0));
		break;
	case OP_MOD:
		x = b == -1 ? 0 : a % b;
		if (x && (x < 0) != (b < 0))
			x += b;
		break;
	}
	return big ? overflow(r) : value_int(x);
}

static struct value binary_float(struct render *r, enum binary_op op, double a, double b)
{
	switch (op) {
	case OP_ADD: return value_float(a + b);
	case OP_SUB: return value_float(a - b);
	case OP_MUL: return value_float(a * b);
	case OP_DIV: return b == 0 ? value_fail(r, "division by zero") : value_float(a / b);
	default: break;
	}
	return value_fail(r, "%s of a float is not supported in chat templates",
			  op == OP_MOD ? "%" : "//");
}

struct value value_negate(struct render *r, struct value v, bool minus)
{
	int64_t i;

	if (v.type == V_FLOAT)
		return value_float(minus ? -v.f : v.f);
	if (!value_index(v, &i))
		return value_fail_type(r, minus ? "unary -" : "unary +", "a number", v);
	if (minus && i == INT64_MIN)
		return overflow(r);
	return value_int(minus ? -i : i);
}

/* ---- texts and lists ---- */

static struct value add_text(struct render *r, struct value a, struct value b)
{
	struct value v = {.type = V_STR, .safe = a.safe || b.safe};
	char *p;

	if (v.safe) {
		a = value_escape(r, a);
		b = value_escape(r, b);
	}
	if (!render_charge_bytes(r, (size_t)a.len + b.len))
		return NOTHING;
	p = render_alloc(r, (size_t)a.len + b.len + 1, 1);
	if (!p)
		return NOTHING;
	memcpy(p, a.s, a.len);
	memcpy(p + a.len, b.s, b.len);
	v.s = p;
	v.len = a.len + b.len;
	return v;
}

static struct value add_lists(struct render *r, struct value a, struct value b)
{
	size_t n = a.list->n, m = b.list->n;
	struct list *l = render_charge(r, n + m) ? list_new(r, n + m) : NULL;

	if (l && n)
		memcpy(l->v, a.list->v, n * sizeof(*l->v));
	if (l && m)
		memcpy(l->v + n, b.list->v, m * sizeof(*l->v));
	return value_of_list(a.type, l);
}

/* Returns `total` *new* bytes, filled with copies of the `size` bytes at `from`; NULL after a failure. Each step
 * doubles the bytes that are filled, so there are few steps, however small `size` is. */
static void *copies(struct render *r, const void *from, size_t size, size_t total)
{
	char *p = render_alloc(r, total + 1, 1);

	if (p && total)
		memcpy(p, from, size);
	for (size_t have = size; p && have < total; have *= 2)
		memcpy(p + have, p, MIN(have, total - have));
	return p;
}

static struct value repeat(struct render *r, struct value v, int64_t times)
{
	size_t len = v.type == V_STR ? v.len : v.list->n * sizeof(*v.list->v), total;
	struct value text = v;
	struct list *l;

	if (times < 0 || !len)
		times = 0;
	if (__builtin_mul_overflow(len, (size_t)times, &total) || total > UINT32_MAX) {
		render_fail(r, E2BIG, "the template needs too much memory");
		return NOTHING;
	}
	if (!render_charge_bytes(r, total))
		return NOTHING;
	if (v.type == V_STR) {
		text.s = copies(r, v.s, len, total);
		text.len = (uint32_t)total;
		return text.s ? text : NOTHING;
	}
	l = list_new(r, 0);
	if (!l)
		return NOTHING;
	l->v = copies(r, v.list->v, len, total);
	l->n = l->cap = l->v ? total / sizeof(*l->v) : 0;
	return value_of_list(v.type, l);
}

static bool is_sequence(struct value v)
{
	return v.type == V_STR || value_is_list(v);
}

struct value value_binary(struct render *r, enum binary_op op, struct value a, struct value b)
{
	static const char *const signs[] = {"+", "-", "*", "/", "//", "%"};
	int64_t i, k;

	if (value_index(a, &i) && value_index(b, &k))
		return binary_int(r, op, i, k);
	if (value_is_number(a) && value_is_number(b))
		return binary_float(r, op, value_number(a), value_number(b));
	if (op == OP_ADD && a.type == b.type && is_sequence(a))
		return a.type == V_STR ? add_text(r, a, b) : add_lists(r, a, b);
	if (op == OP_MUL && is_sequence(a) && value_index(b, &k))
		return repeat(r, a, k);
	if (op == OP_MUL && is_sequence(b) && value_index(a, &k))
		return repeat(r, b, k);
	if (op == OP_MOD && a.type == V_STR)
		return value_format_percent(r, a, b);
	if (value_fail_undefined(r, a) || value_fail_undefined(r, b))
		return NOTHING;
	return value_fail(r, "unsupported operand types for %s: '%s' and '%s'", signs[op],
			  value_type_name(a), value_type_name(b));
}
