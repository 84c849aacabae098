/*
 * Filters on lists, dicts and whatever else can be walked. As in jinja2 some of them give
 * generators: nothing happens until an item is asked for, and the items can be walked only once.
 */
#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_eval.h"
#include "protocol/text/jinja_methods.h"
#include "protocol/text/jinja_pystr.h"

#define FILTER(name)                                                                         \
	static int name(struct render *r, const struct value *self, const struct value *arg, \
			struct value *ret)

/* ---- the key that an item is sorted, grouped or mapped by ---- */

/* "a.b.0": members of members; empty for the item itself. */
struct path {
	size_t n;
	const struct value *part;
};

static int parse_path(struct render *r, const struct value *attribute, struct path *ret)
{
	struct value parts, one;
	size_t from = 0, at;
	int rc = value_new_list(r, V_LIST, 0, &parts);

	*ret = (struct path){0};
	if (rc < 0 || attribute->type == V_MISSING || attribute->type == V_NONE)
		return rc;
	if (attribute->type != V_STR) {
		rc = list_push(r, parts.list, attribute);
	} else {
		while (!rc && from <= attribute->len) {
			int64_t i;

			at = pystr_find(attribute->s + from, attribute->len - from, ".", 1);
			at = at == SIZE_MAX ? attribute->len : from + at;
			one = value_str(attribute->s + from, at - from);
			if (one.len && strspn(one.s, "0123456789") >= one.len &&
			    text_to_int(one.s, one.len, 10, &i) == PARSE_INT_OK)
				one = value_int(i);
			rc = list_push(r, parts.list, &one);
			from = at + 1;
		}
	}
	*ret = (struct path){parts.list->n, parts.list->v};
	return rc;
}

/* `other` stands for members that are not there, unless it is missing or none. */
static int follow(struct render *r, const struct path *path, const struct value *other,
		  const struct value *item, struct value *ret)
{
	int rc = 0;

	*ret = *item;
	for (size_t i = 0; i < path->n && !rc; i++) {
		rc = value_getitem(r, ret, &path->part[i], ret);
		if (!rc && ret->type == V_UNDEFINED && other && other->type != V_MISSING &&
		    other->type != V_NONE)
			*ret = *other;
	}
	return rc;
}

static int ignore_case(struct render *r, bool case_sensitive, struct value *v)
{
	size_t start = text_begin(r);

	if (case_sensitive || v->type != V_STR)
		return 0;
	pystr_recase(&r->scratch, v->s, v->len, PYSTR_LOWER);
	return text_end(r, start, v);
}

struct key {
	struct path path;
	bool case_sensitive;
	const struct value *other;
};

static int key_of(struct render *r, const struct key *key, const struct value *item,
		  struct value *ret)
{
	int rc = follow(r, &key->path, key->other, item, ret);

	return rc < 0 ? rc : ignore_case(r, key->case_sensitive, ret);
}

/* ---- generators ---- */

static int new_generator(struct render *r, const struct value *from, const struct iter *as,
			 struct value *ret)
{
	struct iter *it = render_alloc(r, 1, sizeof(*it));

	if (!it)
		return -r->err->code;
	*it = *as;
	it->from = *from;
	*ret = (struct value){.type = V_ITER, .iter = it};
	return 0;
}

/* A generator that makes the whole list once it is asked for its first item. */
struct deferred {
	int (*make)(struct render *r, const struct value *self, const struct value *arg,
		    struct value *ret);
	struct value arg[BUILTIN_PARAMS];
};

static int next_deferred(struct render *r, struct iter *it, struct value *ret)
{
	const struct deferred *d = it->state;
	struct value all;
	int rc;

	if (!it->inner) {
		rc = d->make(r, &it->from, d->arg, &all);
		if (!rc)
			rc = value_iter(r, &all, &it->inner);
		if (rc < 0)
			return rc;
	}
	return iter_next(r, it->inner, ret);
}

static int defer(struct render *r, const struct value *self, const struct value *arg,
		 int (*make)(struct render *, const struct value *, const struct value *,
			     struct value *),
		 struct value *ret)
{
	struct deferred *d = render_alloc(r, 1, sizeof(*d));

	if (!d)
		return -r->err->code;
	d->make = make;
	memcpy(d->arg, arg, sizeof(d->arg));
	return new_generator(r, self, &(struct iter){.next = next_deferred, .state = d}, ret);
}

/* ---- map, select, reject, selectattr, rejectattr ---- */

struct pipeline {
	struct args args; /* as the filter was called */
	bool by_attribute, negate;
	bool ready;
	struct path path;
	const struct value *other; /* map(attribute=..., default=...) */
	const struct value *name;  /* of the filter or test, or NULL */
	struct args rest;	   /* its arguments */
};

static int new_pipeline(struct render *r, const struct value *self, const struct args *args,
			const struct pipeline *as,
			int (*next)(struct render *, struct iter *, struct value *),
			struct value *ret)
{
	struct pipeline *p = render_alloc(r, 1, sizeof(*p));
	struct value *v = render_alloc(r, args->n, sizeof(*v));
	struct kwarg *kw = render_alloc(r, args->nkw, sizeof(*kw));

	if (!p || !v || !kw)
		return -r->err->code;
	*p = *as;
	if (args->n)
		memcpy(v, args->v, args->n * sizeof(*v));
	if (args->nkw)
		memcpy(kw, args->kw, args->nkw * sizeof(*kw));
	p->args = (struct args){args->n, args->nkw, v, kw};
	return new_generator(r, self, &(struct iter){.next = next, .state = p}, ret);
}

static const struct value *find_kwarg(const struct args *args, const char *name)
{
	for (size_t i = 0; i < args->nkw; i++)
		if (args->kw[i].len == strlen(name) &&
		    !memcmp(args->kw[i].name, name, args->kw[i].len))
			return &args->kw[i].value;
	return NULL;
}

static int prepare_map(struct render *r, struct pipeline *p)
{
	const struct value *attribute = find_kwarg(&p->args, "attribute");

	if (p->args.n || !attribute) {
		if (!p->args.n)
			return render_fail(r, EINVAL, "map requires a filter or an attribute");
		p->name = p->args.v;
		p->rest = (struct args){p->args.n - 1, p->args.nkw, p->args.v + 1, p->args.kw};
		return 0;
	}
	p->by_attribute = true;
	p->other = find_kwarg(&p->args, "default");
	if (p->args.nkw > 1u + (p->other != NULL))
		return render_fail(r, EINVAL, "map: unexpected keyword argument");
	return parse_path(r, attribute, &p->path);
}

static int prepare_select(struct render *r, struct pipeline *p)
{
	size_t skip = p->by_attribute;

	if (p->args.n < skip)
		return render_fail(r, EINVAL, "missing parameter for attribute name");
	if (p->args.n > skip) {
		p->name = p->args.v + skip;
		p->rest = (struct args){p->args.n - skip - 1, p->args.nkw, p->args.v + skip + 1,
					p->args.kw};
	}
	return p->by_attribute ? parse_path(r, &p->args.v[0], &p->path) : 0;
}

/* Looks at the arguments when the first item is asked for; an empty input never does. */
static int begin_pipeline(struct render *r, struct iter *it,
			  int (*prepare)(struct render *, struct pipeline *))
{
	struct pipeline *p = (struct pipeline *)it->state;
	int rc;

	if (p->ready)
		return 1;
	if (!value_truth(&it->from))
		return 0;
	rc = prepare(r, p);
	if (!rc)
		rc = value_iter(r, &it->from, &it->inner);
	p->ready = true;
	return rc < 0 ? rc : 1;
}

static int next_mapped(struct render *r, struct iter *it, struct value *ret)
{
	const struct pipeline *p = it->state;
	struct value item;
	int rc = begin_pipeline(r, it, prepare_map);

	if (rc > 0)
		rc = iter_next(r, it->inner, &item);
	if (rc <= 0)
		return rc;
	rc = p->by_attribute ? follow(r, &p->path, p->other, &item, ret)
			     : builtin_call_filter(r, p->name, &item, &p->rest, ret);
	return rc < 0 ? rc : 1;
}

static int next_selected(struct render *r, struct iter *it, struct value *ret)
{
	const struct pipeline *p = it->state;
	struct value v;
	bool holds;
	int rc = begin_pipeline(r, it, prepare_select);

	while (rc > 0) {
		rc = iter_next(r, it->inner, ret);
		if (rc <= 0)
			return rc;
		rc = follow(r, &p->path, NULL, ret, &v);
		holds = rc == 0 && value_truth(&v);
		if (!rc && p->name)
			rc = builtin_call_test(r, p->name, &v, &p->rest, &holds);
		if (rc < 0)
			return rc;
		if (holds != p->negate)
			return 1;
		rc = 1;
	}
	return rc;
}

static int filter_map(struct render *r, const struct value *self, const struct args *args,
		      struct value *ret)
{
	return new_pipeline(r, self, args, &(struct pipeline){0}, next_mapped, ret);
}

static int filter_select(struct render *r, const struct value *self, const struct args *args,
			 struct value *ret)
{
	return new_pipeline(r, self, args, &(struct pipeline){0}, next_selected, ret);
}

static int filter_reject(struct render *r, const struct value *self, const struct args *args,
			 struct value *ret)
{
	return new_pipeline(r, self, args, &(struct pipeline){.negate = true}, next_selected, ret);
}

static int filter_selectattr(struct render *r, const struct value *self, const struct args *args,
			     struct value *ret)
{
	return new_pipeline(r, self, args, &(struct pipeline){.by_attribute = true}, next_selected,
			    ret);
}

static int filter_rejectattr(struct render *r, const struct value *self, const struct args *args,
			     struct value *ret)
{
	return new_pipeline(r, self, args, &(struct pipeline){.by_attribute = true, .negate = true},
			    next_selected, ret);
}

/* ---- sizes and ends ---- */

FILTER(filter_length)
{
	int64_t n = value_len(self);
	int rc;

	if (self->type == V_LOOP) {
		rc = loop_attribute(r, self->loop, "length", 6, ret);
		return rc < 0 ? rc : 0;
	}
	if (n < 0)
		return render_fail(r, EINVAL, "object of type '%s' has no len()",
				   value_type_name(self));
	*ret = value_int(n);
	return render_charge_bytes(r, self->type == V_STR ? self->len : 0);
}

FILTER(filter_first)
{
	struct iter *it;
	int rc = value_iter(r, self, &it);

	if (!rc)
		rc = iter_next(r, it, ret);
	else
		return rc;
	return rc ? MIN(rc, 0) : value_undefined_hint(r, "No first item, sequence was empty.", ret);
}

FILTER(filter_last)
{
	struct iter *it;
	int rc = value_try_reversed(r, self, &it);

	if (!rc)
		return render_fail(r, EINVAL, "last: '%s' object is not reversible",
				   value_type_name(self));
	if (rc > 0)
		rc = iter_next(r, it, ret);
	return rc ? MIN(rc, 0) : value_undefined_hint(r, "No last item, sequence was empty.", ret);
}

FILTER(filter_list)
{
	return value_to_list(r, self, ret);
}

FILTER(filter_reverse)
{
	struct value bound[3] = {value_none(), value_none(), value_int(-1)};
	struct value all;
	struct iter *it;
	int rc;

	if (self->type == V_STR)
		return value_slice(r, self, bound, ret);
	rc = value_try_reversed(r, self, &it);
	if (rc > 0)
		*ret = (struct value){.type = V_ITER, .iter = it};
	if (rc)
		return MIN(rc, 0);
	rc = value_to_list(r, self, &all);
	return rc < 0 ? rc : value_slice(r, &all, bound, ret);
}

static int make_items(struct render *r, const struct value *self, const struct value *arg,
		      struct value *ret)
{
	struct view *view;

	if (self->type == V_UNDEFINED) {
		*ret = *self;
		return 0;
	}
	if (self->type != V_DICT)
		return render_fail(r, EINVAL, "items: '%s' is not a mapping",
				   value_type_name(self));
	view = render_alloc(r, 1, sizeof(*view));
	if (!view)
		return -r->err->code;
	*view = (struct view){VIEW_ITEMS, *self};
	*ret = (struct value){.type = V_VIEW, .view = view};
	return 0;
}

FILTER(filter_items)
{
	return defer(r, self, arg, make_items, ret);
}

FILTER(filter_join)
{
	size_t start = text_begin(r);
	struct value glue = value_cstr(""), item;
	struct path path;
	struct iter *it;
	bool first = true;
	int rc = arg[0].type == V_MISSING ? 0 : value_to_str(r, &arg[0], &glue);

	if (!rc)
		rc = parse_path(r, &arg[1], &path);
	if (!rc)
		rc = value_iter(r, self, &it);
	if (rc < 0)
		return rc;
	for (; (rc = iter_next(r, it, &item)) > 0; first = false) {
		if (!first)
			buf_append(&r->scratch, glue.s, glue.len);
		rc = follow(r, &path, NULL, &item, &item);
		if (!rc)
			rc = value_write_str(r, &r->scratch, &item);
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? rc : text_end(r, start, ret);
}

/* ---- order ---- */

/* A list of the items, and the key of each. */
static int keys_of(struct render *r, const struct value *self, const struct key *key,
		   struct value *items, struct value **ret)
{
	int rc = value_to_list(r, self, items);

	if (rc < 0)
		return rc;
	*ret = render_alloc(r, items->list->n, sizeof(**ret));
	if (!*ret)
		return -r->err->code;
	for (size_t i = 0; i < items->list->n && !rc; i++)
		rc = key_of(r, key, &items->list->v[i], &(*ret)[i]);
	return rc;
}

/* The items in the order of their keys; reverse is the filter's argument. */
static int in_order(struct render *r, const struct value *items, const struct value *keys,
		    const struct value *reverse, struct value *ret)
{
	size_t n = items->list->n, *order = NULL;
	int64_t back = 0;
	int rc = reverse->type == V_MISSING ? 0 : arg_int(r, "sort", reverse, &back);

	if (!rc)
		rc = value_sort(r, keys, n, back != 0, &order);
	if (!rc)
		rc = value_new_list(r, V_LIST, n, ret);
	for (size_t i = 0; i < n && !rc; i++)
		ret->list->v[i] = items->list->v[order[i]];
	return rc;
}

/* Adds the key that `attribute` stands for to the list each item is sorted by. */
static int add_keys(struct render *r, const struct list *items, const struct value *attribute,
		    bool case_sensitive, struct value *keys)
{
	struct key by = {.case_sensitive = case_sensitive};
	struct value key;
	int rc = parse_path(r, attribute, &by.path);

	for (size_t i = 0; i < items->n && !rc; i++) {
		rc = key_of(r, &by, &items->v[i], &key);
		if (!rc)
			rc = list_push(r, keys[i].list, &key);
	}
	return rc;
}

/* attribute may be several, "a,b". Lists of keys are compared, also when there is only one. */
FILTER(filter_sort)
{
	const struct value *attribute = &arg[2];
	bool case_sensitive = value_truth(&arg[1]);
	struct value items, *keys;
	size_t from = 0, at;
	int rc = value_to_list(r, self, &items);

	if (rc < 0)
		return rc;
	keys = render_alloc(r, items.list->n, sizeof(*keys));
	if (!keys)
		return -r->err->code;
	for (size_t i = 0; i < items.list->n && !rc; i++)
		rc = value_new_list(r, V_LIST, 0, &keys[i]);
	if (!rc && attribute->type != V_STR)
		rc = add_keys(r, items.list, attribute, case_sensitive, keys);
	while (!rc && attribute->type == V_STR && from <= attribute->len) {
		struct value name;

		at = pystr_find(attribute->s + from, attribute->len - from, ",", 1);
		at = at == SIZE_MAX ? attribute->len : from + at;
		name = value_str(attribute->s + from, at - from);
		rc = add_keys(r, items.list, &name, case_sensitive, keys);
		from = at + 1;
	}
	return rc < 0 ? rc : in_order(r, &items, keys, &arg[0], ret);
}

FILTER(filter_dictsort)
{
	bool case_sensitive = value_truth(&arg[0]);
	struct value by = arg[1].type == V_MISSING ? value_cstr("key") : arg[1], items, view;
	struct key key = {.case_sensitive = case_sensitive};
	struct value position, *keys;
	int rc = 0;

	if (by.type != V_STR ||
	    ((by.len != 3 || memcmp(by.s, "key", 3)) && (by.len != 5 || memcmp(by.s, "value", 5))))
		return render_fail(r, EINVAL, "dictsort: you can sort by \"key\" or \"value\"");
	if (self->type == V_UNDEFINED)
		return value_fail_undefined(r, self);
	position = value_int(by.len == 5);
	rc = make_items(r, self, NULL, &view);
	if (!rc)
		rc = parse_path(r, &position, &key.path);
	if (!rc)
		rc = keys_of(r, &view, &key, &items, &keys);
	return rc < 0 ? rc : in_order(r, &items, keys, &arg[2], ret);
}

static int make_unique(struct render *r, const struct value *self, const struct value *arg,
		       struct value *ret)
{
	struct key key = {.case_sensitive = value_truth(&arg[0])};
	struct value items, seen, *keys, v;
	int rc = parse_path(r, &arg[1], &key.path);

	if (!rc)
		rc = keys_of(r, self, &key, &items, &keys);
	if (!rc)
		rc = value_new_dict(r, V_DICT, &seen);
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	for (size_t i = 0; !rc && i < items.list->n; i++) {
		rc = dict_find(r, &seen, &keys[i], &v);
		if (rc) {
			rc = MIN(rc, 0);
			continue;
		}
		v = value_bool(true);
		rc = dict_set(r, seen.dict, &keys[i], &v);
		if (!rc)
			rc = list_push(r, ret->list, &items.list->v[i]);
	}
	return rc;
}

FILTER(filter_unique)
{
	return defer(r, self, arg, make_unique, ret);
}

static int extreme(struct render *r, const struct value *self, const struct value *arg, int want,
		   struct value *ret)
{
	struct key key = {.case_sensitive = value_truth(&arg[0])};
	struct value items, *keys;
	size_t best = 0;
	int c, rc = parse_path(r, &arg[1], &key.path);

	if (!rc)
		rc = keys_of(r, self, &key, &items, &keys);
	if (rc < 0)
		return rc;
	if (!items.list->n)
		return value_undefined_hint(r, "No aggregated item, sequence was empty.", ret);
	for (size_t i = 1; i < items.list->n; i++) {
		rc = value_compare(r, &keys[i], &keys[best], want < 0 ? "<" : ">", &c);
		if (rc < 0)
			return rc;
		if (c == want)
			best = i;
	}
	*ret = items.list->v[best];
	return 0;
}

FILTER(filter_min)
{
	return extreme(r, self, arg, -1, ret);
}

FILTER(filter_max)
{
	return extreme(r, self, arg, 1, ret);
}

FILTER(filter_sum)
{
	struct value total = arg[1].type == V_MISSING ? value_int(0) : arg[1], item;
	struct path path;
	struct iter *it;
	int rc = parse_path(r, &arg[0], &path);

	if (!rc && total.type == V_STR)
		rc = render_fail(r, EINVAL, "sum cannot join strings: use join");
	if (!rc)
		rc = value_iter(r, self, &it);
	if (rc < 0)
		return rc;
	while ((rc = iter_next(r, it, &item)) > 0) {
		rc = follow(r, &path, NULL, &item, &item);
		if (!rc)
			rc = value_binary(r, OP_ADD, &total, &item, &total);
		if (rc < 0)
			return rc;
	}
	*ret = total;
	return rc;
}

/* ---- groups ---- */

static int push_group(struct render *r, struct list *groups, const struct value *grouper,
		      const struct value *members)
{
	struct value pair;
	int rc = value_new_pair(r, *grouper, *members, &pair);

	if (rc < 0)
		return rc;
	pair.list->group = true;
	return list_push(r, groups, &pair);
}

FILTER(filter_groupby)
{
	struct key key = {.case_sensitive = value_truth(&arg[2]), .other = &arg[1]};
	struct value items, *keys, members, name;
	size_t *order = NULL, begin = 0;
	bool same;
	int rc = parse_path(r, &arg[0], &key.path);

	if (!rc)
		rc = keys_of(r, self, &key, &items, &keys);
	if (!rc)
		rc = value_sort(r, keys, items.list->n, false, &order);
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	for (size_t i = 0; !rc && i < items.list->n; i++) {
		const struct value *item = &items.list->v[order[i]];

		same = false;
		if (i)
			rc = value_equal(r, &keys[order[begin]], &keys[order[i]], &same);
		if (!rc && !same) {
			begin = i;
			rc = value_new_list(r, V_LIST, 0, &members);
			/* The group's name is the first member's, in its own case. */
			if (!rc)
				rc = follow(r, &key.path, key.other, item, &name);
			if (!rc)
				rc = push_group(r, ret->list, &name, &members);
		}
		if (!rc)
			rc = list_push(r, members.list, item);
	}
	return rc;
}

static int make_batches(struct render *r, const struct value *self, const struct value *arg,
			struct value *ret)
{
	bool fill = arg[1].type != V_MISSING && arg[1].type != V_NONE;
	struct value items, batch;
	int64_t size;
	int rc = value_to_list(r, self, &items);

	if (!value_index(&arg[0], &size)) {
		if (!rc && fill)
			rc = arg_int(r, "batch", &arg[0], &size);
		size = -1; /* no batch is ever full */
	}
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, &batch);
	for (size_t i = 0; !rc && i < items.list->n; i++) {
		if ((int64_t)batch.list->n == size) {
			rc = list_push(r, ret->list, &batch);
			if (!rc)
				rc = value_new_list(r, V_LIST, 0, &batch);
		}
		if (!rc)
			rc = list_push(r, batch.list, &items.list->v[i]);
	}
	if (rc < 0 || !batch.list->n)
		return rc;
	while (!rc && fill && (int64_t)batch.list->n < size) {
		rc = render_charge(r, 1);
		if (!rc)
			rc = list_push(r, batch.list, &arg[1]);
	}
	return rc < 0 ? rc : list_push(r, ret->list, &batch);
}

FILTER(filter_batch)
{
	return defer(r, self, arg, make_batches, ret);
}

static int make_slices(struct render *r, const struct value *self, const struct value *arg,
		       struct value *ret)
{
	bool fill = arg[1].type != V_MISSING && arg[1].type != V_NONE;
	struct value items, part;
	int64_t slices, at = 0, each, longer;
	int rc = arg_int(r, "slice", &arg[0], &slices);

	if (!rc && !slices)
		rc = render_fail(r, EINVAL, "division by zero");
	if (!rc)
		rc = value_to_list(r, self, &items);
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	if (rc < 0 || slices < 0)
		return rc;
	each = (int64_t)items.list->n / slices;
	longer = (int64_t)items.list->n % slices;
	for (int64_t k = 0; k < slices && !rc; k++) {
		int64_t n = each + (k < longer);

		rc = render_charge(r, 1);
		if (!rc)
			rc = value_new_list(r, V_LIST, 0, &part);
		for (; n > 0 && !rc; n--)
			rc = list_push(r, part.list, &items.list->v[at++]);
		if (!rc && fill && k >= longer)
			rc = list_push(r, part.list, &arg[1]);
		if (!rc)
			rc = list_push(r, ret->list, &part);
	}
	return rc;
}

FILTER(filter_slice)
{
	return defer(r, self, arg, make_slices, ret);
}

const struct builtin items_filters[] = {
	{"length", filter_length},
	{"count", filter_length},
	{"items", filter_items},
	{"join", filter_join, NULL, 0, {"d", "attribute"}},
	{"list", filter_list},
	{"first", filter_first},
	{"last", filter_last},
	{"reverse", filter_reverse},
	{"map", .raw = filter_map},
	{"select", .raw = filter_select},
	{"reject", .raw = filter_reject},
	{"selectattr", .raw = filter_selectattr},
	{"rejectattr", .raw = filter_rejectattr},
	{"sort", filter_sort, NULL, 0, {"reverse", "case_sensitive", "attribute"}},
	{"dictsort", filter_dictsort, NULL, 0, {"case_sensitive", "by", "reverse"}},
	{"unique", filter_unique, NULL, 0, {"case_sensitive", "attribute"}},
	{"min", filter_min, NULL, 0, {"case_sensitive", "attribute"}},
	{"max", filter_max, NULL, 0, {"case_sensitive", "attribute"}},
	{"sum", filter_sum, NULL, 0, {"attribute", "start"}},
	{"groupby", filter_groupby, NULL, 1, {"attribute", "default", "case_sensitive"}},
	{"batch", filter_batch, NULL, 1, {"linecount", "fill_with"}},
	{"slice", filter_slice, NULL, 1, {"slices", "fill_with"}},
};
const size_t items_filters_count = ARRAY_SIZE(items_filters);
