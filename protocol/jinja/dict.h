/* Which values are the same, which is smaller, and dicts, which find keys by that. */
#pragma once

#include "protocol/jinja/value.h"

/* a == b */
bool value_equal(struct render *r, struct value a, struct value b);

/* -1, 0 or 1, or 2 when neither is smaller nor are they equal (a NaN). Fails for values that Python
 * cannot order; `sign` names the operator in the message. */
int value_compare(struct render *r, struct value a, struct value b, const char *sign);

/* False: the value cannot be a dict's key. */
bool value_hash(struct render *r, struct value v, uint64_t *ret);

/* *New* and empty, with room for n entries; it grows. NULL after a failure. */
struct dict *dict_new(struct render *r, size_t n);

/* The value of a key: NULL when there is none, or after a failure (the key cannot be one). */
const struct value *dict_find(struct render *r, const struct dict *d, struct value key);

/* Adds or replaces; does nothing with NULL. */
void dict_set(struct render *r, struct dict *d, struct value key, struct value value);
