#include "protocol/grammar/json_merge.h"

#include <string.h>

#include "base/problem.h"

bool json_same(const json_t *a, const json_t *b)
{
	const char *name;
	json_t *member;

	if (json_is_number(a) && json_is_number(b)) {
		if (json_is_integer(a) && json_is_integer(b))
			return json_integer_value(a) == json_integer_value(b);
		return json_number_value(a) == json_number_value(b);
	}
	if (json_typeof(a) != json_typeof(b))
		return false;
	if (json_is_array(a)) {
		if (json_array_size(a) != json_array_size(b))
			return false;
		for (size_t i = 0; i < json_array_size(a); i++) {
			if (!json_same(json_array_get(a, i), json_array_get(b, i)))
				return false;
		}
		return true;
	}
	if (json_is_object(a)) {
		if (json_object_size(a) != json_object_size(b))
			return false;
		json_object_foreach((json_t *)a, name, member)
		{
			const json_t *other = json_object_get(b, name);

			if (!other || !json_same(member, other))
				return false;
		}
		return true;
	}
	return json_equal(a, b);
}

static int no_memory(struct err *e)
{
	return err_no_memory(e);
}

/* A schema that both a and b have to accept. */
static json_t *both(json_t *a, json_t *b)
{
	if (json_equal(a, b))
		return json_incref(a);
	return json_pack("{s:[O,O]}", "allOf", a, b);
}

static int merge_properties(json_t *to, const char *keyword, json_t *a, json_t *b, struct err *e)
{
	json_t *all = json_copy(a), *schema;
	const char *name;

	if (!all)
		return no_memory(e);
	json_object_foreach(b, name, schema)
	{
		json_t *own = json_object_get(all, name);
		json_t *sum = own ? both(own, schema) : json_incref(schema);

		if (!sum || json_object_set_new(all, name, sum) < 0) {
			json_decref(all);
			return no_memory(e);
		}
	}
	return json_object_set_new(to, keyword, all) < 0 ? no_memory(e) : 0;
}

static int merge_required(json_t *to, json_t *a, json_t *b, struct err *e)
{
	json_t *all = json_copy(a);

	if (!all || json_array_extend(all, b) < 0) {
		json_decref(all);
		return no_memory(e);
	}
	return json_object_set_new(to, "required", all) < 0 ? no_memory(e) : 0;
}

static bool has_type(const json_t *list, const char *type)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *own = json_string_value(json_array_get(list, i));

		if (own && !strcmp(own, type))
			return true;
	}
	return false;
}

/* The types of two lists, each of which may also be one string. */
static int merge_types(json_t *to, json_t *a, json_t *b, struct err *e)
{
	json_t *x = json_is_array(a) ? json_incref(a) : json_pack("[O]", a);
	json_t *y = json_is_array(b) ? json_incref(b) : json_pack("[O]", b), *all = json_array();
	int r = x && y && all ? 0 : -1;

	for (size_t i = 0; !r && i < json_array_size(x); i++) {
		json_t *type = json_array_get(x, i);
		const char *name = json_string_value(type);

		if (!name)
			continue;
		if (has_type(y, name) || (!strcmp(name, "integer") && has_type(y, "number")))
			r = json_array_append(all, type);
		else if (!strcmp(name, "number") && has_type(y, "integer") &&
			 !has_type(x, "integer"))
			r = json_array_append_new(all, json_string("integer"));
	}
	if (!r)
		r = json_object_set(to, "type", all);
	json_decref(x);
	json_decref(y);
	json_decref(all);
	return r < 0 ? no_memory(e) : 0;
}

static int merge_values(json_t *to, json_t *a, json_t *b, struct err *e)
{
	json_t *all = json_array();
	int r = all ? 0 : -1;

	for (size_t i = 0; !r && i < json_array_size(a); i++) {
		json_t *value = json_array_get(a, i);

		for (size_t k = 0; !r && k < json_array_size(b); k++) {
			if (json_same(value, json_array_get(b, k))) {
				r = json_array_append(all, value);
				break;
			}
		}
	}
	if (!r)
		r = json_object_set(to, "enum", all);
	json_decref(all);
	return r < 0 ? no_memory(e) : 0;
}

/* The keywords of which the larger or the smaller number counts. */
static const struct {
	const char *name;
	bool larger;
} bounds[] = {
	{"minimum", true},	    {"maximum", false},		 {"minLength", true},
	{"maxLength", false},	    {"minItems", true},		 {"maxItems", false},
	{"exclusiveMinimum", true}, {"exclusiveMaximum", false}, {"minProperties", true},
	{"maxProperties", false},
};

static int merge_keyword(json_t *to, const char *name, json_t *a, json_t *b, struct err *e)
{
	for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++) {
		bool larger = json_number_value(b) > json_number_value(a);

		if (strcmp(name, bounds[i].name) != 0 || !json_is_number(a) || !json_is_number(b))
			continue;
		return larger == bounds[i].larger && json_object_set(to, name, b) < 0 ? no_memory(e)
										      : 0;
	}
	if (!strcmp(name, "required") && json_is_array(a) && json_is_array(b))
		return merge_required(to, a, b, e);
	if (!strcmp(name, "properties") && json_is_object(a) && json_is_object(b))
		return merge_properties(to, name, a, b, e);
	if (!strcmp(name, "type"))
		return merge_types(to, a, b, e);
	if (!strcmp(name, "enum") && json_is_array(a) && json_is_array(b))
		return merge_values(to, a, b, e);
	if (!strcmp(name, "items")) {
		json_t *sum = both(a, b);

		return !sum || json_object_set_new(to, name, sum) < 0 ? no_memory(e) : 0;
	}
	if (!strcmp(name, "allOf") && json_is_array(a) && json_is_array(b)) {
		json_t *all = json_copy(a);

		if (!all || json_array_extend(all, b) < 0) {
			json_decref(all);
			return no_memory(e);
		}
		return json_object_set_new(to, name, all) < 0 ? no_memory(e) : 0;
	}
	return err_set(
		e, PROBLEM_UNSUPPORTED,
		"schemas that are combined with different values of \"%.40s\" are not supported",
		name);
}

/* Keywords that are about what the other keywords of the same schema leave over. */
static bool rests_on_others(const json_t *schema)
{
	const json_t *more = json_object_get(schema, "additionalProperties");

	return (more && !json_is_true(more)) || json_object_get(schema, "patternProperties");
}

static bool lists_items(const json_t *schema)
{
	return json_object_get(schema, "prefixItems");
}

static bool has_unevaluated(const json_t *schema)
{
	return json_object_get(schema, "unevaluatedProperties") ||
	       json_object_get(schema, "unevaluatedItems");
}

/* Returns whether a schema evaluates, or may evaluate, elements or properties. */
static bool evaluates(const json_t *schema)
{
	static const char *const names[] = {"properties",
					    "patternProperties",
					    "additionalProperties",
					    "items",
					    "prefixItems",
					    "anyOf",
					    "oneOf",
					    "allOf",
					    "$ref",
					    "unevaluatedProperties",
					    "unevaluatedItems"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (json_object_get(schema, names[i]))
			return true;
	}
	return false;
}

int json_merge(json_t *to, const json_t *from, struct err *e)
{
	const char *name;
	json_t *value;
	int r = 0;

	/* `properties` beside additionalProperties of another schema would change what these are. */
	if ((rests_on_others(to) && json_object_get(from, "properties")) ||
	    (rests_on_others(from) && json_object_get(to, "properties")) ||
	    (rests_on_others(to) && rests_on_others(from)))
		return err_set(
			e, PROBLEM_UNSUPPORTED,
			"schemas that are combined with \"additionalProperties\" or \"patternProperties\" of one of them are not supported");
	if ((lists_items(to) && (lists_items(from) || json_object_get(from, "items"))) ||
	    (lists_items(from) && json_object_get(to, "items")))
		return err_set(
			e, PROBLEM_UNSUPPORTED,
			"schemas that are combined with \"prefixItems\" of one of them are not supported");
	if ((has_unevaluated(to) && evaluates(from)) || (has_unevaluated(from) && evaluates(to)))
		return err_set(
			e, PROBLEM_UNSUPPORTED,
			"schemas that are combined with \"unevaluatedProperties\" or \"unevaluatedItems\" of one of them are not supported");
	json_object_foreach((json_t *)from, name, value)
	{
		json_t *own = json_object_get(to, name);

		if (!own)
			r = json_object_set(to, name, value) < 0 ? no_memory(e) : 0;
		else if (!json_equal(own, value))
			r = merge_keyword(to, name, own, value, e);
		if (r < 0)
			return r;
	}
	return 0;
}
