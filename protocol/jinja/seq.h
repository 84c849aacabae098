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

/* Python's iter(v). Returns a generator's own iterator, or for any other value `local`, which is set to walk v. NULL
 * only after a failure, for example because v cannot be walked. */
struct iter *value_iter(struct render *r, struct value v, struct iter *local);

/* Takes the next item. False: the end, a NULL iterator, or a failure. */
bool iter_next(struct render *r, struct iter *it, struct value *ret);

/* Returns all items of v; from a generator it takes those that are left. The list is v's own, *borrowed*, if v has one,
 * else *new*. NULL only after a failure. */
struct list *value_items(struct render *r, struct value v);

/* list(v) */
struct value value_to_list(struct render *r, struct value v);

/* x in v */
bool value_contains(struct render *r, struct value v, struct value item);

/* Returns v[index] of a str, list, tuple or range, from the end if index < 0; NOTHING: there is no such item, or a
 * failure. */
struct value value_at(struct render *r, struct value v, int64_t index);

/* Returns v[start:stop:step]. bound: start, stop and step, each an integer or V_NONE. */
struct value value_slice(struct render *r, struct value v, const struct value bound[3]);

/* Returns a *new* list of the items of v from the last to the first; the items of a str are its characters. NULL after
 * a failure; also NULL, without a failure, if v is a generator or cannot be walked. */
struct list *value_reversed(struct render *r, struct value v);

/* Returns a *new* list of the items, sorted by their keys (keys[i] is the key of items->v[i]). Items with equal keys
 * keep their order, also with `reverse`. NULL after a failure. */
struct list *value_sorted(struct render *r, const struct list *items, const struct value *keys,
			  bool reverse);
