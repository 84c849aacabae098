/* obj.name and obj[key], the way jinja2's immutable sandbox looks them up. */
#pragma once

#include "protocol/jinja/value.h"

/* Undefined when neither an attribute nor an item is there. methods: a bit for each enum builtin_kind
 * that has a method of this name; other tables are not searched. */
struct value value_getattr(struct render *r, struct value obj, struct value name, unsigned methods);
struct value value_getitem(struct render *r, struct value obj, struct value key);
