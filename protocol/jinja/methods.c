/* Methods of dict. The tables for lists, tuples, ranges and `loop` are here too, but have no rows: all methods of these
 * types are refused. The methods of str are in strings.c. */
#include "protocol/jinja/dict.h"
#include "protocol/jinja/tables.h"

#define FUNCTION(name) static struct value name(struct render *r, const struct builtin_call *c)

FUNCTION(dict_get)
{
	const struct value *found = dict_find(r, c->self.dict, c->arg[0]);

	if (found)
		return *found;
	return c->arg[1].type == V_MISSING ? value_none() : c->arg[1];
}

/* keys(), values(), items(). The member `data` of the row (builtin.h) is the type of the result. */
FUNCTION(dict_view)
{
	const struct dict *d = c->self.dict;
	enum value_type type = (enum value_type)c->b->data;
	struct list *l = render_charge(r, d->n) ? list_new(r, d->n) : NULL;

	for (size_t i = 0; l && i < d->n; i++) {
		const struct dict_entry *e = &d->entry[i];

		l->v[i] = type == V_KEYS     ? e->key
			  : type == V_VALUES ? e->value
					     : value_pair(r, e->key, e->value);
	}
	return value_of_list(type, r->rc ? NULL : l);
}

static const struct builtin of_dict[] = {
	{"get", dict_get, 0, BUILTIN_POSITIONAL, 1, {"key", "default"}},
	{"items", dict_view, V_ITEMS},
	{"keys", dict_view, V_KEYS},
	{"values", dict_view, V_VALUES},
};
const struct builtin_table dict_methods = {
	METHOD_DICT,
	of_dict,
	ARRAY_SIZE(of_dict),
	"copy fromkeys",
	"clear pop popitem setdefault update",
};
const struct builtin_table list_methods = {
	.kind = METHOD_LIST,
	.refused = "copy count index",
	.changes = "append clear extend insert pop remove reverse sort",
};
const struct builtin_table tuple_methods = {.kind = METHOD_TUPLE, .refused = "count index"};
const struct builtin_table range_methods = {
	.kind = METHOD_RANGE,
	.refused = "count index start step stop",
};
const struct builtin_table loop_methods = {.kind = METHOD_LOOP, .refused = "changed cycle"};
