#include "protocol/text/jinja_value.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "protocol/text/jinja_pystr.h"

/* ---- the rendering ---- */

int render_fail(struct render *r, int code, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX - 128];
	va_list ap;
	int rc;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rc = err_set(r->err, code, "template %.80s, line %d: %s", r->name, r->line, text);
	pystr_clean(r->err->text);
	return rc;
}

int render_charge(struct render *r, size_t work)
{
	if (work > r->steps) {
		r->steps = 0;
		return render_fail(r, E2BIG, "the template does too much work");
	}
	r->steps -= work;
	return 0;
}

int render_charge_bytes(struct render *r, size_t bytes)
{
	return render_charge(r, bytes / 64 + 1);
}

int render_enter(struct render *r)
{
	if (r->depth >= RENDER_DEPTH)
		return render_fail(r, E2BIG, "the template or a value in it is nested too deeply");
	r->depth++;
	return 0;
}

void render_leave(struct render *r)
{
	r->depth--;
}

void *render_alloc(struct render *r, size_t n, size_t size)
{
	void *p = arena_array(&r->arena, n, size);

	if (p)
		return p;
	if (size && n > (r->arena.max - r->arena.used) / size)
		render_fail(r, E2BIG, "the template needs too much memory");
	else
		render_fail(r, ENOMEM, "out of memory");
	return NULL;
}

size_t text_begin(struct render *r)
{
	return r->scratch.len;
}

int text_end(struct render *r, size_t start, struct value *ret)
{
	struct buf *b = &r->scratch;
	int rc;

	if (b->failed)
		return render_fail(r, E2BIG, "the template builds too long a text");
	rc = value_copy_str(r, b->data ? b->data + start : "", b->len - start, ret);
	b->len = start;
	return rc;
}

/* ---- making values ---- */

struct value value_cstr(const char *s)
{
	return value_str(s, strlen(s));
}

struct value value_json(const json_t *j)
{
	switch (json_typeof(j)) {
	case JSON_OBJECT: return (struct value){.type = V_DICT, .json = true, .j = j};
	case JSON_ARRAY: return (struct value){.type = V_LIST, .json = true, .j = j};
	case JSON_STRING: return value_str(json_string_value(j), json_string_length(j));
	case JSON_INTEGER: return value_int(json_integer_value(j));
	case JSON_REAL: return value_float(json_real_value(j));
	case JSON_TRUE: return value_bool(true);
	case JSON_FALSE: return value_bool(false);
	case JSON_NULL: break;
	}
	return value_none();
}

int value_copy_str(struct render *r, const char *s, size_t len, struct value *ret)
{
	char *p;

	if (len >= SIZE_MAX / 2)
		return render_fail(r, E2BIG, "the template builds too long a text");
	if (render_charge_bytes(r, len) < 0)
		return -E2BIG;
	p = render_alloc(r, len + 1, 1);
	if (!p)
		return -r->err->code;
	memcpy(p, s, len);
	*ret = value_str(p, len);
	return 0;
}

static int new_undefined(struct render *r, struct undefined u, struct value *ret)
{
	struct undefined *p = render_alloc(r, 1, sizeof(*p));

	if (!p)
		return -r->err->code;
	*p = u;
	*ret = (struct value){.type = V_UNDEFINED, .undefined = p};
	return 0;
}

int value_undefined_name(struct render *r, const char *name, size_t len, struct value *ret)
{
	return new_undefined(r, (struct undefined){UNDEFINED_NAME, name, len, NULL, {0}}, ret);
}

int value_undefined_hint(struct render *r, const char *hint, struct value *ret)
{
	return new_undefined(r, (struct undefined){UNDEFINED_HINT, hint, strlen(hint), NULL, {0}},
			     ret);
}

int value_undefined_member(struct render *r, const struct value *owner, const struct value *key,
			   struct value *ret)
{
	struct undefined u = {UNDEFINED_MEMBER, NULL, 0, value_type_name(owner), *key};

	if (key->type == V_STR) {
		u.name = key->s;
		u.name_len = key->len;
	}
	return new_undefined(r, u, ret);
}

int value_undefined_unsafe(struct render *r, const struct value *owner, const char *name,
			   size_t len, struct value *ret)
{
	return new_undefined(
		r, (struct undefined){UNDEFINED_UNSAFE, name, len, value_type_name(owner), {0}},
		ret);
}

int value_fail_undefined(struct render *r, const struct value *v)
{
	const struct undefined *u = v->undefined;
	int len = (int)MIN(u->name_len, (size_t)200);
	size_t start;

	switch (u->why) {
	case UNDEFINED_NAME: return render_fail(r, EINVAL, "'%.*s' is undefined", len, u->name);
	case UNDEFINED_HINT: return render_fail(r, EINVAL, "%.*s", len, u->name);
	case UNDEFINED_UNSAFE:
		return render_fail(r, EINVAL,
				   "access to attribute '%.*s' of '%s' object is unsafe (templates "
				   "may not change values)",
				   len, u->name, u->owner);
	case UNDEFINED_MEMBER: break;
	}
	if (u->name)
		return render_fail(r, EINVAL, "'%s object' has no attribute '%.*s'", u->owner, len,
				   u->name);
	start = text_begin(r);
	if (value_write_repr(r, &r->scratch, &u->key) < 0)
		return -r->err->code;
	return render_fail(r, EINVAL, "%s object has no element %.200s", u->owner,
			   buf_str(&r->scratch) + start);
}

int value_new_list(struct render *r, enum value_type type, size_t n, struct value *ret)
{
	struct list *l = render_alloc(r, 1, sizeof(*l));

	if (!l)
		return -r->err->code;
	if (n) {
		l->v = render_alloc(r, n, sizeof(*l->v));
		if (!l->v)
			return -r->err->code;
	}
	l->n = l->cap = n;
	*ret = (struct value){.type = type, .list = l};
	return 0;
}

int list_push(struct render *r, struct list *l, const struct value *v)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 8;
		struct value *p = render_alloc(r, cap, sizeof(*p));

		if (!p)
			return -r->err->code;
		if (l->n)
			memcpy(p, l->v, l->n * sizeof(*p));
		l->v = p;
		l->cap = cap;
	}
	l->v[l->n++] = *v;
	return 0;
}

int value_new_dict(struct render *r, enum value_type type, struct value *ret)
{
	struct dict *d = render_alloc(r, 1, sizeof(*d));

	if (!d)
		return -r->err->code;
	*ret = (struct value){.type = type, .dict = d};
	return 0;
}

int value_new_pair(struct render *r, struct value a, struct value b, struct value *ret)
{
	int rc = value_new_list(r, V_TUPLE, 2, ret);

	if (rc < 0)
		return rc;
	ret->list->v[0] = a;
	ret->list->v[1] = b;
	return 0;
}

/* ---- what Python can ask any value ---- */

const char *value_type_name(const struct value *v)
{
	switch (v->type) {
	case V_MISSING:
	case V_UNDEFINED: return "Undefined";
	case V_NONE: return "NoneType";
	case V_BOOL: return "bool";
	case V_INT: return "int";
	case V_FLOAT: return "float";
	case V_STR: return v->safe ? "Markup" : "str";
	case V_LIST: return "list";
	case V_TUPLE: return "tuple";
	case V_DICT: return "dict";
	case V_RANGE: return "range";
	case V_VIEW:
		return v->view->kind == VIEW_KEYS     ? "dict_keys"
		       : v->view->kind == VIEW_VALUES ? "dict_values"
						      : "dict_items";
	case V_ITER: return "generator";
	case V_NAMESPACE: return "namespace";
	case V_LOOP: return "loop";
	case V_MACRO: return "macro";
	case V_FUNCTION: return "function";
	case V_METHOD: return "method";
	case V_CYCLER: return "cycler";
	case V_JOINER: return "joiner";
	}
	return "?";
}

bool value_truth(const struct value *v)
{
	switch (v->type) {
	case V_MISSING:
	case V_UNDEFINED:
	case V_NONE: return false;
	case V_BOOL: return v->b;
	case V_INT: return v->i != 0;
	case V_FLOAT: return v->f != 0;
	case V_STR: return v->len != 0;
	case V_LIST:
	case V_TUPLE:
	case V_DICT:
	case V_RANGE:
	case V_VIEW: return value_len(v) != 0;
	default: return true;
	}
}

bool value_is_number(const struct value *v)
{
	return v->type == V_INT || v->type == V_FLOAT || v->type == V_BOOL;
}

bool value_index(const struct value *v, int64_t *ret)
{
	if (v->type == V_INT)
		*ret = v->i;
	else if (v->type == V_BOOL)
		*ret = v->b;
	else
		return false;
	return true;
}

double value_number(const struct value *v)
{
	return v->type == V_FLOAT ? v->f : v->type == V_INT ? (double)v->i : v->b;
}

int64_t value_len(const struct value *v)
{
	switch (v->type) {
	case V_UNDEFINED: return 0;
	case V_STR: return (int64_t)pystr_length(v->s, v->len);
	case V_LIST:
	case V_TUPLE: return (int64_t)(v->json ? json_array_size(v->j) : v->list->n);
	case V_DICT: return (int64_t)(v->json ? json_object_size(v->j) : v->dict->n);
	case V_RANGE: return (int64_t)v->range->n;
	case V_VIEW: return value_len(&v->view->dict);
	default: return -1;
	}
}

bool value_same(const struct value *a, const struct value *b)
{
	if (a->type != b->type || a->json != b->json)
		return false;
	switch (a->type) {
	case V_NONE: return true;
	case V_BOOL: return a->b == b->b;
	case V_INT: return a->i == b->i;
	case V_FLOAT: return !memcmp(&a->f, &b->f, sizeof(a->f));
	case V_STR: return a->len == b->len && !memcmp(a->s, b->s, a->len);
	default: return a->j == b->j;
	}
}

/* Exactly, as Python does: no rounding of large integers. */
static int compare_int_float(int64_t i, double f)
{
	int64_t whole;

	if (isnan(f))
		return 2;
	if (f >= 0x1p63)
		return -1;
	if (f < -0x1p63)
		return 1;
	whole = (int64_t)f;
	if (i != whole)
		return i < whole ? -1 : 1;
	f -= (double)whole;
	return f > 0 ? -1 : f < 0 ? 1 : 0;
}

static int compare_numbers(const struct value *a, const struct value *b)
{
	int64_t i, k;

	if (a->type == V_FLOAT && b->type == V_FLOAT)
		return a->f < b->f ? -1 : a->f > b->f ? 1 : a->f == b->f ? 0 : 2;
	if (value_index(a, &i)) {
		if (value_index(b, &k))
			return i < k ? -1 : i > k;
		return compare_int_float(i, b->f);
	}
	if (value_index(b, &k)) {
		int c = compare_int_float(k, a->f);

		return c == 2 ? 2 : -c;
	}
	return 2;
}

static int compare_text(const struct value *a, const struct value *b)
{
	int c = memcmp(a->s, b->s, MIN(a->len, b->len));

	if (c)
		return c < 0 ? -1 : 1;
	return a->len < b->len ? -1 : a->len > b->len;
}

static bool is_sequence_of(const struct value *a, const struct value *b)
{
	return a->type == b->type && (a->type == V_LIST || a->type == V_TUPLE);
}

/* Both lists or both tuples, or both ranges, of the same length. */
static int equal_items(struct render *r, const struct value *a, const struct value *b, bool *ret)
{
	int64_t n = value_len(a);
	bool same = true;
	int rc = 0;

	for (int64_t i = 0; i < n && same && !rc; i++) {
		struct value x = value_item(a, (size_t)i), y = value_item(b, (size_t)i);

		rc = value_equal(r, &x, &y, &same);
	}
	*ret = same;
	return rc;
}

static int equal_dicts(struct render *r, const struct value *a, const struct value *b, bool *ret)
{
	struct dict_cursor c = {0};
	struct value k, v, w;
	int rc;

	*ret = false;
	while (dict_next(a, &c, &k, &v)) {
		rc = dict_find(r, b, &k, &w);
		if (rc <= 0)
			return rc;
		rc = value_equal(r, &v, &w, ret);
		if (rc < 0 || !*ret)
			return rc;
	}
	*ret = true;
	return 0;
}

int value_equal(struct render *r, const struct value *a, const struct value *b, bool *ret)
{
	int rc = render_charge(r, 1);

	if (rc < 0)
		return rc;
	if (value_is_number(a) && value_is_number(b)) {
		*ret = compare_numbers(a, b) == 0;
		return 0;
	}
	*ret = false;
	if (a->type != b->type)
		return 0;
	switch (a->type) {
	case V_UNDEFINED: *ret = true; return 0;
	case V_STR:
		if (a->len != b->len)
			return 0;
		*ret = !memcmp(a->s, b->s, a->len);
		return render_charge_bytes(r, a->len);
	case V_LIST:
	case V_TUPLE:
	case V_RANGE:
	case V_DICT:
		if (value_len(a) != value_len(b))
			return 0;
		if (render_enter(r) < 0)
			return -E2BIG;
		rc = a->type == V_DICT ? equal_dicts(r, a, b, ret) : equal_items(r, a, b, ret);
		render_leave(r);
		return rc;
	default: *ret = value_same(a, b); return 0;
	}
}

static int compare_sequences(struct render *r, const struct value *a, const struct value *b,
			     const char *sign, int *ret)
{
	int64_t n = value_len(a), m = value_len(b);
	int rc;

	for (int64_t i = 0; i < n && i < m; i++) {
		struct value x = value_item(a, (size_t)i), y = value_item(b, (size_t)i);
		bool same;

		rc = value_equal(r, &x, &y, &same);
		if (rc < 0)
			return rc;
		if (!same)
			return value_compare(r, &x, &y, sign, ret);
	}
	*ret = n < m ? -1 : n > m;
	return 0;
}

int value_compare(struct render *r, const struct value *a, const struct value *b, const char *sign,
		  int *ret)
{
	int rc = render_charge(r, 1);

	if (rc < 0)
		return rc;
	if (value_is_number(a) && value_is_number(b)) {
		*ret = compare_numbers(a, b);
		return 0;
	}
	if (a->type == V_STR && b->type == V_STR) {
		*ret = compare_text(a, b);
		return render_charge_bytes(r, MIN(a->len, b->len));
	}
	if (a->type == V_UNDEFINED)
		return value_fail_undefined(r, a);
	if (b->type == V_UNDEFINED)
		return value_fail_undefined(r, b);
	if (!is_sequence_of(a, b))
		return render_fail(r, EINVAL, "'%s' cannot compare '%s' and '%s'", sign,
				   value_type_name(a), value_type_name(b));
	if (render_enter(r) < 0)
		return -E2BIG;
	rc = compare_sequences(r, a, b, sign, ret);
	render_leave(r);
	return rc;
}

static int contains_text(struct render *r, const struct value *in, const struct value *item,
			 bool *ret)
{
	if (item->type == V_UNDEFINED)
		return value_fail_undefined(r, item);
	if (item->type != V_STR)
		return render_fail(r, EINVAL, "'in <string>' needs a string on the left, not '%s'",
				   value_type_name(item));
	*ret = pystr_find(in->s, in->len, item->s, item->len) != SIZE_MAX;
	return render_charge_bytes(r, in->len);
}

int value_contains(struct render *r, const struct value *in, const struct value *item, bool *ret)
{
	struct iter *it;
	struct value v;
	int rc;

	*ret = false;
	if (in->type == V_STR)
		return contains_text(r, in, item, ret);
	if (in->type == V_DICT || (in->type == V_VIEW && in->view->kind == VIEW_KEYS)) {
		rc = dict_find(r, in->type == V_DICT ? in : &in->view->dict, item, &v);
		*ret = rc > 0;
		return rc < 0 ? rc : 0;
	}
	rc = value_try_iter(r, in, &it);
	if (rc < 0)
		return rc;
	if (!rc)
		return render_fail(r, EINVAL, "'in' cannot look into '%s'", value_type_name(in));
	while ((rc = iter_next(r, it, &v)) > 0) {
		rc = value_equal(r, &v, item, ret);
		if (rc < 0 || *ret)
			break;
	}
	return rc < 0 ? rc : 0;
}

/* splitmix64's finisher. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static uint64_t hash_bytes(const char *s, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ULL ^ n;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 0x100000001b3ULL;
	return mix(h);
}

int value_hash(struct render *r, const struct value *v, uint64_t *ret)
{
	uint64_t h = 7, bits;
	int rc = 0;

	switch (v->type) {
	case V_STR: *ret = hash_bytes(v->s, v->len); return render_charge_bytes(r, v->len);
	case V_BOOL: *ret = mix((uint64_t)v->b + 1); return 0;
	case V_INT: *ret = mix((uint64_t)v->i + 1); return 0;
	case V_FLOAT:
		if (v->f >= -0x1p63 && v->f < 0x1p63 && v->f == (double)(int64_t)v->f) {
			*ret = mix((uint64_t)(int64_t)v->f + 1); /* equal to that integer */
			return 0;
		}
		memcpy(&bits, &v->f, sizeof(bits));
		*ret = mix(bits);
		return 0;
	case V_NONE:
	case V_UNDEFINED: *ret = mix((uint64_t)v->type << 32); return 0;
	case V_TUPLE:
	case V_RANGE:
		if (render_enter(r) < 0)
			return -E2BIG;
		for (int64_t i = 0, n = value_len(v); i < n && !rc; i++) {
			struct value item = value_item(v, (size_t)i);

			rc = render_charge(r, 1);
			if (!rc)
				rc = value_hash(r, &item, &bits);
			h = mix(h * 31 + bits);
		}
		render_leave(r);
		*ret = h;
		return rc;
	case V_LIST:
	case V_DICT:
	case V_VIEW: return render_fail(r, EINVAL, "unhashable type: '%s'", value_type_name(v));
	default: *ret = mix((uint64_t)(uintptr_t)v->j); return 0;
	}
}
