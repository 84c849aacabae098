/* Reads the parameters that restrict the text of an answer, and makes a grammar of the one that is given: OpenAI's
 * response_format, vLLM's structured_outputs and guided_*, SGLang's regex, ebnf and json_schema, llama.cpp's grammar.
 * */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/constraint.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"

/* A constraint as the body has it. */
struct found {
	char param[ERR_PARAM_MAX]; /* the parameter that has it; "": there is none */
	int (*compile)(const json_t *value, struct grammar **ret, struct err *e);
	const json_t *value; /* borrowed; NULL: compile needs none */
};

/* ---- the kinds of values: each makes a grammar ---- */

static int wrong_type(struct err *e, const char *want)
{
	return err_set(e, EINVAL, "it must be %s", want);
}

static int compile_object(const json_t *value, struct grammar **ret, struct err *e)
{
	(void)value;
	return constraint_json_object(ret, e);
}

/* A schema, or the JSON text of one. */
static int compile_schema(const json_t *value, struct grammar **ret, struct err *e)
{
	size_t values = FIELDS_VALUES_MAX, len = json_string_length(value);
	const char *text = json_string_value(value);
	json_error_t error;
	json_t *schema;
	int r;

	if (!text)
		return json_is_object(value) || json_is_boolean(value)
			       ? constraint_json_schema(value, ret, e)
			       : wrong_type(e, "a JSON schema");
	if (fields_check_bounds(text, len, NULL, &values, e) < 0)
		return -EINVAL;
	schema = fields_parse(text, len, JSON_DECODE_ANY, NULL, &error);
	if (!schema)
		return error.text[0] ? err_set(e, EINVAL, "its text is no JSON: %s", error.text)
				     : err_no_memory(e);
	r = json_is_string(schema) ? wrong_type(e, "a JSON schema")
				   : compile_schema(schema, ret, e);
	json_decref(schema);
	return r;
}

static int compile_regex(const json_t *value, struct grammar **ret, struct err *e)
{
	if (!json_is_string(value))
		return wrong_type(e, "a string with a regular expression");
	return constraint_regex(json_string_value(value), json_string_length(value), ret, e);
}

static int compile_grammar(const json_t *value, struct grammar **ret, struct err *e)
{
	if (!json_is_string(value))
		return wrong_type(e, "a string with a grammar (GBNF)");
	return constraint_gbnf(json_string_value(value), json_string_length(value), ret, e);
}

static int compile_choice(const json_t *value, struct grammar **ret, struct err *e)
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
		texts[i] = (struct constraint_text){json_string_value(v), json_string_length(v)};
	}
	if (!r)
		r = constraint_choice(texts, n, ret, e);
	free(texts);
	return r;
}

/* ---- the parameters ---- */

/* Notes a constraint. Two of them in one request are refused. */
static int note(struct found *f, const char *where, const char *name,
		int (*compile)(const json_t *, struct grammar **, struct err *),
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

static const struct {
	const char *name;
	int (*compile)(const json_t *value, struct grammar **ret, struct err *e);
} parameters[] =
	{
		{"guided_json", compile_schema},   {"guided_regex", compile_regex},
		{"guided_choice", compile_choice}, {"guided_grammar", compile_grammar},
		{"json_schema", compile_schema},   {"regex", compile_regex},
		{"ebnf", compile_grammar},	   {"grammar", compile_grammar},
},
  structured[] = {
	  {"json", compile_schema},	{"regex", compile_regex},	 {"choice", compile_choice},
	  {"grammar", compile_grammar}, {"json_object", compile_object},
};

/* Members of structured_outputs that would change the answer. */
static const char *const structured_refused[] = {"structural_tag", "whitespace_pattern",
						 "disable_any_whitespace"};

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
		const json_t *v = field_get(options, structured_refused[i]);

		if (v && !json_is_false(v))
			return err_param(e, PROBLEM_UNSUPPORTED, "structured_outputs",
					 "structured_outputs.%s is not supported by this server",
					 structured_refused[i]);
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

static int json_schema_format(const json_t *format, struct found *f, struct err *e)
{
	const char *const where = "response_format.json_schema.";
	const json_t *outer = field_get(format, "json_schema"), *name = NULL, *schema;
	bool strict;
	int r;

	if (!json_is_object(outer))
		return field_wrong(e, "response_format.", "json_schema", outer,
				   "an object with name and schema");
	r = field_string(outer, where, "name", &name, e);
	if (r == 0)
		r = field_bool(outer, where, "strict", &strict, e);
	if (r < 0)
		return r;
	schema = field_get(outer, "schema");
	if (!schema)
		return field_wrong(e, where, "schema", NULL, "a JSON schema");
	return note(f, where, "schema", compile_schema, schema, e);
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
	name = json_string_value(type);
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

/* Names the parameter in the error of a front end. A grammar beyond the limits is the request's fault. */
static int name_error(const char *param, struct err *e)
{
	if (!e)
		return 0;
	if (e->code != ENOMEM) {
		err_prefix(e, "%s", param);
		memcpy(e->param, param, sizeof(e->param));
	}
	if (e->code == E2BIG)
		e->code = EINVAL;
	return -e->code;
}

int constraint_parse(const json_t *body, struct arena *arena, struct openai_request *r,
		     struct err *e)
{
	struct found f = {0};
	struct err own = {0};
	int ret = response_format(body, &f, e);

	if (ret == 0)
		ret = structured_outputs(body, &f, e);
	for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(parameters); i++) {
		const json_t *v = field_get(body, parameters[i].name);

		if (v && !field_asks_nothing(v))
			ret = note(&f, "", parameters[i].name, parameters[i].compile, v, e);
	}
	if (ret < 0 || !f.param[0])
		return ret;
	r->constraint = arena_strdup(arena, f.param);
	if (!r->constraint)
		return err_no_memory(e);
	if (f.compile(f.value, &r->grammar, &own) == 0)
		return 0;
	ret = name_error(f.param, &own);
	if (e)
		*e = own;
	return ret;
}
