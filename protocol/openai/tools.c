/* Reads the tools of a chat request: for the template, as they are, and as a list for the parser of the calls that the
 * model writes (protocol/output/tools.h). */
#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"

int tools_function_name(const json_t *object, const char *where, const json_t **ret, struct err *e)
{
	const json_t *name = NULL;
	int r = field_string(object, where, "name", &name, e);

	if (r < 0)
		return r;
	if (!name || !json_string_length(name) ||
	    strlen(json_string_value(name)) != json_string_length(name))
		return field_wrong(e, where, "name", name,
				   "a string that is not empty and has no NUL");
	*ret = name;
	return 0;
}

static int check_tool(const json_t *tool, size_t index, struct err *e)
{
	const json_t *function = field_get(tool, "function"), *type, *name = NULL, *parameters;
	char where[ERR_PARAM_MAX];
	bool strict;
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
	r = tools_function_name(function, where, &name, e);
	if (r == 0)
		r = field_bool(function, where, "strict", &strict, e);
	if (r < 0)
		return r;
	parameters = field_get(function, "parameters");
	if (parameters && !json_is_object(parameters))
		return field_wrong(e, where, "parameters", parameters, "an object");
	return 0;
}

#define CHOICE_WANT "\"none\", \"auto\", \"required\" or an object that names a function"

/* Reads the function that tool_choice names. */
static int named_function(const json_t *choice, const char **ret, struct err *e)
{
	const json_t *type = field_get(choice, "type"), *function = field_get(choice, "function");
	const json_t *name = NULL;
	int r;

	if (type && !json_is_string(type))
		return field_wrong(e, "tool_choice.", "type", type, "\"function\"");
	if (type && strcmp(json_string_value(type), "function"))
		return err_param(e, PROBLEM_UNSUPPORTED, "tool_choice.type",
				 "tool_choice.type \"%.40s\" is not supported by this server, only "
				 "function is",
				 json_string_value(type));
	if (!json_is_object(function))
		return field_wrong(e, "tool_choice.", "function", function,
				   "an object with a name");
	r = field_string(function, "tool_choice.function.", "name", &name, e);
	if (r < 0)
		return r;
	if (!name)
		return field_wrong(e, "tool_choice.function.", "name", NULL, "a string");
	*ret = json_string_value(name);
	return 0;
}

/* Reads tool_choice. *name: the function that it names, else NULL. */
static int read_choice(const json_t *body, enum openai_tool_choice *ret, const char **name,
		       struct err *e)
{
	static const char *const words[] = {[TOOL_CHOICE_AUTO] = "auto",
					    [TOOL_CHOICE_NONE] = "none",
					    [TOOL_CHOICE_REQUIRED] = "required"};
	const json_t *choice = field_get(body, "tool_choice");
	const char *text = json_string_value(choice);

	*ret = TOOL_CHOICE_AUTO;
	*name = NULL;
	if (!choice)
		return 0;
	if (json_is_object(choice)) {
		*ret = TOOL_CHOICE_REQUIRED;
		return named_function(choice, name, e);
	}
	for (size_t i = 0; text && i < ARRAY_SIZE(words); i++)
		if (!strcmp(text, words[i])) {
			*ret = (enum openai_tool_choice)i;
			return 0;
		}
	return field_wrong(e, "", "tool_choice", choice, CHOICE_WANT);
}

int tools_context(const json_t *body, json_t *context, struct err *e)
{
	json_t *tools = field_get(body, "tools");
	enum openai_tool_choice choice;
	const char *name;
	int r;

	if (tools && !json_is_array(tools))
		return field_wrong(e, "", "tools", tools, "an array");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		r = check_tool(json_array_get(tools, i), i, e);
		if (r < 0)
			return r;
	}
	r = read_choice(body, &choice, &name, e);
	if (r < 0)
		return r;
	tools = choice == TOOL_CHOICE_NONE || !json_array_size(tools) ? json_null()
								      : json_incref(tools);
	return json_object_set_new_nocheck(context, "tools", tools) < 0 ? err_no_memory(e) : 0;
}

/* ---- the types of parameters ---- */

enum {
	SCHEMAS_MAX =
		64, /* the most schemas that are read for one parameter; a $ref may lead back to its own schema */
	LIST_MAX = 64, /* the most values that are read of an enum, or of a list of types */
	READS_MAX =
		1
		<< 16, /* the most schemas and such values that are read for all parameters of a request */
	LOOKS = 64, /* parameters between two calls of pace_gives_up */
};

/* The state that all parameters of a request share while their types are read. */
struct typing {
	const json_t *root; /* the schema of the tool's parameters */
	size_t left;	    /* the number of schemas and values that may still be read */
	size_t schemas;	    /* the number of schemas that may still be read for this parameter */
};

static bool may_read(struct typing *t)
{
	if (!t->left)
		return false;
	t->left--;
	return true;
}

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

/* Returns the types that a schema allows, as far as its type, enum, const, $ref, anyOf, oneOf and allOf say. If they
 * say nothing, properties are of an object and items of an array. */
static unsigned schema_types(struct typing *t, const json_t *schema)
{
	static const char *const alternatives[] = {"anyOf", "oneOf", "allOf"};
	const json_t *type = json_object_get(schema, "type"), *list, *v;
	unsigned types = named_type(json_string_value(type));

	if (!t->schemas || !may_read(t))
		return 0;
	t->schemas--;
	for (size_t i = 0; i < MIN(json_array_size(type), (size_t)LIST_MAX) && may_read(t); i++)
		types |= named_type(json_string_value(json_array_get(type, i)));
	if (types)
		return types;
	list = json_object_get(schema, "enum");
	for (size_t i = 0; i < MIN(json_array_size(list), (size_t)LIST_MAX) && may_read(t); i++)
		types |= value_type(json_array_get(list, i));
	v = json_object_get(schema, "const");
	if (v)
		types |= value_type(v);
	v = referred(t->root, json_string_value(json_object_get(schema, "$ref")));
	if (v)
		types |= schema_types(t, v);
	for (size_t k = 0; k < ARRAY_SIZE(alternatives); k++) {
		list = json_object_get(schema, alternatives[k]);
		for (size_t i = 0; i < json_array_size(list) && t->schemas && t->left; i++)
			types |= schema_types(t, json_array_get(list, i));
	}
	if (!types && json_object_get(schema, "properties"))
		types |= TOOLS_OBJECT;
	if (!types && json_object_get(schema, "items"))
		types |= TOOLS_ARRAY;
	return types;
}

/* Lists the parameters whose values may be other than strings, as far as the schemas are read and say so. */
static int list_parameters(struct typing *t, const struct pace *pace, struct arena *arena,
			   struct tool *tool, struct err *e)
{
	json_t *properties = json_object_get(t->root, "properties"), *v;
	struct tool_parameter *p;
	const char *name;
	size_t n = 0;

	p = arena_array(arena, json_object_size(properties), sizeof(*p));
	if (!p)
		return err_no_memory(e);
	tool->parameters = p;
	json_object_foreach(properties, name, v)
	{
		if (!t->left)
			break;
		if (n++ % LOOKS == 0 && pace_gives_up(pace))
			return err_set(e, ECANCELED, "the tools are not read to their end");
		t->schemas = SCHEMAS_MAX;
		p->types = schema_types(t, v);
		if (!(p->types & ~(unsigned)TOOLS_STRING))
			continue;
		p->name = arena_strdup(arena, name);
		if (!p->name)
			return err_no_memory(e);
		p++;
	}
	tool->n_parameters = (size_t)(p - tool->parameters);
	return 0;
}

int tools_list(const json_t *context, const struct pace *pace, struct arena *arena,
	       struct tool_list *ret, struct err *e)
{
	struct typing t = {.left = READS_MAX};
	const json_t *tools = json_object_get(context, "tools");
	size_t n = json_array_size(tools);
	struct tool *list;
	int r;

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
		if (!list[i].name)
			return err_no_memory(e);
		t.root = json_object_get(function, "parameters");
		r = list_parameters(&t, pace, arena, &list[i], e);
		if (r < 0)
			return r;
	}
	*ret = (struct tool_list){list, n};
	return 0;
}

int tools_choice(const json_t *body, struct openai_request *r, struct err *e)
{
	const char *name;
	int ret = read_choice(body, &r->tool_choice, &name, e);

	if (ret < 0 || r->tool_choice != TOOL_CHOICE_REQUIRED)
		return ret;
	if (!r->tools.n)
		return err_param(e, EINVAL, "tool_choice",
				 "tool_choice demands a call, but there are no tools");
	if (!name)
		return 0;
	for (size_t i = 0; i < r->tools.n; i++)
		if (!strcmp(r->tools.v[i].name, name))
			r->only_tool = r->tools.v[i].name;
	/* One call of the tool is demanded, and one is enough. */
	r->one_call = true;
	return r->only_tool
		       ? 0
		       : err_param(e, EINVAL, "tool_choice",
				   "tool_choice names \"%.60s\", which is none of the tools", name);
}
