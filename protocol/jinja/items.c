/* Filters on lists, dicts and all other values that can be walked. As in jinja2 some of them return generators
 * (BUILTIN_LAZY), which compute nothing until an item is wanted. In the comments below, "data:" tells what the member
 * `data` of the builtin's row (struct builtin, builtin.h) means. */
#include <string.h>

#include "protocol/jinja/attr.h"
#include "protocol/jinja/dict.h"
#include "protocol/jinja/number.h"
#include "protocol/jinja/ops.h"
#include "protocol/jinja/seq.h"
#include "protocol/jinja/tables.h"
#include "protocol/jinja/text.h"
#include "protocol/jinja/write.h"

#define FUNCTION(name) static struct value name(struct render *r, const struct builtin_call *c)

/* ---- the member of an item by which it is sorted, compared or mapped ---- */

/* Returns the next member of a path such as "a.b.0": the text from *at up to the character `end`, or to the end of the
 * path. Moves *at behind that character, or past the end of the path. */
static struct value next_part(struct value path, size_t *at, char end)
{
	const char *p = memchr(path.s + *at, end, path.len - *at);
	size_t to = p ? (size_t)(p - path.s) : path.len;
	struct value part = value_piece(path, *at, to);

	*at = to + 1;
	return part;
}

static bool is_number(struct value v)
{
	uint32_t i = 0;

	while (i < v.len && v.s[i] >= '0' && v.s[i] <= '9')
		i++;
	return v.len && i == v.len;
}

/* Returns item.a.b for the path "a.b", item[0] for the path 0, and the item itself without a path. `other`, if given
 * and not None, is taken for a member that is missing. */
static struct value follow(struct render *r, struct value path, struct value other,
			   struct value item)
{
	int64_t index;
	size_t at = 0;

	if (path.type == V_MISSING || path.type == V_NONE)
		return item;
	do {
		struct value part = path.type == V_STR ? next_part(path, &at, '.') : path;

		if (part.type == V_STR && is_number(part) &&
		    text_to_int(part.s, part.len, &index) == PARSE_INT_OK)
			part = value_int(index);
		item = value_getitem(r, item, part);
		if (item.type == V_UNDEFINED && other.type > V_NONE)
			item = other;
	} while (path.type == V_STR && at <= path.len && render_charge(r, 1));
	return item;
}

/* Returns the member of an item by which it is sorted or compared. A text is put into lower case, unless case_sensitive
 * is true. */
static struct value key_of(struct render *r, struct value path, struct value case_sensitive,
			   struct value item)
{
	struct value key = follow(r, path, NOTHING, item);
	size_t start = r->scratch.len;

	if (key.type != V_STR || value_truth(case_sensitive))
		return key;
	text_recase(&r->scratch, key.s, key.len, CASE_LOWER);
	return value_take(r, start);
}

/* Returns the key of each item as a *new* array; NULL after a failure. */
static struct value *keys_of(struct render *r, const struct list *items, struct value path,
			     struct value case_sensitive)
{
	struct value *keys = items ? render_alloc(r, items->n, sizeof(*keys)) : NULL;

	for (size_t i = 0; keys && i < items->n && !r->rc; i++)
		keys[i] = key_of(r, path, case_sensitive, items->v[i]);
	return r->rc ? NULL : keys;
}

/* ---- map, select, reject, selectattr, rejectattr ---- */

static struct value keyword(const struct args *args, const char *name)
{
	for (size_t i = 0; i < args->nkw; i++)
		if (value_is(args->kw[i].name, name))
			return args->kw[i].value;
	return NOTHING;
}

/* Returns the arguments without the first `skip` of those by position. */
static struct args rest(const struct args *args, size_t skip)
{
	return (struct args){args->n - skip, args->nkw, args->v + skip, args->kw};
}

/* map('filter', ...) or map(attribute=..., default=...); with an empty input the arguments are not checked. */
FUNCTION(filter_map)
{
	struct value attribute = keyword(&c->args, "attribute"), item;
	struct value other = keyword(&c->args, "default");
	struct list *l = list_new(r, 0);
	struct iter local, *it = value_truth(c->self) ? value_iter(r, c->self, &local) : NULL;
	const struct builtin *b = NULL;
	struct args args = {0};

	if (it && c->args.n) {
		b = builtin_named(r, FILTER, c->args.v[0]);
		args = rest(&c->args, 1);
	} else if (it && attribute.type == V_MISSING) {
		render_fail(r, EINVAL, "map requires a filter or an attribute");
	} else if (it && c->args.nkw > 1u + (other.type != V_MISSING)) {
		render_fail(r, EINVAL, "map: unexpected keyword argument");
	}
	while (iter_next(r, it, &item))
		list_push(r, l,
			  b ? builtin_call(r, b, item, &args) : follow(r, attribute, other, item));
	return value_of_list(V_LIST, l);
}

enum { BY_ATTRIBUTE = 1, REJECT = 2 };

/* select, reject, selectattr, rejectattr; data: flags of the enum above */
FUNCTION(filter_select)
{
	size_t skip = c->b->data & BY_ATTRIBUTE;
	struct value path = skip && c->args.n ? c->args.v[0] : NOTHING, item, key;
	struct list *l = list_new(r, 0);
	struct iter local, *it = value_truth(c->self) ? value_iter(r, c->self, &local) : NULL;
	const struct builtin *b = NULL;
	struct args args = {0};

	if (it && c->args.n < skip)
		return value_fail(r, "%s: the name of an attribute is missing", c->b->name);
	if (it && c->args.n > skip) {
		b = builtin_named(r, TEST, c->args.v[skip]);
		args = rest(&c->args, skip + 1);
	}
	while (iter_next(r, it, &item)) {
		key = follow(r, path, NOTHING, item);
		if (b)
			key = builtin_call(r, b, key, &args);
		if (value_truth(key) != ((c->b->data & REJECT) != 0))
			list_push(r, l, item);
	}
	return value_of_list(V_LIST, l);
}

/* ---- sizes and ends ---- */

FUNCTION(filter_length)
{
	int64_t n = value_len(c->self);

	if (c->self.type == V_LOOP)
		return value_fail(r,
				  "the length of 'loop' itself is not supported in chat templates");
	if (n < 0)
		return value_fail(r, "object of type '%s' has no len()", value_type_name(c->self));
	return value_int(n);
}

FUNCTION(filter_first)
{
	struct iter local, *it = value_iter(r, c->self, &local);
	struct value v;

	return iter_next(r, it, &v) ? v
				    : value_undefined_hint(r, "No first item, sequence was empty.");
}

FUNCTION(filter_last)
{
	struct list *l = value_reversed(r, c->self);

	if (!l)
		return value_fail(r, "last: '%s' object is not reversible",
				  value_type_name(c->self));
	return l->n ? l->v[0] : value_undefined_hint(r, "No last item, sequence was empty.");
}

FUNCTION(filter_list)
{
	return value_to_list(r, c->self);
}

/* Reverses a value. A text gives a text, a generator a list, any other value an iterator. */
FUNCTION(filter_reverse)
{
	struct value bound[3] = {value_none(), value_none(), value_int(-1)};
	struct iter *it;

	if (c->self.type == V_STR)
		return value_slice(r, c->self, bound);
	it = render_alloc(r, 1, sizeof(*it));
	if (!it)
		return NOTHING;
	it->items = value_reversed(r, c->self);
	if (it->items)
		return (struct value){.type = V_ITER, .iter = it};
	return value_slice(r, value_to_list(r, c->self), bound);
}

FUNCTION(filter_items)
{
	struct list *l = list_new(r, 0);

	if (c->self.type != V_DICT && c->self.type != V_UNDEFINED)
		return value_fail_type(r, "items", "a mapping", c->self);
	for (size_t i = 0; c->self.type == V_DICT && i < c->self.dict->n && !r->rc; i++)
		list_push(r, l,
			  value_pair(r, c->self.dict->entry[i].key, c->self.dict->entry[i].value));
	return value_of_list(V_LIST, l);
}

FUNCTION(filter_join)
{
	struct value glue = c->arg[0], item;
	size_t start;
	struct iter local, *it = value_iter(r, c->self, &local);

	glue = glue.type == V_MISSING ? value_cstr("") : value_to_str(r, glue);
	start = r->scratch.len;
	for (bool first = true; iter_next(r, it, &item); first = false) {
		if (!first)
			buf_append(&r->scratch, glue.s, glue.len);
		value_write_str(r, &r->scratch, follow(r, c->arg[1], NOTHING, item));
	}
	return value_take(r, start);
}

/* ---- order ---- */

/* `attribute` may name several members, "a,b". So the key of each item is a list, also for a single member. */
FUNCTION(filter_sort)
{
	struct value attribute = c->arg[2], name, *keys;
	struct list *items = value_items(r, c->self);
	size_t at = 0;

	keys = items ? render_alloc(r, items->n, sizeof(*keys)) : NULL;
	for (size_t i = 0; keys && i < items->n; i++)
		keys[i] = value_of_list(V_LIST, list_new(r, 0));
	do {
		name = attribute.type == V_STR ? next_part(attribute, &at, ',') : attribute;
		for (size_t i = 0; keys && i < items->n && !r->rc; i++)
			list_push(r, keys[i].list, key_of(r, name, c->arg[1], items->v[i]));
	} while (attribute.type == V_STR && at <= attribute.len && render_charge(r, 1));
	if (r->rc)
		return NOTHING;
	return value_of_list(V_LIST, value_sorted(r, items, keys, value_truth(c->arg[0])));
}

FUNCTION(filter_dictsort)
{
	struct value by = c->arg[1].type == V_MISSING ? value_cstr("key") : c->arg[1], *keys;
	struct list *items;

	if (!value_is(by, "key") && !value_is(by, "value"))
		return value_fail(r, "dictsort: you can sort by \"key\" or \"value\"");
	if (c->self.type != V_DICT)
		return value_fail_type(r, "dictsort", "a mapping", c->self);
	items = filter_items(r, c).list;
	keys = keys_of(r, r->rc ? NULL : items, value_int(value_is(by, "value")), c->arg[0]);
	if (!keys)
		return NOTHING;
	return value_of_list(V_LIST, value_sorted(r, items, keys, value_truth(c->arg[2])));
}

FUNCTION(filter_unique)
{
	struct list *items = value_items(r, c->self), *l = list_new(r, 0);
	struct value *keys = keys_of(r, items, c->arg[1], c->arg[0]);
	struct dict *seen = dict_new(r, 0);

	for (size_t i = 0; keys && seen && i < items->n && !r->rc; i++) {
		if (dict_find(r, seen, keys[i]))
			continue;
		dict_set(r, seen, keys[i], value_none());
		list_push(r, l, items->v[i]);
	}
	return value_of_list(V_LIST, l);
}

/* min, max; data: the result of value_compare with which an item replaces the best one: -1 for min, 1 for max */
FUNCTION(filter_extreme)
{
	struct list *items = value_items(r, c->self);
	struct value *keys = keys_of(r, items, c->arg[1], c->arg[0]);
	size_t best = 0;

	if (!keys)
		return NOTHING;
	for (size_t i = 1; i < items->n && !r->rc; i++)
		if (value_compare(r, keys[i], keys[best], c->b->data < 0 ? "<" : ">") == c->b->data)
			best = i;
	return items->n ? items->v[best]
			: value_undefined_hint(r, "No aggregated item, sequence was empty.");
}

FUNCTION(filter_sum)
{
	struct value total = c->arg[1].type == V_MISSING ? value_int(0) : c->arg[1], item;
	struct iter local, *it = value_iter(r, c->self, &local);

	if (total.type == V_STR)
		return value_fail(r, "sum cannot join strings: use join");
	while (iter_next(r, it, &item))
		total = value_binary(r, OP_ADD, total, follow(r, c->arg[0], NOTHING, item));
	return total;
}

enum { RAW_LAZY = BUILTIN_RAW | BUILTIN_LAZY };

static const struct builtin filters[] = {
	{"length", filter_length},
	{"count", filter_length},
	{"items", filter_items, .flags = BUILTIN_LAZY},
	{"join", filter_join, .params = {"d", "attribute"}},
	{"list", filter_list},
	{"first", filter_first},
	{"last", filter_last},
	{"reverse", filter_reverse},
	{"map", filter_map, 0, RAW_LAZY},
	{"select", filter_select, 0, RAW_LAZY},
	{"reject", filter_select, REJECT, RAW_LAZY},
	{"selectattr", filter_select, BY_ATTRIBUTE, RAW_LAZY},
	{"rejectattr", filter_select, BY_ATTRIBUTE | REJECT, RAW_LAZY},
	{"sort", filter_sort, .params = {"i:reverse", "case_sensitive", "attribute"}},
	{"dictsort", filter_dictsort, .params = {"case_sensitive", "by", "i:reverse"}},
	{"unique", filter_unique, 0, BUILTIN_LAZY, .params = {"case_sensitive", "attribute"}},
	{"min", filter_extreme, -1, .params = {"case_sensitive", "attribute"}},
	{"max", filter_extreme, 1, .params = {"case_sensitive", "attribute"}},
	{"sum", filter_sum, .params = {"attribute", "start"}},
};
const struct builtin_table item_filters = {FILTER, filters, ARRAY_SIZE(filters),
					   "batch groupby random slice"};
