#include "protocol/jinja/dict.h"

#include <string.h>

#include "base/mix.h"

enum { INDEX_FROM = 8 }; /* a dict with room for more entries than this has an index */

/* ---- numbers and texts ---- */

/* Compares exactly, as Python does: a long double holds all integers of 64 bits. */
static int compare_numbers(struct value a, struct value b)
{
	long double x =
		a.type == V_FLOAT ? (long double)a.f : (long double)(a.type == V_INT ? a.i : a.b);
	long double y =
		b.type == V_FLOAT ? (long double)b.f : (long double)(b.type == V_INT ? b.i : b.b);

	return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static int compare_text(struct value a, struct value b)
{
	int c = memcmp(a.s, b.s, MIN(a.len, b.len));

	if (c)
		return c < 0 ? -1 : 1;
	return a.len < b.len ? -1 : a.len > b.len;
}

/* ---- any two values ---- */

static bool equal_items(struct render *r, const struct list *a, const struct list *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; i < a->n && same; i++)
		same = value_equal(r, a->v[i], b->v[i]);
	return same;
}

static bool equal_dicts(struct render *r, const struct dict *a, const struct dict *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; i < a->n && same; i++) {
		const struct value *v = dict_find(r, b, a->entry[i].key);

		same = v && value_equal(r, a->entry[i].value, *v);
	}
	return same;
}

bool value_equal(struct render *r, struct value a, struct value b)
{
	bool same;

	if (!render_charge(r, 1))
		return false;
	if (value_is_number(a) && value_is_number(b))
		return compare_numbers(a, b) == 0;
	if (a.type != b.type)
		return false;
	switch (a.type) {
	case V_UNDEFINED: return true;
	case V_STR: return a.len == b.len && render_charge_bytes(r, a.len) && value_same(a, b);
	case V_LIST:
	case V_TUPLE:
	case V_RANGE:
	case V_DICT:
		if (!render_enter(r))
			return false;
		same = a.type == V_DICT ? equal_dicts(r, a.dict, b.dict)
					: equal_items(r, a.list, b.list);
		r->depth--;
		return same;
	default: return value_same(a, b);
	}
}

static int compare_items(struct render *r, const struct list *a, const struct list *b,
			 const char *sign)
{
	for (size_t i = 0; i < a->n && i < b->n; i++)
		if (!value_equal(r, a->v[i], b->v[i]))
			return value_compare(r, a->v[i], b->v[i], sign);
	return a->n < b->n ? -1 : a->n > b->n;
}

int value_compare(struct render *r, struct value a, struct value b, const char *sign)
{
	int c = 2;

	if (!render_charge(r, 1))
		return 2;
	if (value_is_number(a) && value_is_number(b))
		return compare_numbers(a, b);
	if (a.type == V_STR && b.type == V_STR)
		return render_charge_bytes(r, MIN(a.len, b.len)) ? compare_text(a, b) : 2;
	if (value_fail_undefined(r, a) || value_fail_undefined(r, b))
		return 2;
	if (a.type != b.type || !value_is_list(a)) {
		render_fail(r, EINVAL, "'%s' cannot compare '%s' and '%s'", sign,
			    value_type_name(a), value_type_name(b));
	} else if (render_enter(r)) {
		c = compare_items(r, a.list, b.list, sign);
		r->depth--;
	}
	return c;
}

/* ---- dicts ---- */

/* The hash has no secret key. Keys that collide on purpose only use up the rendering's steps (render_charge): some at
 * each search that meets them. */
static uint64_t hash_bytes(const char *s, size_t n)
{
	uint64_t h = n, word;

	for (; n >= sizeof(word); s += sizeof(word), n -= sizeof(word)) {
		memcpy(&word, s, sizeof(word));
		h = mix_add(h, word);
	}
	word = 0;
	memcpy(&word, s, n);
	return mix64(h ^ word);
}

static bool hash_items(struct render *r, const struct list *l, uint64_t *ret)
{
	uint64_t h = 7, item = 0;
	bool good = render_charge(r, l->n) && render_enter(r);

	if (!good)
		return false;
	for (size_t i = 0; i < l->n && good; i++) {
		good = value_hash(r, l->v[i], &item);
		h = mix64(h * 31 + item);
	}
	r->depth--;
	*ret = h;
	return good;
}

bool value_hash(struct render *r, struct value v, uint64_t *ret)
{
	switch (v.type) {
	case V_STR: *ret = hash_bytes(v.s, v.len); return render_charge_bytes(r, v.len);
	case V_BOOL: *ret = mix64((uint64_t)v.b + 1); return true;
	case V_FLOAT:
		if (v.f >= -0x1p63 && v.f < 0x1p63 && v.f == (double)(int64_t)v.f)
			v.i = (int64_t)v.f; /* 1.0 equals 1, so it has the same hash */
		*ret = mix64((uint64_t)v.i + 1);
		return true;
	case V_NONE:
	case V_UNDEFINED: *ret = mix64((uint64_t)v.type << 32); return true;
	case V_TUPLE:
	case V_RANGE: return hash_items(r, v.list, ret);
	case V_LIST:
	case V_DICT:
	case V_KEYS:
	case V_VALUES:
	case V_ITEMS: return false;
	default: *ret = mix64((uint64_t)v.i + 1); return true; /* the integer, or the pointer */
	}
}

/* Returns the number of the entry with this key; d->n: there is none, or a failure. */
static size_t find_entry(struct render *r, const struct dict *d, struct value key, uint64_t hash)
{
	size_t mask = d->index_size - 1;

	for (size_t i = 0; !d->index_size && i < d->n; i++)
		if (d->entry[i].hash == hash && value_equal(r, d->entry[i].key, key))
			return i;
	if (!d->index_size)
		return d->n;
	for (size_t at = hash & mask; d->index[at]; at = (at + 1) & mask) {
		size_t i = d->index[at] - 1;

		if (!render_charge(r, 1))
			break;
		if (d->entry[i].hash == hash && value_equal(r, d->entry[i].key, key))
			return i;
	}
	return d->n;
}

static void index_entry(struct dict *d, size_t i)
{
	size_t at = d->entry[i].hash & (d->index_size - 1);

	while (d->index[at])
		at = (at + 1) & (d->index_size - 1);
	d->index[at] = (uint32_t)i + 1;
}

/* Moves the entries to an array with room for `cap`. If that is more than INDEX_FROM, makes a new index. False after a
 * failure, which leaves the dict as it was. */
static bool resize(struct render *r, struct dict *d, size_t cap)
{
	struct dict_entry *p = render_alloc(r, cap, sizeof(*p));
	size_t size = cap > INDEX_FROM ? INDEX_FROM * 4 : 0;
	uint32_t *index;

	while (size && size < cap * 2)
		size *= 2;
	index = size ? render_alloc(r, size, sizeof(*index)) : NULL;
	if (r->rc)
		return false;
	if (d->n)
		memcpy(p, d->entry, d->n * sizeof(*p));
	d->entry = p;
	d->cap = cap;
	d->index = index;
	d->index_size = size;
	for (size_t i = 0; i < d->n && index; i++)
		index_entry(d, i);
	return true;
}

struct dict *dict_new(struct render *r, size_t n)
{
	struct dict *d = render_alloc(r, 1, sizeof(*d));

	return d && resize(r, d, n) ? d : NULL;
}

const struct value *dict_find(struct render *r, const struct dict *d, struct value key)
{
	uint64_t hash;
	size_t at;

	if (!value_hash(r, key, &hash)) {
		render_fail(r, EINVAL, "unhashable type: '%s'", value_type_name(key));
		return NULL;
	}
	at = find_entry(r, d, key, hash);
	return at < d->n ? &d->entry[at].value : NULL;
}

void dict_set(struct render *r, struct dict *d, struct value key, struct value value)
{
	uint64_t hash = 0;
	size_t at;

	if (!d)
		return;
	if (!value_hash(r, key, &hash))
		render_fail(r, EINVAL, "unhashable type: '%s'", value_type_name(key));
	at = find_entry(r, d, key, hash);
	if (r->rc || (at == d->cap && !resize(r, d, MAX(at * 2, (size_t)INDEX_FROM))))
		return;
	if (at == d->n) {
		d->entry[at].key = key;
		d->entry[at].hash = hash;
		d->n++;
		if (d->index_size)
			index_entry(d, at);
	}
	d->entry[at].value = value;
}
