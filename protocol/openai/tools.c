/* Reads the tools of a chat request: for the template, as they are, and as a list for the parser of the calls that the
 * model writes (protocol/output/tools.h). */
#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"

static int check_tool(const json_t *tool, size_t index, struct err *e)
{
	const json_t *function = field_get(tool, "function"), *type, *name = NULL, *parameters;
	char where[ERR_PARAM_MAX];
	int r;

	field_path(where, "tools[%zu]", index);
	if (!json_is_object(tool))
		return field_wrong(e, where, "", tool, "an object with type and function");
	field_path(where, "tools[%zu].", index);
	type = field_get(tool, "type");
	if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function")))
		return field_wrong(e, where, "type", type, "\"function\"");
	if (!json_is_object(function))
		return field_wrong(e, where, "function", function,
				   "an object with name and parameters");
	field_path(where, "tools[%zu].function.", index);
	r = field_string(function, where, "name", &name, e);
	if (r < 0)
		return r;
	if (!name || !json_string_length(name) ||
	    strlen(json_string_value(name)) != json_string_length(name))
		return field_wrong(e, where, "name", name,
				   "a string that is not empty and has no NUL");
	parameters = field_get(function, "parameters");
	if (parameters && !json_is_object(parameters))
		return field_wrong(e, where, "parameters", parameters, "an object");
	return 0;
}

/* Checks tool_choice. *none: it is "none", which removes the tools. A choice that demands a call is refused, because
 * this server cannot force one. */
static int check_tool_choice(const json_t *body, bool *none, struct err *e)
{
	const json_t *choice = field_get(body, "tool_choice");
	const char *text = json_string_value(choice);

	*none = text && !strcmp(text, "none");
	if (!choice || *none || (text && !strcmp(text, "auto")))
		return 0;
	if ((text && !strcmp(text, "required")) || json_is_object(choice))
		return err_param(
			e, PROBLEM_UNSUPPORTED, "tool_choice",
			"tool_choice may be \"none\" or \"auto\": this server cannot force a "
			"tool call");
	return field_wrong(e, "", "tool_choice", choice, "\"none\" or \"auto\"");
}

int tools_context(const json_t *body, json_t *context, struct err *e)
{
	json_t *tools = field_get(body, "tools");
	bool none;
	int r;

	if (tools && !json_is_array(tools))
		return field_wrong(e, "", "tools", tools, "an array");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		r = check_tool(json_array_get(tools, i), i, e);
		if (r < 0)
			return r;
	}
	r = check_tool_choice(body, &none, e);
	if (r < 0)
		return r;
	tools = none || !json_array_size(tools) ? json_null() : json_incref(tools);
	return json_object_set_new_nocheck(context, "tools", tools) < 0 ? err_no_memory(e) : 0;
}

/* ---- the types of parameters ---- */

/* The most schemas that are read for one parameter, and the most values of an enum. */
enum { SCHEMAS_MAX = 64 };

/* Returns the type of a value as JSON Schema names it; 0: it is no type's name. */
static unsigned named_type(const char *name)
{
	static const struct {
		const char *name;
		unsigned type;
	} names[] = {{"string", TOOLS_STRING}, {"integer", TOOLS_NUMBER},
		     {"number", TOOLS_NUMBER}, {"boolean", TOOLS_BOOLEAN},
		     {"object", TOOLS_OBJECT}, {"array", TOOLS_ARRAY},
		     {"null", TOOLS_NULL}};

	for (size_t i = 0; name && i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i].name, name))
			return names[i].type;
	return 0;
}

static unsigned value_type(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_STRING: return TOOLS_STRING;
	case JSON_INTEGER:
	case JSON_REAL: return TOOLS_NUMBER;
	case JSON_OBJECT: return TOOLS_OBJECT;
	case JSON_ARRAY: return TOOLS_ARRAY;
	case JSON_NULL: return TOOLS_NULL;
	default: return TOOLS_BOOLEAN;
	}
}

/* Returns the schema to which "#/$defs/NAME" or "#/definitions/NAME" refers, borrowed; NULL: there is none. */
static const json_t *referred(const json_t *root, const char *reference)
{
	static const char *const places[] = {"$defs", "definitions"};

	for (size_t i = 0; reference && i < ARRAY_SIZE(places); i++) {
		size_t n = strlen(places[i]);

		if (!strncmp(reference, "#/", 2) && !strncmp(reference + 2, places[i], n) &&
		    reference[2 + n] == '/')
			return json_object_get(json_object_get(root, places[i]), reference + 3 + n);
	}
	return NULL;
}

/* Returns the types that a schema allows, as far as its type, enum, const, $ref, anyOf and oneOf say. `left`: the
 * number of further schemas that may be read. */
static unsigned schema_types(const json_t *root, const json_t *schema, int *left)
{
	static const char *const alternatives[] = {"anyOf", "oneOf"};
	const json_t *type = json_object_get(schema, "type"), *list, *v;
	unsigned types = named_type(json_string_value(type));

	if (--*left < 0)
		return 0;
	for (size_t i = 0; i < MIN(json_array_size(type), (size_t)SCHEMAS_MAX); i++)
		types |= named_type(json_string_value(json_array_get(type, i)));
	if (types)
		return types;
	list = json_object_get(schema, "enum");
	for (size_t i = 0; i < MIN(json_array_size(list), (size_t)SCHEMAS_MAX); i++)
		types |= value_type(json_array_get(list, i));
	v = json_object_get(schema, "const");
	if (v)
		types |= value_type(v);
	v = referred(root, json_string_value(json_object_get(schema, "$ref")));
	if (v)
		types |= schema_types(root, v, left);
	for (size_t k = 0; k < ARRAY_SIZE(alternatives); k++) {
		list = json_object_get(schema, alternatives[k]);
		for (size_t i = 0; i < json_array_size(list) && *left > 0; i++)
			types |= schema_types(root, json_array_get(list, i), left);
	}
	return types;
}

/* Returns the types of a parameter's values; 0: only strings, or the schema does not say. */
static unsigned parameter_types(const json_t *root, const json_t *schema)
{
	int left = SCHEMAS_MAX;
	unsigned types = schema_types(root, schema, &left);

	return types == TOOLS_STRING ? 0 : types;
}

static int list_parameters(const json_t *schema, struct arena *arena, struct tool *tool)
{
	json_t *properties = json_object_get(schema, "properties"), *v;
	struct tool_parameter *p;
	const char *name;

	json_object_foreach(properties, name, v) tool->n_parameters +=
		parameter_types(schema, v) != 0;
	p = arena_array(arena, tool->n_parameters, sizeof(*p));
	if (!p)
		return -ENOMEM;
	tool->parameters = p;
	json_object_foreach(properties, name, v)
	{
		p->types = parameter_types(schema, v);
		if (!p->types)
			continue;
		p->name = arena_strdup(arena, name);
		if (!p->name)
			return -ENOMEM;
		p++;
	}
	return 0;
}

int tools_list(const json_t *context, struct arena *arena, struct tool_list *ret, struct err *e)
{
	const json_t *tools = json_object_get(context, "tools");
	size_t n = json_array_size(tools);
	struct tool *list;

	*ret = (struct tool_list){0};
	if (!n)
		return 0;
	list = arena_array(arena, n, sizeof(*list));
	if (!list)
		return err_no_memory(e);
	for (size_t i = 0; i < n; i++) {
		const json_t *function = json_object_get(json_array_get(tools, i), "function");

		list[i].name =
			arena_strdup(arena, json_string_value(json_object_get(function, "name")));
		if (!list[i].name ||
		    list_parameters(json_object_get(function, "parameters"), arena, &list[i]) < 0)
			return err_no_memory(e);
	}
	*ret = (struct tool_list){list, n};
	return 0;
}
