#include "protocol/jinja/loop.h"

bool loop_next(struct render *r, struct loop *l, struct value *ret)
{
	if (l->has_after)
		*ret = l->after;
	else if (!iter_next(r, l->it, ret))
		return false;
	l->has_after = false;
	l->index0++;
	l->before = l->current;
	l->current = *ret;
	return true;
}

/* Returns whether there is a next item, which is then in l->after. */
static bool peek(struct render *r, struct loop *l)
{
	if (!l->has_after)
		l->has_after = iter_next(r, l->it, &l->after);
	return l->has_after;
}

/* Returns the number of all items. The first call takes all items that are left from the iterator, and makes a list of
 * them, from which the loop goes on. */
static int64_t length(struct render *r, struct loop *l)
{
	struct list *rest;
	struct value item;

	if (l->length >= 0)
		return l->length;
	rest = list_new(r, 0);
	while (iter_next(r, l->it, &item))
		list_push(r, rest, item);
	l->own = (struct iter){.items = rest};
	l->it = &l->own;
	l->length = l->index0 + 1 + l->has_after + (rest ? (int64_t)rest->n : 0);
	return l->length;
}

static struct value neighbour(struct render *r, struct loop *l, bool next)
{
	if (next)
		return peek(r, l) ? l->after : value_undefined_hint(r, "there is no next item");
	return l->index0 ? l->before : value_undefined_hint(r, "there is no previous item");
}

struct value loop_attribute(struct render *r, struct loop *l, struct value name)
{
	if (value_is(name, "index0"))
		return value_int(l->index0);
	if (value_is(name, "index"))
		return value_int(l->index0 + 1);
	if (value_is(name, "first"))
		return value_bool(l->index0 == 0);
	if (value_is(name, "last"))
		return value_bool(!peek(r, l));
	if (value_is(name, "previtem") || value_is(name, "nextitem"))
		return neighbour(r, l, name.s[0] == 'n');
	if (value_is(name, "length"))
		return value_int(length(r, l));
	if (value_is(name, "revindex") || value_is(name, "revindex0"))
		return value_int(length(r, l) - l->index0 - (name.s[name.len - 1] == '0'));
	if (value_is(name, "depth") || value_is(name, "depth0"))
		return value_int(name.s[name.len - 1] != '0');
	return NOTHING;
}
