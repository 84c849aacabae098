#include "protocol/jinja/attr.h"

#include <string.h>

#include "protocol/jinja/builtin.h"
#include "protocol/jinja/dict.h"
#include "protocol/jinja/loop.h"
#include "protocol/jinja/seq.h"

static struct value method(struct render *r, struct value obj, struct value name, unsigned methods)
{
	static const uint8_t kinds[] = {
		[V_STR] = METHOD_STR,	  [V_LIST] = METHOD_LIST, [V_TUPLE] = METHOD_TUPLE,
		[V_RANGE] = METHOD_RANGE, [V_DICT] = METHOD_DICT, [V_LOOP] = METHOD_LOOP,
	};
	const struct builtin *b = NULL;

	if (obj.type < ARRAY_SIZE(kinds) && kinds[obj.type] && methods >> kinds[obj.type] & 1)
		b = r->find((enum builtin_kind)kinds[obj.type], name.s, name.len);
	if (!b)
		return NOTHING;
	if (b->flags & BUILTIN_CHANGES)
		return value_undefined_hint(
			r, "methods that change a list or dict are unsafe: templates "
			   "may not change values");
	if (!b->call)
		return value_fail(r, "'%.*s' of a %s is not supported in chat templates",
				  (int)name.len, name.s, value_type_name(obj));
	if (obj.type == V_STR && obj.safe)
		return value_fail(r, "methods of a text of the filter 'safe' are not supported in "
				     "chat templates");
	return builtin_value(r, "method", b, name, obj);
}

/* Returns the attribute of this name, but no item of a dict; NOTHING: there is none, or a failure. */
static struct value attribute(struct render *r, struct value obj, struct value name,
			      unsigned methods)
{
	const struct value *found;
	struct value v = NOTHING;

	if (obj.type == V_UNDEFINED)
		value_fail_undefined(r, obj);
	if (obj.type == V_NAMESPACE) {
		found = dict_find(r, obj.dict, name);
		return found ? *found : NOTHING;
	}
	if (obj.type == V_CALLABLE)
		return value_fail(r, "attributes of a %s are not supported in chat templates",
				  obj.callable->type);
	if (obj.type == V_LOOP)
		v = loop_attribute(r, obj.loop, name);
	return v.type == V_MISSING && !r->rc ? method(r, obj, name, methods) : v;
}

struct value value_getattr(struct render *r, struct value obj, struct value name, unsigned methods)
{
	struct value v = attribute(r, obj, name, methods);
	const struct value *found = NULL;

	if (v.type == V_MISSING && obj.type == V_DICT)
		found = dict_find(r, obj.dict, name);
	if (found)
		return *found;
	return v.type == V_MISSING ? value_undefined_member(r, obj, name) : v;
}

struct value value_getitem(struct render *r, struct value obj, struct value key)
{
	const struct value *found = NULL;
	struct value v = NOTHING;
	int64_t index;
	uint64_t hash;

	if (obj.type == V_DICT && (key.type == V_STR || value_hash(r, key, &hash)))
		found = dict_find(r, obj.dict, key);
	else if ((obj.type == V_STR || obj.type == V_RANGE || value_is_list(obj)) &&
		 value_index(key, &index))
		v = value_at(r, obj, index);
	if (found)
		return *found;
	if (obj.type == V_UNDEFINED)
		value_fail_undefined(r, obj);
	if (v.type == V_MISSING && key.type == V_STR)
		v = attribute(r, obj, key, ~0u);
	return v.type == V_MISSING ? value_undefined_member(r, obj, key) : v;
}
