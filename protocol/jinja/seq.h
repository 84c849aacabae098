/* Walking values, cutting pieces out of them, and bringing them in order. */
#pragma once

#include "protocol/jinja/value.h"

/* Items one after another. V_ITER points to one that others may be walking too. */
struct iter {
	struct list *items; /* NULL: not made yet */
	size_t pos;
	/* A generator makes its items when it is asked for the first one. */
	struct list *(*make)(struct render *r, struct iter *it);
	/* NULL, or whether an item is one of those that are given. */
	bool (*keep)(struct render *r, struct iter *it, struct value item);
};

/* iter(v): `local`, set up, or the iterator that v is. NULL after a failure (v cannot be walked). */
struct iter *value_iter(struct render *r, struct value v, struct iter *local);

/* The next item: false at the end, with NULL, and after a failure. */
bool iter_next(struct render *r, struct iter *it, struct value *ret);

/* All items of v that are left, *borrowed* from v if it is a list; NULL after a failure. */
struct list *value_items(struct render *r, struct value v);

/* list(v) */
struct value value_to_list(struct render *r, struct value v);

/* x in v */
bool value_contains(struct render *r, struct value v, struct value item);

/* v[index] for a str, list, tuple or range; NOTHING when there is none. */
struct value value_at(struct render *r, struct value v, int64_t index);

/* v[start:stop:step], each V_NONE or an index. */
struct value value_slice(struct render *r, struct value v, const struct value bound[3]);

/* The items of v from the last to the first, *new*: NULL and no failure when v is a generator or
 * cannot be walked. A str gives its characters. */
struct list *value_reversed(struct render *r, struct value v);

/* The items, which have these keys, in the order of the keys; stable. NULL after a failure. */
struct list *value_sorted(struct render *r, const struct list *items, const struct value *keys,
			  bool reverse);
