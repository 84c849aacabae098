/* obj.name and obj[key], looked up as in jinja2's immutable sandbox. */
#pragma once

#include "protocol/jinja/value.h"

/* value_getattr returns obj.name, value_getitem obj[key]. The result is undefined if there is neither an attribute nor
 * an item. methods: a bit for each enum builtin_kind that has a method of this name; the tables of the other kinds are
 * not searched. */
struct value value_getattr(struct render *r, struct value obj, struct value name, unsigned methods);
struct value value_getitem(struct render *r, struct value obj, struct value key);
