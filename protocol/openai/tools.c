/* Reads the tools of a chat request: for the template, as they are, and as a list for the parser of the calls that the
 * model writes (protocol/output/tools.h). */
#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

int tools_function_name(const json_t *object, const char *where, const json_t **ret, struct err *e)
{
	const json_t *name = NULL;
	int r = field_string(object, where, "name", &name, e);

	if (r < 0)
		return r;
	if (!word_of(name) || !json_string_length(name))
		return field_wrong(e, where, "name", name,
				   "a string that is not empty and has no NUL");
	*ret = name;
	return 0;
}

/* The member of `ids` that stands for calls whose id is unknown. */
static const char any_id[] = "";

int tools_note_call(json_t *ids, const json_t *id, struct err *e)
{
	const char *text = word_of(id);

	return field_set_new(ids, text ? text : any_id, json_true(), e);
}

int tools_check_result(const json_t *ids, const json_t *result, const char *where, const char *name,
		       struct err *e)
{
	const json_t *id = field_get(result, name);
	const char *text = word_of(id);

	if (!json_string_length(id) || json_object_get(ids, any_id) ||
	    (text && json_object_get(ids, text)))
		return 0;
	return field_wrong(e, where, name, id, "the id of a tool call before it");
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
	if (type && !field_is(type, "function"))
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

/* tool_choice, as the body has it. Borrowed. */
struct choice {
	enum openai_tool_choice kind;
	const char *name; /* the function that is to be called; NULL: any */
	const json_t *
		allowed; /* allowed_tools: an array of the functions that may be called; NULL: all */
};

/* Reads the name in {"type":"function","function":{"name"}}, which stands at `path`. */
static int named_function(const json_t *v, const char *path, const char **ret, struct err *e)
{
	const json_t *type = field_get(v, "type"), *function = field_get(v, "function"), *name;
	char where[ERR_PARAM_MAX];
	int r;

	if (!json_is_object(v))
		return field_wrong(e, path, "", v, "an object that names a function");
	field_path(where, "%s.", path);
	if (type && !word_of(type))
		return field_wrong(e, where, "type", type, "\"function\"");
	if (type && !field_is(type, "function")) {
		field_path(where, "%s.type", path);
		return err_param(e, PROBLEM_UNSUPPORTED, where,
				 "%s \"%.40s\" is not supported by this server, which has "
				 "functions alone",
				 where, json_string_value(type));
	}
	if (!json_is_object(function))
		return field_wrong(e, where, "function", function, "an object with a name");
	field_path(where, "%s.function.", path);
	r = tools_function_name(function, where, &name, e);
	if (r == 0)
		*ret = json_string_value(name);
	return r;
}

/* Reads {"type":"allowed_tools","allowed_tools":{"mode","tools"}}. */
static int allowed_functions(const json_t *v, struct choice *ret, struct err *e)
{
	static const char where[] = "tool_choice.allowed_tools.";
	const json_t *allowed = field_get(v, "allowed_tools"), *mode = field_get(allowed, "mode");
	char path[ERR_PARAM_MAX];
	const char *name;
	int r = 0;

	if (!json_is_object(allowed))
		return field_wrong(e, "tool_choice.", "allowed_tools", allowed,
				   "an object with mode and tools");
	if (mode && !field_is(mode, "auto") && !field_is(mode, "required"))
		return field_wrong(e, where, "mode", mode, "\"auto\" or \"required\"");
	ret->kind = field_is(mode, "required") ? TOOL_CHOICE_REQUIRED : TOOL_CHOICE_AUTO;
	ret->allowed = field_get(allowed, "tools");
	if (!json_is_array(ret->allowed))
		return field_wrong(e, where, "tools", ret->allowed, "an array of functions");
	for (size_t i = 0; r == 0 && i < json_array_size(ret->allowed); i++) {
		field_path(path, "%stools[%zu]", where, i);
		r = named_function(json_array_get(ret->allowed, i), path, &name, e);
	}
	return r;
}

static int read_choice(const json_t *body, struct choice *ret, struct err *e)
{
	static const char *const words[] = {[TOOL_CHOICE_AUTO] = "auto",
					    [TOOL_CHOICE_NONE] = "none",
					    [TOOL_CHOICE_REQUIRED] = "required"};
	const json_t *choice = field_get(body, "tool_choice");
	const char *text = word_of(choice);

	*ret = (struct choice){.kind = TOOL_CHOICE_AUTO};
	if (!choice)
		return 0;
	if (field_is(field_get(choice, "type"), "allowed_tools"))
		return allowed_functions(choice, ret, e);
	if (json_is_object(choice)) {
		ret->kind = TOOL_CHOICE_REQUIRED;
		return named_function(choice, "tool_choice", &ret->name, e);
	}
	for (size_t i = 0; text && i < ARRAY_SIZE(words); i++)
		if (!strcmp(text, words[i])) {
			ret->kind = (enum openai_tool_choice)i;
			return 0;
		}
	return field_wrong(e, "", "tool_choice", choice,
			   "\"none\", \"auto\", \"required\", a function or allowed_tools");
}

int tools_context(const json_t *body, json_t *context, struct err *e)
{
	json_t *tools = field_get(body, "tools");
	struct choice choice;
	int r;

	if (tools && !json_is_array(tools))
		return field_wrong(e, "", "tools", tools, "an array");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		r = check_tool(json_array_get(tools, i), i, e);
		if (r < 0)
			return r;
	}
	r = read_choice(body, &choice, e);
	if (r < 0)
		return r;
	/* All of them, whichever may be called, so that the prompt of an agent stays that of its other turns, which is
	 * cached. */
	tools = json_array_size(tools) ? json_incref(tools) : json_null();
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
	unsigned types = named_type(word_of(type));

	if (!t->schemas || !may_read(t))
		return 0;
	t->schemas--;
	for (size_t i = 0; i < MIN(json_array_size(type), (size_t)LIST_MAX) && may_read(t); i++)
		types |= named_type(word_of(json_array_get(type, i)));
	if (types)
		return types;
	list = json_object_get(schema, "enum");
	for (size_t i = 0; i < MIN(json_array_size(list), (size_t)LIST_MAX) && may_read(t); i++)
		types |= value_type(json_array_get(list, i));
	v = json_object_get(schema, "const");
	if (v)
		types |= value_type(v);
	v = referred(t->root, word_of(json_object_get(schema, "$ref")));
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

/* ---- the tools that may be called ---- */

static int not_a_tool(const char *name, struct err *e)
{
	return err_param(e, EINVAL, "tool_choice",
			 "tool_choice names \"%.60s\", which is none of the tools", name);
}

/* Leaves those of the tools that are allowed. */
static int allow(const json_t *allowed, struct arena *arena, struct tool_list *tools, struct err *e)
{
	json_t *names CLEANUP_JSON = json_object(), *known;
	struct tool *list = arena_array(arena, tools->n, sizeof(*list));
	const char *name;
	size_t n = 0;

	if (!names || !list)
		return err_no_memory(e);
	/* By name: whether it is that of a tool. */
	for (size_t i = 0; i < json_array_size(allowed); i++) {
		const json_t *function = json_object_get(json_array_get(allowed, i), "function");

		name = json_string_value(json_object_get(function, "name"));
		if (json_object_set_new_nocheck(names, name, json_false()) < 0)
			return err_no_memory(e);
	}
	for (size_t i = 0; i < tools->n; i++) {
		if (!json_object_get(names, tools->v[i].name))
			continue;
		list[n++] = tools->v[i];
		if (json_object_set_new_nocheck(names, tools->v[i].name, json_true()) < 0)
			return err_no_memory(e);
	}
	json_object_foreach(names, name, known)
	{
		if (!json_is_true(known))
			return not_a_tool(name, e);
	}
	*tools = (struct tool_list){list, n};
	return 0;
}

int tools_choice(const json_t *body, struct arena *arena, struct openai_request *r, struct err *e)
{
	struct choice choice;
	int ret = read_choice(body, &choice, e);

	if (ret == 0 && choice.allowed)
		ret = allow(choice.allowed, arena, &r->tools, e);
	if (ret < 0)
		return ret;
	r->tool_choice = choice.kind;
	if (choice.allowed && !r->tools.n && choice.kind == TOOL_CHOICE_AUTO)
		r->tool_choice = TOOL_CHOICE_NONE;
	if (r->tool_choice == TOOL_CHOICE_NONE)
		r->tools = (struct tool_list){0};
	if (r->tool_choice != TOOL_CHOICE_REQUIRED)
		return 0;
	if (!r->tools.n)
		return err_param(e, EINVAL, "tool_choice",
				 "tool_choice demands a call, but there are no tools");
	if (!choice.name)
		return 0;
	for (size_t i = 0; i < r->tools.n; i++)
		if (!strcmp(r->tools.v[i].name, choice.name))
			r->only_tool = r->tools.v[i].name;
	/* One call of the tool is demanded, and one is enough. */
	r->one_call = true;
	return r->only_tool ? 0 : not_a_tool(choice.name, e);
}
