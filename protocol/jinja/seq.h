/* Walking, slicing and sorting values. */
#pragma once

#include "protocol/jinja/value.h"

/* An iterator. V_ITER points to one, which several values may share. */
struct iter {
	struct list *items; /* NULL: not made yet */
	size_t pos;
	/* Makes the items of a generator, when the first one is wanted. */
	struct list *(*make)(struct render *r, struct iter *it);
	/* NULL, or a test that an item must pass. */
	bool (*keep)(struct render *r, struct iter *it, struct value item);
};

/* iter(v): a generator's own iterator, or `local`, which is set to walk v. NULL: a failure (v cannot be walked). */
struct iter *value_iter(struct render *r, struct value v, struct iter *local);

/* The next item. False: the end, a NULL iterator, or a failure. */
bool iter_next(struct render *r, struct iter *it, struct value *ret);

/* All items of v that are left: v's own list, *borrowed*, if it has one, else a *new* list. NULL after a failure. */
struct list *value_items(struct render *r, struct value v);

/* list(v) */
struct value value_to_list(struct render *r, struct value v);

/* x in v */
bool value_contains(struct render *r, struct value v, struct value item);

/* v[index] for a str, list, tuple or range; NOTHING: there is none. */
struct value value_at(struct render *r, struct value v, int64_t index);

/* v[start:stop:step]; bound: these three, each an index or V_NONE. */
struct value value_slice(struct render *r, struct value v, const struct value bound[3]);

/* The items of v from the last to the first, *new*. NULL without a failure: v is a generator or cannot be walked. A
 * str gives its characters. */
struct list *value_reversed(struct render *r, struct value v);

/* A *new* list of the items in the order of their keys (keys[i] is that of items->v[i]). Items with equal keys keep
 * their order, also with `reverse`. NULL after a failure. */
struct list *value_sorted(struct render *r, const struct list *items, const struct value *keys,
			  bool reverse);
