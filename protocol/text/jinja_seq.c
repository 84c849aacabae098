/* Lists, dicts and what walks them: the part of jinja_value.h about sequences. */
#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_eval.h"
#include "protocol/text/jinja_pystr.h"
#include "protocol/text/jinja_value.h"

enum { INDEX_FROM = 8 }; /* a dict with more entries than this has an index */

struct value value_item(const struct value *v, size_t i)
{
	if (v->type == V_RANGE)
		return value_int(v->range->start + (int64_t)i * v->range->step);
	if (v->json)
		return value_json(json_array_get(v->j, i));
	return v->list->v[i];
}

/* ---- dicts ---- */

bool dict_next(const struct value *dict, struct dict_cursor *c, struct value *key,
	       struct value *value)
{
	if (dict->json) {
		json_t *j = (json_t *)dict->j; /* jansson's iterators take no const */

		c->json_iter =
			c->started ? json_object_iter_next(j, c->json_iter) : json_object_iter(j);
		c->started = true;
		if (!c->json_iter)
			return false;
		*key = value_str(json_object_iter_key(c->json_iter),
				 json_object_iter_key_len(c->json_iter));
		*value = value_json(json_object_iter_value(c->json_iter));
		return true;
	}
	if (c->pos >= dict->dict->n)
		return false;
	*key = dict->dict->entry[c->pos].key;
	*value = dict->dict->entry[c->pos].value;
	c->pos++;
	return true;
}

/* The number of the entry with this key, or n. */
static int find_entry(struct render *r, const struct dict *d, const struct value *key,
		      uint64_t hash, size_t *ret)
{
	bool same;
	int rc;

	*ret = d->n;
	if (!d->index_size) {
		for (size_t i = 0; i < d->n; i++) {
			if (d->entry[i].hash != hash)
				continue;
			rc = value_equal(r, &d->entry[i].key, key, &same);
			if (rc < 0)
				return rc;
			if (same) {
				*ret = i;
				return 0;
			}
		}
		return 0;
	}
	for (size_t at = hash & (d->index_size - 1); d->index[at];
	     at = (at + 1) & (d->index_size - 1)) {
		size_t i = d->index[at] - 1;

		rc = render_charge(r, 1);
		if (rc < 0)
			return rc;
		if (d->entry[i].hash != hash)
			continue;
		rc = value_equal(r, &d->entry[i].key, key, &same);
		if (rc < 0)
			return rc;
		if (same) {
			*ret = i;
			return 0;
		}
	}
	return 0;
}

static void index_entry(struct dict *d, size_t i)
{
	size_t at = d->entry[i].hash & (d->index_size - 1);

	while (d->index[at])
		at = (at + 1) & (d->index_size - 1);
	d->index[at] = (uint32_t)i + 1;
}

static int grow_dict(struct render *r, struct dict *d)
{
	size_t cap = d->cap ? d->cap * 2 : INDEX_FROM;
	struct dict_entry *p = render_alloc(r, cap, sizeof(*p));

	if (!p)
		return -r->err->code;
	if (d->n)
		memcpy(p, d->entry, d->n * sizeof(*p));
	d->entry = p;
	d->cap = cap;
	if (cap <= INDEX_FROM)
		return 0;
	d->index = render_alloc(r, cap * 2, sizeof(*d->index));
	if (!d->index)
		return -r->err->code;
	d->index_size = cap * 2;
	for (size_t i = 0; i < d->n; i++)
		index_entry(d, i);
	return 0;
}

int dict_find(struct render *r, const struct value *dict, const struct value *key,
	      struct value *ret)
{
	uint64_t hash;
	json_t *j;
	size_t at;
	int rc;

	if (dict->json && key->type == V_STR) {
		j = json_object_getn(dict->j, key->s, key->len);
		if (j)
			*ret = value_json(j);
		return j != NULL;
	}
	rc = value_hash(r, key, &hash);
	if (rc < 0)
		return rc;
	if (dict->json)
		return 0;
	rc = find_entry(r, dict->dict, key, hash, &at);
	if (rc < 0)
		return rc;
	if (at == dict->dict->n)
		return 0;
	*ret = dict->dict->entry[at].value;
	return 1;
}

int dict_set(struct render *r, struct dict *d, const struct value *key, const struct value *value)
{
	uint64_t hash;
	size_t at;
	int rc = value_hash(r, key, &hash);

	if (rc < 0)
		return rc;
	rc = find_entry(r, d, key, hash, &at);
	if (rc < 0)
		return rc;
	if (at == d->n) {
		if (d->n == UINT32_MAX - 1)
			return render_fail(r, E2BIG, "a dict has too many entries");
		if (d->n == d->cap) {
			rc = grow_dict(r, d);
			if (rc < 0)
				return rc;
		}
		d->entry[at].key = *key;
		d->entry[at].hash = hash;
		d->n++;
		if (d->index_size)
			index_entry(d, at);
	}
	d->entry[at].value = *value;
	return 0;
}

/* ---- slices ---- */

/* A bound as Python clamps it: negative counts from the end, then within [low, high]. */
static int64_t clamp_bound(int64_t at, int64_t n, int64_t low, int64_t high)
{
	if (at < 0)
		at = at < -n ? low : at + n;
	return at < low ? low : at > high ? high : at;
}

struct slice {
	int64_t start, stop, step, n;
};

static int resolve_slice(struct render *r, const struct value bound[3], int64_t len,
			 struct slice *ret)
{
	int64_t at[3] = {0, 0, 1}, stop, low, high;

	for (int i = 0; i < 3; i++)
		if (bound[i].type != V_NONE && !value_index(&bound[i], &at[i]))
			return render_fail(r, EINVAL,
					   "slice indices must be integers or None, not '%s'",
					   value_type_name(&bound[i]));
	if (!at[2])
		return render_fail(r, EINVAL, "slice step cannot be zero");
	if (at[2] < -INT64_MAX)
		at[2] = -INT64_MAX;
	low = at[2] > 0 ? 0 : -1;
	high = at[2] > 0 ? len : len - 1;
	ret->step = at[2];
	ret->start = bound[0].type != V_NONE ? clamp_bound(at[0], len, low, high)
		     : at[2] > 0	     ? low
					     : high;
	stop = bound[1].type != V_NONE ? clamp_bound(at[1], len, low, high)
	       : at[2] > 0	       ? high
				       : low;
	ret->stop = stop;
	if (at[2] > 0)
		ret->n = stop > ret->start ? (stop - ret->start - 1) / at[2] + 1 : 0;
	else
		ret->n = stop < ret->start ? (ret->start - stop - 1) / -at[2] + 1 : 0;
	return 0;
}

static int slice_text(struct render *r, const struct value *v, const struct slice *s, int64_t len,
		      struct value *ret)
{
	size_t begin, end, start;
	uint32_t *offset;
	uint32_t cp;
	int rc;

	if (s->step == 1 || s->n == 0) {
		begin = pystr_offset(v->s, v->len, (size_t)s->start);
		end = begin + pystr_offset(v->s + begin, v->len - begin, (size_t)s->n);
		*ret = value_str(v->s + begin, end - begin);
		return 0;
	}
	if (v->len > UINT32_MAX)
		return render_fail(r, E2BIG, "too long a text for a slice");
	offset = render_alloc(r, (size_t)len + 1, sizeof(*offset));
	if (!offset)
		return -r->err->code;
	for (size_t i = 0, at = 0; i < (size_t)len; i++) {
		offset[i] = (uint32_t)at;
		at += pystr_next(v->s + at, v->len - at, &cp);
	}
	offset[len] = (uint32_t)v->len;
	rc = render_charge(r, (size_t)s->n);
	if (rc < 0)
		return rc;
	start = text_begin(r);
	for (int64_t k = 0; k < s->n; k++) {
		int64_t i = s->start + k * s->step;

		buf_append(&r->scratch, v->s + offset[i], offset[i + 1] - offset[i]);
	}
	return text_end(r, start, ret);
}

int value_slice(struct render *r, const struct value *v, const struct value bound[3],
		struct value *ret)
{
	struct slice s = {0};
	int64_t len;
	int rc;

	if (v->type == V_UNDEFINED)
		return value_fail_undefined(r, v);
	if (v->type != V_STR && v->type != V_LIST && v->type != V_TUPLE && v->type != V_RANGE)
		return render_fail(r, EINVAL, "'%s' object cannot be sliced", value_type_name(v));
	rc = render_charge_bytes(r, v->type == V_STR ? v->len : 0);
	if (rc < 0)
		return rc;
	len = value_len(v);
	rc = resolve_slice(r, bound, len, &s);
	if (rc < 0)
		return rc;
	if (v->type == V_STR) {
		rc = slice_text(r, v, &s, len, ret);
		ret->safe = v->safe;
		return rc;
	}
	if (v->type == V_RANGE) {
		struct range *range = render_alloc(r, 1, sizeof(*range));

		if (!range)
			return -r->err->code;
		if (__builtin_mul_overflow(s.step, v->range->step, &range->step))
			return render_fail(r, EINVAL, "integer overflow (64 bits)");
		range->n = (size_t)s.n;
		/* modulo 2^64: the bound behind the last item may lie outside of 64 bits */
		range->start = (int64_t)((uint64_t)v->range->start +
					 (uint64_t)s.start * (uint64_t)v->range->step);
		range->stop = (int64_t)((uint64_t)v->range->start +
					(uint64_t)s.stop * (uint64_t)v->range->step);
		*ret = (struct value){.type = V_RANGE, .range = range};
		return 0;
	}
	rc = render_charge(r, (size_t)s.n);
	if (rc < 0)
		return rc;
	rc = value_new_list(r, v->type, (size_t)s.n, ret);
	for (int64_t k = 0; k < s.n && !rc; k++)
		ret->list->v[k] = value_item(v, (size_t)(s.start + k * s.step));
	return rc;
}

int value_at(struct render *r, const struct value *v, int64_t index, struct value *ret)
{
	int64_t len;
	size_t at;
	uint32_t cp;
	int rc;

	if (v->type != V_STR) {
		len = value_len(v);
		if (index < 0)
			index += len;
		if (index < 0 || index >= len)
			return 0;
		*ret = value_item(v, (size_t)index);
		return 1;
	}
	rc = render_charge_bytes(r, v->len);
	if (rc < 0)
		return rc;
	if (index < 0)
		index += value_len(v);
	if (index < 0)
		return 0;
	at = pystr_offset(v->s, v->len, (size_t)index);
	if (at == v->len)
		return 0;
	*ret = value_str(v->s + at, pystr_next(v->s + at, v->len - at, &cp));
	ret->safe = v->safe;
	return 1;
}

/* ---- iterators ---- */

static int next_item(struct render *r, struct iter *it, struct value *ret)
{
	if (it->cursor.pos >= (size_t)value_len(&it->from))
		return 0;
	*ret = value_item(&it->from, it->cursor.pos++);
	return 1;
}

static int next_item_back(struct render *r, struct iter *it, struct value *ret)
{
	size_t n = (size_t)value_len(&it->from);

	if (it->cursor.pos >= n)
		return 0;
	*ret = value_item(&it->from, n - 1 - it->cursor.pos++);
	return 1;
}

static int next_char(struct render *r, struct iter *it, struct value *ret)
{
	uint32_t cp;
	size_t at = it->cursor.pos, len;

	if (at >= it->from.len)
		return 0;
	len = pystr_next(it->from.s + at, it->from.len - at, &cp);
	*ret = value_str(it->from.s + at, len);
	it->cursor.pos += len;
	return 1;
}

static int next_char_back(struct render *r, struct iter *it, struct value *ret)
{
	size_t left = it->from.len - it->cursor.pos, len;
	uint32_t cp;

	if (!left)
		return 0;
	len = pystr_prev(it->from.s, left, &cp);
	*ret = value_str(it->from.s + left - len, len);
	it->cursor.pos += len;
	return 1;
}

static int next_key(struct render *r, struct iter *it, struct value *ret)
{
	struct value v;

	return dict_next(&it->from, &it->cursor, ret, &v);
}

static int next_view(struct render *r, struct iter *it, struct value *ret)
{
	const struct view *view = it->from.view;
	struct value k, v;
	int rc;

	if (!dict_next(&view->dict, &it->cursor, &k, &v))
		return 0;
	switch (view->kind) {
	case VIEW_KEYS: *ret = k; return 1;
	case VIEW_VALUES: *ret = v; return 1;
	case VIEW_ITEMS: break;
	}
	rc = value_new_pair(r, k, v, ret);
	return rc < 0 ? rc : 1;
}

static int next_nothing(struct render *r, struct iter *it, struct value *ret)
{
	return 0;
}

static int new_iter(struct render *r, const struct value *from,
		    int (*next)(struct render *, struct iter *, struct value *), struct iter **ret)
{
	struct iter *it = render_alloc(r, 1, sizeof(*it));

	if (!it)
		return -r->err->code;
	it->next = next;
	it->from = *from;
	*ret = it;
	return 1;
}

int value_try_iter(struct render *r, const struct value *v, struct iter **ret)
{
	switch (v->type) {
	case V_LIST:
	case V_TUPLE:
	case V_RANGE: return new_iter(r, v, next_item, ret);
	case V_STR: return new_iter(r, v, next_char, ret);
	case V_DICT: return new_iter(r, v, next_key, ret);
	case V_VIEW: return new_iter(r, v, next_view, ret);
	case V_UNDEFINED: return new_iter(r, v, next_nothing, ret);
	case V_LOOP: return new_iter(r, v, loop_step, ret);
	case V_ITER: *ret = v->iter; return 1;
	default: return 0;
	}
}

int value_iter(struct render *r, const struct value *v, struct iter **ret)
{
	int rc = value_try_iter(r, v, ret);

	if (!rc)
		return render_fail(r, EINVAL, "'%s' object is not iterable", value_type_name(v));
	return rc < 0 ? rc : 0;
}

int iter_next(struct render *r, struct iter *it, struct value *ret)
{
	int rc;

	if (it->done)
		return 0;
	rc = render_charge(r, 1);
	if (!rc)
		rc = render_enter(r); /* a generator may be built on a long chain of others */
	if (rc < 0)
		return rc;
	rc = it->next(r, it, ret);
	render_leave(r);
	if (rc <= 0)
		it->done = true;
	return rc;
}

int value_try_reversed(struct render *r, const struct value *v, struct iter **ret)
{
	struct value all;
	int rc;

	switch (v->type) {
	case V_LIST:
	case V_TUPLE:
	case V_RANGE: return new_iter(r, v, next_item_back, ret);
	case V_STR: return new_iter(r, v, next_char_back, ret);
	case V_UNDEFINED: return new_iter(r, v, next_nothing, ret);
	case V_DICT:
	case V_VIEW:
		rc = value_to_list(r, v, &all);
		return rc < 0 ? rc : new_iter(r, &all, next_item_back, ret);
	default: return 0;
	}
}

int value_to_list(struct render *r, const struct value *v, struct value *ret)
{
	struct iter *it;
	struct value item;
	int rc = value_iter(r, v, &it);

	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	if (rc < 0)
		return rc;
	while ((rc = iter_next(r, it, &item)) > 0) {
		rc = list_push(r, ret->list, &item);
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* ---- sorting ---- */

/* Merges order[low, middle) and order[middle, high), which are sorted, into `to`. */
static int merge(struct render *r, const struct value *keys, const size_t *order, size_t *to,
		 const size_t bounds[3], bool reverse)
{
	size_t i = bounds[0], k = bounds[1], at = bounds[0];
	int c, rc;

	while (i < bounds[1] && k < bounds[2]) {
		/* The right one goes first only when it has to: the sort is stable, reversed too.
		 */
		const struct value *left = &keys[order[i]], *right = &keys[order[k]];

		rc = reverse ? value_compare(r, left, right, "<", &c)
			     : value_compare(r, right, left, "<", &c);
		if (rc < 0)
			return rc;
		to[at++] = c == -1 ? order[k++] : order[i++];
	}
	while (i < bounds[1])
		to[at++] = order[i++];
	while (k < bounds[2])
		to[at++] = order[k++];
	return 0;
}

int value_sort(struct render *r, const struct value *keys, size_t n, bool reverse, size_t **ret)
{
	size_t *order = render_alloc(r, n, sizeof(*order));
	size_t *to = render_alloc(r, n, sizeof(*to));
	int rc;

	if (!order || !to)
		return -r->err->code;
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t width = 1; width < n; width *= 2) {
		size_t *swap = order;

		for (size_t low = 0; low < n; low += 2 * width) {
			size_t bounds[3] = {low, MIN(low + width, n), MIN(low + 2 * width, n)};

			rc = merge(r, keys, order, to, bounds, reverse);
			if (rc < 0)
				return rc;
		}
		order = to;
		to = swap;
	}
	*ret = order;
	return 0;
}
