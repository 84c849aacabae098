/* Equality and order of values, and dicts, which find keys by equality. */
#pragma once

#include "protocol/jinja/value.h"

/* a == b */
bool value_equal(struct render *r, struct value a, struct value b);

/* Compares: -1 (a < b), 0, or 1 (a > b); 2: neither is smaller and they are not equal (a NaN), or a failure. Fails for
 * values that Python cannot order; `sign` names the operator in the message. */
int value_compare(struct render *r, struct value a, struct value b, const char *sign);

/* Sets *ret to the hash of a key. False: the value cannot be a dict's key, or a failure. */
bool value_hash(struct render *r, struct value v, uint64_t *ret);

/* Returns a *new* empty dict with room for n entries; it grows. NULL after a failure. */
struct dict *dict_new(struct render *r, size_t n);

/* Returns the value of a key. NULL: d has no such key, or a failure. Fails if `key` cannot be a key. */
const struct value *dict_find(struct render *r, const struct dict *d, struct value key);

/* Adds or replaces an entry; does nothing if d is NULL. Fails if `key` cannot be a key. */
void dict_set(struct render *r, struct dict *d, struct value key, struct value value);
