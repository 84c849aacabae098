#include "protocol/jinja/seq.h"

#include <string.h>

#include "protocol/jinja/dict.h"
#include "protocol/jinja/text.h"

/* ---- walking ---- */

static struct list *characters(struct render *r, struct value v)
{
	struct list *l = list_new(r, 0);
	uint32_t cp;

	for (size_t at = 0, len; at < v.len && render_charge(r, 1); at += len) {
		len = text_next(v.s + at, v.len - at, &cp);
		list_push(r, l, value_str(v.s + at, len));
	}
	return l;
}

static struct list *keys(struct render *r, const struct dict *d)
{
	struct list *l = list_new(r, d->n);

	for (size_t i = 0; l && i < d->n; i++)
		l->v[i] = d->entry[i].key;
	return l;
}

struct iter *value_iter(struct render *r, struct value v, struct iter *local)
{
	struct list *items = NULL;

	if (value_has_items(v))
		items = v.list;
	else if (v.type == V_ITER)
		return v.iter;
	else if (v.type == V_STR)
		items = characters(r, v);
	else if (v.type == V_DICT)
		items = keys(r, v.dict);
	else if (v.type == V_UNDEFINED)
		items = list_new(r, 0);
	else if (v.type == V_LOOP)
		render_fail(r, EINVAL,
			    "'loop' itself as a list is not supported in chat templates");
	else
		render_fail(r, EINVAL, "'%s' object is not iterable", value_type_name(v));
	*local = (struct iter){.items = items};
	return items ? local : NULL;
}

bool iter_next(struct render *r, struct iter *it, struct value *ret)
{
	if (!it || r->rc)
		return false;
	if (!it->items && render_enter(r)) {
		/* this recurses: a generator may be built on a long chain of others */
		it->items = it->make(r, it);
		r->depth--;
	}
	while (render_charge(r, 1) && it->items && it->pos < it->items->n) {
		*ret = it->items->v[it->pos++];
		if (!it->keep || it->keep(r, it, *ret))
			return !r->rc;
	}
	return false;
}

struct list *value_items(struct render *r, struct value v)
{
	struct iter local, *it = value_iter(r, v, &local);
	struct list *l;
	struct value item;

	if (it == &local)
		return it->items;
	l = list_new(r, 0);
	while (iter_next(r, it, &item))
		list_push(r, l, item);
	return r->rc ? NULL : l;
}

struct value value_to_list(struct render *r, struct value v)
{
	const struct list *from = value_items(r, v);
	struct list *l = from && render_charge(r, from->n) ? list_new(r, from->n) : NULL;

	if (l && l->n)
		memcpy(l->v, from->v, l->n * sizeof(*l->v));
	return value_of_list(V_LIST, l);
}

static bool contains_text(struct render *r, struct value v, struct value item)
{
	if (item.type != V_STR) {
		value_fail_type(r, "'in <string>'", "a string on the left", item);
		return false;
	}
	return render_charge_bytes(r, v.len) && text_find(v.s, v.len, item.s, item.len) != SIZE_MAX;
}

bool value_contains(struct render *r, struct value v, struct value item)
{
	struct iter local, *it;
	struct value other;
	uint64_t hash;

	if (v.type == V_STR)
		return contains_text(r, v, item);
	if (v.type == V_DICT)
		return dict_find(r, v.dict, item) != NULL;
	if (v.type == V_KEYS && !value_hash(r, item, &hash))
		return render_fail(r, EINVAL, "unhashable type: '%s'", value_type_name(item));
	for (it = value_iter(r, v, &local); iter_next(r, it, &other);)
		if (value_equal(r, other, item))
			return true;
	return false;
}

/* ---- indices and slices ---- */

struct value value_at(struct render *r, struct value v, int64_t index)
{
	int64_t len;
	uint32_t cp;
	size_t at;

	if (v.type == V_STR && !render_charge_bytes(r, v.len))
		return NOTHING;
	len = v.type == V_STR && index >= 0 ? INT64_MAX : value_len(v);
	if (index < 0)
		index += len;
	if (index < 0 || index >= len)
		return NOTHING;
	if (v.type != V_STR)
		return v.list->v[index];
	at = text_offset(v.s, v.len, (size_t)index);
	if (at == v.len)
		return NOTHING;
	return value_piece(v, at, at + text_next(v.s + at, v.len - at, &cp));
}

struct slice {
	int64_t start, stop, step, n;
};

/* Clamps a bound as Python does: a negative bound counts from the end, and the result is brought within [low, high]. */
static int64_t clamp(int64_t at, int64_t n, int64_t low, int64_t high)
{
	if (at < 0)
		at = at < -n ? low : at + n;
	return at < low ? low : at > high ? high : at;
}

static bool resolve_slice(struct render *r, const struct value bound[3], int64_t len,
			  struct slice *ret)
{
	int64_t at[3] = {0, 0, 1}, low, high, span;
	bool up;

	for (int i = 0; i < 3; i++)
		if (bound[i].type != V_NONE && !value_index(bound[i], &at[i]))
			return render_fail(r, EINVAL,
					   "slice indices must be integers or None, not '%s'",
					   value_type_name(bound[i]));
	if (!at[2])
		return render_fail(r, EINVAL, "slice step cannot be zero");
	at[2] = MAX(at[2], -INT64_MAX);
	up = at[2] > 0;
	low = up ? 0 : -1;
	high = up ? len : len - 1;
	ret->step = at[2];
	ret->start = bound[0].type != V_NONE ? clamp(at[0], len, low, high) : up ? low : high;
	ret->stop = bound[1].type != V_NONE ? clamp(at[1], len, low, high) : up ? high : low;
	span = up ? ret->stop - ret->start : ret->start - ret->stop;
	ret->n = span > 0 ? (span - 1) / (up ? at[2] : -at[2]) + 1 : 0;
	return true;
}

static struct value slice_text(struct render *r, struct value v, const struct slice *s)
{
	size_t start = r->scratch.len, begin, end;
	struct list *all;

	if (s->step == 1 || s->n == 0) {
		begin = text_offset(v.s, v.len, (size_t)s->start);
		end = begin + text_offset(v.s + begin, v.len - begin, (size_t)s->n);
		return value_piece(v, begin, end);
	}
	all = characters(r, v);
	for (int64_t k = 0; k < s->n && all && render_charge(r, 1); k++) {
		struct value c = all->v[s->start + k * s->step];

		buf_append(&r->scratch, c.s, c.len);
	}
	return value_take(r, start);
}

struct value value_slice(struct render *r, struct value v, const struct value bound[3])
{
	struct slice s = {0};
	struct list *l;

	if (v.type == V_RANGE)
		return value_fail(r, "a slice of a range is not supported in chat templates");
	if (v.type != V_STR && !value_is_list(v))
		return value_fail_type(r, "a slice", "a string or list", v);
	if (!render_charge_bytes(r, v.type == V_STR ? v.len : 0) ||
	    !resolve_slice(r, bound, value_len(v), &s))
		return NOTHING;
	if (v.type == V_STR) {
		struct value text = slice_text(r, v, &s);

		text.safe = v.safe;
		return text;
	}
	l = render_charge(r, (size_t)s.n) ? list_new(r, (size_t)s.n) : NULL;
	for (int64_t k = 0; k < s.n && l; k++)
		l->v[k] = v.list->v[s.start + k * s.step];
	return value_of_list(v.type, l);
}

/* ---- order ---- */

struct list *value_reversed(struct render *r, struct value v)
{
	struct iter local;
	struct list *l;

	if (!value_has_items(v) && v.type != V_STR && v.type != V_DICT && v.type != V_UNDEFINED)
		return NULL;
	if (!value_iter(r, v, &local) || !render_charge(r, local.items->n))
		return NULL;
	l = list_new(r, local.items->n);
	for (size_t i = 0; l && i < l->n; i++)
		l->v[i] = local.items->v[l->n - 1 - i];
	return l;
}

/* Merges order[low, middle) and order[middle, high), which are sorted, into `to`. bounds: low, middle, high. */
static void merge(struct render *r, const struct value *keys, const size_t *order, size_t *to,
		  const size_t bounds[3], bool reverse)
{
	size_t i = bounds[0], k = bounds[1];

	for (size_t at = bounds[0]; at < bounds[2]; at++) {
		/* Of items with equal keys the left one goes first, also with `reverse`: the sort is stable. */
		bool right = i == bounds[1];

		if (!right && k < bounds[2])
			right = (reverse ? value_compare(r, keys[order[i]], keys[order[k]], "<")
					 : value_compare(r, keys[order[k]], keys[order[i]], "<")) ==
				-1;
		to[at] = right ? order[k++] : order[i++];
	}
}

struct list *value_sorted(struct render *r, const struct list *items, const struct value *keys,
			  bool reverse)
{
	size_t n = items->n, *order = render_alloc(r, n, sizeof(*order));
	size_t *to = render_alloc(r, n, sizeof(*to)), *swap;
	struct list *l = list_new(r, n);

	if (!order || !to || !l)
		return NULL;
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t width = 1; width < n && !r->rc; width *= 2) {
		for (size_t low = 0; low < n; low += 2 * width) {
			size_t bounds[3] = {low, MIN(low + width, n), MIN(low + 2 * width, n)};

			merge(r, keys, order, to, bounds, reverse);
		}
		swap = order;
		order = to;
		to = swap;
	}
	for (size_t i = 0; i < n; i++)
		l->v[i] = items->v[order[i]];
	return r->rc ? NULL : l;
}
