/* Reads the parameters that restrict the text of an answer: OpenAI's response_format (and its like in other APIs),
 * vLLM's structured_outputs and guided_*, SGLang's regex, ebnf and json_schema, llama.cpp's grammar. Makes the grammar
 * of the answer, with the calls that it may have. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/constraint.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/output/tools_grammar.h"
#include "protocol/word.h"

/* Makes the grammar of a value. Asks pace as constraint_grammar does. */
typedef int compile_value(const json_t *value, const struct pace *pace, struct grammar **ret,
			  struct err *e);

/* A constraint as the body has it. */
struct found {
	char param[ERR_PARAM_MAX]; /* the parameter that has it; "": there is none */
	compile_value *compile;
	const json_t *value; /* borrowed; NULL: compile needs none */
	json_t *schema; /* with compile_schema: the value, whose text was read if it is one; owned */
};

/* ---- the kinds of values: each makes a grammar ---- */

static int wrong_type(struct err *e, const char *want)
{
	return err_set(e, EINVAL, "it must be %s", want);
}

static struct constraint_text text_of(const json_t *string)
{
	return (struct constraint_text){json_string_value(string), json_string_length(string)};
}

static int compile_object(const json_t *value, const struct pace *pace, struct grammar **ret,
			  struct err *e)
{
	(void)value;
	return constraint_grammar(&(struct constraint){.kind = CONSTRAINT_JSON_OBJECT}, pace, ret,
				  e);
}

static int compile_schema(const json_t *value, const struct pace *pace, struct grammar **ret,
			  struct err *e)
{
	return constraint_grammar(&(struct constraint){.kind = CONSTRAINT_JSON_SCHEMA,
						       .schema = value},
				  pace, ret, e);
}

static int compile_regex(const json_t *value, const struct pace *pace, struct grammar **ret,
			 struct err *e)
{
	if (!json_is_string(value))
		return wrong_type(e, "a string with a regular expression");
	return constraint_grammar(&(struct constraint){.kind = CONSTRAINT_REGEX,
						       .text = text_of(value)},
				  pace, ret, e);
}

static int compile_grammar(const json_t *value, const struct pace *pace, struct grammar **ret,
			   struct err *e)
{
	if (!json_is_string(value))
		return wrong_type(e, "a string with a grammar (GBNF)");
	return constraint_grammar(&(struct constraint){.kind = CONSTRAINT_GBNF,
						       .text = text_of(value)},
				  pace, ret, e);
}

static int compile_choice(const json_t *value, const struct pace *pace, struct grammar **ret,
			  struct err *e)
{
	size_t n = json_array_size(value);
	struct constraint_text *texts;
	int r = 0;

	if (!json_is_array(value))
		return wrong_type(e, "an array of strings");
	texts = calloc(n + 1, sizeof(*texts));
	if (!texts)
		return err_no_memory(e);
	for (size_t i = 0; !r && i < n; i++) {
		const json_t *v = json_array_get(value, i);

		if (!json_is_string(v))
			r = wrong_type(e, "an array of strings");
		texts[i] = text_of(v);
	}
	if (!r)
		r = constraint_grammar(&(struct constraint){.kind = CONSTRAINT_CHOICE,
							    .texts = texts,
							    .n_texts = n},
				       pace, ret, e);
	free(texts);
	return r;
}

/* ---- the parameters ---- */

/* Notes a constraint. Two of them in one request are refused. */
static int note(struct found *f, const char *where, const char *name, compile_value *compile,
		const json_t *value, struct err *e)
{
	char param[ERR_PARAM_MAX];

	field_path(param, "%s%s", where, name);
	if (f->param[0])
		return err_param(e, EINVAL, param,
				 "%s and %s are both given, but an answer can have one constraint",
				 f->param, param);
	memcpy(f->param, param, sizeof(param));
	f->compile = compile;
	f->value = value;
	return 0;
}

struct parameter {
	const char *name;
	compile_value *compile;
};

static const struct parameter parameters[] = {
	{"guided_json", compile_schema},   {"guided_regex", compile_regex},
	{"guided_choice", compile_choice}, {"guided_grammar", compile_grammar},
	{"json_schema", compile_schema},   {"regex", compile_regex},
	{"ebnf", compile_grammar},	   {"grammar", compile_grammar},
};

/* The members of structured_outputs. */
static const struct parameter structured[] = {
	{"json", compile_schema},     {"regex", compile_regex},	       {"choice", compile_choice},
	{"grammar", compile_grammar}, {"json_object", compile_object},
};

/* Members of structured_outputs that would change the answer. */
static const struct refused_field structured_refused[] = {
	{"structural_tag", "a constraint is about the whole answer"},
	{"whitespace_pattern", "the blanks between parts of JSON are fixed"},
	{"disable_any_whitespace", "the blanks between parts of JSON are fixed"},
};

static int structured_outputs(const json_t *body, struct found *f, struct err *e)
{
	const char *const where = "structured_outputs.";
	const json_t *options = field_get(body, "structured_outputs");
	size_t before = f->param[0] != 0;
	int r = 0;

	if (!options)
		return 0;
	if (!json_is_object(options))
		return field_wrong(e, "", "structured_outputs", options, "an object");
	for (size_t i = 0; i < ARRAY_SIZE(structured_refused); i++) {
		const json_t *v = field_get(options, structured_refused[i].name);

		if (v && !json_is_false(v))
			return field_refuse(e, where, &structured_refused[i]);
	}
	for (size_t i = 0; !r && i < ARRAY_SIZE(structured); i++) {
		const json_t *v = field_get(options, structured[i].name);

		if (v && !json_is_false(v))
			r = note(f, where, structured[i].name, structured[i].compile, v, e);
	}
	if (!r && !before && !f->param[0] && json_object_size(options))
		return err_param(e, EINVAL, "structured_outputs",
				 "structured_outputs has none of json, regex, choice, grammar and "
				 "json_object");
	return r;
}

#define FORMAT_WANT "\"text\", \"json_object\" or \"json_schema\""

/* Reads the members name, strict and schema of an object. */
static int named_schema(const json_t *object, const char *where, struct found *f, struct err *e)
{
	const json_t *name = NULL, *schema = field_get(object, "schema");
	bool strict;
	int r = field_string(object, where, "name", &name, e);

	if (r == 0)
		r = field_bool(object, where, "strict", &strict, e);
	if (r < 0)
		return r;
	if (!schema)
		return field_wrong(e, where, "schema", NULL, "a JSON schema");
	return note(f, where, "schema", compile_schema, schema, e);
}

static int json_schema_format(const json_t *format, struct found *f, struct err *e)
{
	const char *const where = "response_format.json_schema.";
	const json_t *outer = field_get(format, "json_schema");

	if (!json_is_object(outer))
		return field_wrong(e, "response_format.", "json_schema", outer,
				   "an object with name and schema");
	return named_schema(outer, where, f, e);
}

static int response_format(const json_t *body, struct found *f, struct err *e)
{
	const json_t *format = field_get(body, "response_format"), *type, *schema;
	const char *name;

	if (!format)
		return 0;
	if (!json_is_object(format))
		return field_wrong(e, "", "response_format", format, "an object with a type");
	type = field_get(format, "type");
	name = word_of(type);
	if (name && !strcmp(name, "text"))
		return 0;
	if (name && !strcmp(name, "json_schema"))
		return json_schema_format(format, f, e);
	if (!name || strcmp(name, "json_object"))
		return field_wrong(e, "response_format.", "type", type, FORMAT_WANT);
	/* llama.cpp takes a schema here, too. */
	schema = field_get(format, "schema");
	if (schema)
		return note(f, "response_format.", "schema", compile_schema, schema, e);
	return note(f, "", "response_format", compile_object, NULL, e);
}

/* Reads the format at another place: as response_format, but the schema's name, the schema and strict stand beside the
 * type. */
static int flat_format(const json_t *body, const struct format_place *place, struct found *f,
		       struct err *e)
{
	const json_t *object = place->object ? field_get(body, place->object) : body;
	const json_t *format = field_get(object, place->name), *type;
	char outer[ERR_PARAM_MAX] = "", where[ERR_PARAM_MAX];
	const char *kind;

	if (!format)
		return 0;
	if (place->object)
		field_path(outer, "%s.", place->object);
	field_path(where, "%s%s.", outer, place->name);
	if (!json_is_object(format))
		return field_wrong(e, outer, place->name, format, "an object with a type");
	type = field_get(format, "type");
	kind = word_of(type);
	if (kind && !strcmp(kind, "text"))
		return 0;
	if (kind && !strcmp(kind, "json_object"))
		return note(f, outer, place->name, compile_object, NULL, e);
	if (!kind || strcmp(kind, "json_schema"))
		return field_wrong(e, where, "type", type, FORMAT_WANT);
	return named_schema(format, where, f, e);
}

/* Names the parameter in the error of a front end that has named none. A grammar beyond the limits is the request's
 * fault. */
static int name_error(const char *param, struct err *e)
{
	if (!e)
		return 0;
	if (e->code != ENOMEM) {
		if (!e->param[0])
			snprintf(e->param, sizeof(e->param), "%s", param);
		err_prefix(e, "%s", e->param);
	}
	if (e->code == E2BIG)
		e->code = EINVAL;
	return -e->code;
}

/* Reads a JSON schema, or the JSON text of one, into f->schema, which is the value from then on. */
static int take_schema(struct found *f, struct err *e)
{
	size_t values = FIELDS_VALUES_MAX, len = json_string_length(f->value);
	const char *text = json_string_value(f->value);
	struct err own = {0};
	json_error_t error;
	int r = 0;

	if (f->compile != compile_schema)
		return 0;
	if (!text)
		f->schema = json_incref((json_t *)f->value);
	else if (fields_check_bounds(text, len, NULL, &values, &own) < 0)
		r = -own.code;
	else if (!(f->schema = fields_parse(text, len, JSON_DECODE_ANY, NULL, &error)))
		r = error.text[0] ? err_set(&own, EINVAL, "its text is no JSON: %s", error.text)
				  : err_no_memory(&own);
	if (!r && !json_is_object(f->schema) && !json_is_boolean(f->schema))
		r = wrong_type(&own, "a JSON schema");
	f->value = f->schema;
	if (!r)
		return 0;
	r = name_error(f->param, &own);
	if (e)
		*e = own;
	return r;
}

/* Returns the tools of the context that may be called, as JSON, new: those of r->tools, in the same order. NULL: out of
 * memory. */
static json_t *callable_tools(const struct openai_request *r)
{
	const json_t *all = json_object_get(r->context, "tools");
	json_t *list = json_array();

	for (size_t i = 0, n = 0; list && n < r->tools.n; i++) {
		json_t *tool = json_array_get(all, i);
		const json_t *name = json_object_get(json_object_get(tool, "function"), "name");

		if (strcmp(json_string_value(name), r->tools.v[n].name) != 0)
			continue;
		n++;
		if (json_array_append(list, tool) < 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

/* Returns whether calls of some tools alone are allowed. */
static bool allows_some(const struct openai_request *r)
{
	return r->tools.n && r->tools.n < json_array_size(json_object_get(r->context, "tools"));
}

/* Returns the first tool that asks that the arguments of its calls follow its schema; NULL: none does. tools: as
 * callable_tools. */
static const struct tool *first_strict(const struct openai_request *r, const json_t *tools)
{
	for (size_t i = 0; i < r->tools.n; i++)
		if (json_is_true(
			    json_object_get(json_object_get(json_array_get(tools, i), "function"),
					    "strict")))
			return &r->tools.v[i];
	return NULL;
}

/* Returns whether the constraint is JSON, beside which an answer may have calls. */
static bool is_json(const struct found *f)
{
	return f->compile == compile_object || f->compile == compile_schema;
}

/* Makes the grammar of an answer with calls. f: the constraint of other text; f->param "": there is none. tools: as
 * callable_tools. */
static int compile_calls(const struct found *f, const json_t *tools, const struct pace *pace,
			 const struct openai_limits *limits, struct openai_request *r,
			 struct err *e)
{
	const struct tools_demand demand = {
		.format = limits->tools,
		.tools = tools,
		.list = &r->tools,
		.only = r->only_tool,
		.one = r->one_call,
		.strict = r->tool_choice == TOOL_CHOICE_REQUIRED,
		.rest = r->tool_choice == TOOL_CHOICE_REQUIRED ? TOOLS_CALLS_ONLY
			: f->param[0]			       ? TOOLS_OR_JSON
							       : TOOLS_OR_TEXT,
		.schema = f->schema,
	};

	return tools_grammar(&demand, pace, &r->grammar, e);
}

/* Checks that calls that are demanded, have to follow a schema or end the answer can be made and found. A demanded call
 * wins over JSON. tools: as callable_tools. */
static int check_calls(struct found *f, const json_t *tools, const struct request_kind *kind,
		       const struct openai_limits *limits, const struct openai_request *r,
		       struct err *e)
{
	const bool demanded = r->tool_choice == TOOL_CHOICE_REQUIRED;
	const struct tool *strict = first_strict(r, tools);

	if (demanded && f->param[0] && !is_json(f))
		return err_param(e, EINVAL, "tool_choice",
				 "%s and tool_choice are both given, but an answer cannot be a "
				 "text and a call",
				 f->param);
	if (demanded && !limits->tools)
		return err_param(e, PROBLEM_UNSUPPORTED, "tool_choice",
				 "tool_choice cannot demand a call: this server does not know how "
				 "the model writes tool calls");
	if (r->one_call && r->tools.n && !limits->tools)
		return err_param(e, PROBLEM_UNSUPPORTED, kind->one_call,
				 "%s lets an answer end with its first call, but this server does "
				 "not know how the model writes tool calls",
				 kind->one_call);
	if (strict && !limits->tools)
		return err_param(
			e, PROBLEM_UNSUPPORTED, "tools",
			"the tool \"%.60s\" cannot be strict: this server does not know how "
			"the model writes tool calls",
			strict->name);
	if (strict && f->param[0] && !is_json(f))
		return err_param(e, EINVAL, f->param,
				 "%s and the strict tool \"%.60s\" are both given, but beside a "
				 "constraint other than JSON an answer has no calls",
				 f->param, strict->name);
	if (demanded) {
		json_decref(f->schema);
		*f = (struct found){0};
	}
	return 0;
}

static int compile_found(const struct found *f, const json_t *tools, const struct pace *pace,
			 const struct openai_limits *limits, struct openai_request *r,
			 struct err *e)
{
	const bool calls = r->tools.n && limits->tools && (!f->param[0] || is_json(f));
	const bool limited = r->tool_choice == TOOL_CHOICE_REQUIRED || f->param[0] ||
			     allows_some(r) || first_strict(r, tools);
	struct err own = {0};
	int ret;

	if (calls && limited) {
		ret = compile_calls(f, tools, pace, limits, r, &own);
	} else if (f->param[0]) {
		r->no_calls = true;
		ret = f->compile(f->value, pace, &r->grammar, &own);
	} else {
		return 0;
	}
	if (ret == 0)
		return 0;
	ret = name_error(f->param[0] ? f->param : "tools", &own);
	if (e)
		*e = own;
	return ret;
}

int constraint_parse(const json_t *body, const struct pace *pace, const struct request_kind *kind,
		     const struct openai_limits *limits, struct arena *arena,
		     struct openai_request *r, struct err *e)
{
	json_t *tools CLEANUP_JSON = callable_tools(r);
	struct found f = {0};
	int ret = tools ? response_format(body, &f, e) : err_no_memory(e);

	for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(kind->formats) && kind->formats[i].name; i++)
		ret = flat_format(body, &kind->formats[i], &f, e);
	if (ret == 0)
		ret = structured_outputs(body, &f, e);
	for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(parameters); i++) {
		const json_t *v = field_get(body, parameters[i].name);

		/* {} is a schema, that of any JSON, and [] a list without a text to choose. */
		if (v && (json_is_object(v) || json_is_array(v) || !field_asks_nothing(v)))
			ret = note(&f, "", parameters[i].name, parameters[i].compile, v, e);
	}
	if (ret == 0)
		ret = take_schema(&f, e);
	if (ret == 0)
		ret = check_calls(&f, tools, kind, limits, r, e);
	if (ret == 0 && f.param[0]) {
		r->constraint = arena_strdup(arena, f.param);
		if (!r->constraint)
			ret = err_no_memory(e);
	}
	if (ret == 0)
		ret = compile_found(&f, tools, pace, limits, r, e);
	json_decref(f.schema);
	return ret;
}
