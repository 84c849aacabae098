/* obj.name and obj[key], looked up as in jinja2's immutable sandbox. */
#pragma once

#include "protocol/jinja/value.h"

/* The value; undefined if there is neither an attribute nor an item. methods: a bit for each enum builtin_kind with a
 * method of this name; other tables are not searched. */
struct value value_getattr(struct render *r, struct value obj, struct value name, unsigned methods);
struct value value_getitem(struct render *r, struct value obj, struct value key);
