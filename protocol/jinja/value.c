#include "protocol/jinja/value.h"

#include <string.h>

#include "protocol/jinja/text.h"

struct value value_cstr(const char *s)
{
	return value_str(s, strlen(s));
}

struct value value_copy(struct render *r, const char *s, size_t len)
{
	char *p = render_copy(r, s, len);

	return p ? value_str(p, len) : NOTHING;
}

struct value value_take(struct render *r, size_t start)
{
	struct buf *b = &r->scratch;
	struct value v = NOTHING;

	if (render_check(r, b))
		v = value_copy(r, buf_str(b) + start, b->len - start);
	b->len = start;
	return v;
}

static struct value undefined(struct render *r, struct undefined u)
{
	struct undefined *p = render_alloc(r, 1, sizeof(*p));

	if (!p)
		return NOTHING;
	*p = u;
	return (struct value){.type = V_UNDEFINED, .undefined = p};
}

struct value value_undefined_name(struct render *r, const char *name, size_t len)
{
	return undefined(r, (struct undefined){.key = value_str(name, len)});
}

struct value value_undefined_member(struct render *r, struct value owner, struct value key)
{
	return undefined(r, (struct undefined){.owner = value_type_name(owner), .key = key});
}

struct value value_undefined_hint(struct render *r, const char *hint)
{
	return undefined(r, (struct undefined){.hint = hint});
}

bool value_fail_undefined(struct render *r, struct value v)
{
	const struct undefined *u = v.undefined;
	int len;

	if (v.type != V_UNDEFINED)
		return false;
	len = u->key.type == V_STR ? (int)MIN(u->key.len, 200u) : 0;
	if (u->hint)
		render_fail(r, EINVAL, "%s", u->hint);
	else if (!u->owner)
		render_fail(r, EINVAL, "'%.*s' is undefined", len, u->key.s);
	else if (u->key.type == V_STR)
		render_fail(r, EINVAL, "'%s object' has no attribute '%.*s'", u->owner, len,
			    u->key.s);
	else
		render_fail(r, EINVAL, "'%s object' has no such element", u->owner);
	return true;
}

struct value value_fail_type(struct render *r, const char *who, const char *expected,
			     struct value v)
{
	if (!value_fail_undefined(r, v))
		render_fail(r, EINVAL, "%s: expected %s, not '%s'", who, expected,
			    value_type_name(v));
	return NOTHING;
}

/* ---- lists ---- */

struct list *list_new(struct render *r, size_t n)
{
	struct list *l = render_alloc(r, 1, sizeof(*l));

	if (!l || !n)
		return l;
	l->v = render_alloc(r, n, sizeof(*l->v));
	l->n = l->cap = n;
	return l->v ? l : NULL;
}

void list_push(struct render *r, struct list *l, struct value v)
{
	if (!l)
		return;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 8;
		struct value *p = render_alloc(r, cap, sizeof(*p));

		if (!p)
			return;
		if (l->n)
			memcpy(p, l->v, l->n * sizeof(*p));
		l->v = p;
		l->cap = cap;
	}
	l->v[l->n++] = v;
}

struct value value_pair(struct render *r, struct value a, struct value b)
{
	struct list *l = list_new(r, 2);

	if (!l)
		return NOTHING;
	l->v[0] = a;
	l->v[1] = b;
	return value_of_list(V_TUPLE, l);
}

/* ---- questions about any value ---- */

const char *value_type_name(struct value v)
{
	static const char *const names[] = {
		[V_MISSING] = "Undefined",
		[V_UNDEFINED] = "Undefined",
		[V_NONE] = "NoneType",
		[V_BOOL] = "bool",
		[V_INT] = "int",
		[V_FLOAT] = "float",
		[V_STR] = "str",
		[V_LIST] = "list",
		[V_TUPLE] = "tuple",
		[V_KEYS] = "dict_keys",
		[V_VALUES] = "dict_values",
		[V_ITEMS] = "dict_items",
		[V_RANGE] = "range",
		[V_DICT] = "dict",
		[V_NAMESPACE] = "namespace",
		[V_ITER] = "generator",
		[V_LOOP] = "loop",
	};

	return v.type == V_CALLABLE ? v.callable->type : v.safe ? "Markup" : names[v.type];
}

bool value_truth(struct value v)
{
	switch (v.type) {
	case V_MISSING:
	case V_UNDEFINED:
	case V_NONE: return false;
	case V_BOOL: return v.b;
	case V_INT: return v.i != 0;
	case V_FLOAT: return v.f != 0;
	case V_STR: return v.len != 0;
	default: return value_len(v) != 0;
	}
}

bool value_is_number(struct value v)
{
	return v.type == V_INT || v.type == V_FLOAT || v.type == V_BOOL;
}

bool value_is(struct value v, const char *text)
{
	return v.type == V_STR && v.len == strlen(text) && !memcmp(v.s, text, v.len);
}

bool value_index(struct value v, int64_t *ret)
{
	if (v.type != V_INT && v.type != V_BOOL)
		return false;
	*ret = v.type == V_INT ? v.i : v.b;
	return true;
}

double value_number(struct value v)
{
	return v.type == V_FLOAT ? v.f : v.type == V_INT ? (double)v.i : v.b;
}

int64_t value_len(struct value v)
{
	if (value_has_items(v))
		return (int64_t)v.list->n;
	switch (v.type) {
	case V_UNDEFINED: return 0;
	case V_STR: return (int64_t)text_length(v.s, v.len);
	case V_DICT: return (int64_t)v.dict->n;
	default: return -1;
	}
}

bool value_same(struct value a, struct value b)
{
	if (a.type != b.type)
		return false;
	switch (a.type) {
	case V_MISSING:
	case V_NONE: return true;
	case V_BOOL: return a.b == b.b;
	case V_FLOAT: return !memcmp(&a.f, &b.f, sizeof(a.f));
	case V_STR: return a.len == b.len && !memcmp(a.s, b.s, a.len);
	default: return a.i == b.i; /* the integer, or the pointer */
	}
}
