/* The keywords of JSON Schema: which are known, which types they are about, and where they have schemas. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "protocol/grammar/schema.h"
#include "protocol/word.h"

static const struct {
	const char *name;
	unsigned bit;
} type_names[] = {{"null", T_NULL},	 {"boolean", T_BOOLEAN}, {"object", T_OBJECT},
		  {"array", T_ARRAY},	 {"string", T_STRING},	 {"number", T_NUMBER | T_INTEGER},
		  {"integer", T_INTEGER}};

enum { ANNOTATION = 1 << 7 };

/* types 0: any type. */
static const struct {
	const char *name;
	unsigned types;
	enum schema_holds holds;
} keywords[] = {
	{"type", 0, HOLDS_NONE},
	{"enum", 0, HOLDS_NONE},
	{"const", 0, HOLDS_NONE},
	{"anyOf", 0, HOLDS_LIST},
	{"oneOf", 0, HOLDS_LIST},
	{"allOf", 0, HOLDS_LIST},
	{"not", 0, HOLDS_SCHEMA},
	{"if", 0, HOLDS_SCHEMA},
	{"then", 0, HOLDS_SCHEMA},
	{"else", 0, HOLDS_SCHEMA},
	{"$ref", 0, HOLDS_NONE},
	{"$dynamicRef", 0, HOLDS_NONE},
	{"properties", T_OBJECT, HOLDS_MAP},
	{"required", T_OBJECT, HOLDS_NONE},
	{"additionalProperties", T_OBJECT, HOLDS_SCHEMA},
	{"patternProperties", T_OBJECT, HOLDS_MAP},
	{"propertyNames", T_OBJECT, HOLDS_SCHEMA},
	{"minProperties", T_OBJECT, HOLDS_NONE},
	{"maxProperties", T_OBJECT, HOLDS_NONE},
	{"dependentRequired", T_OBJECT, HOLDS_NONE},
	{"dependentSchemas", T_OBJECT, HOLDS_MAP},
	{"unevaluatedProperties", T_OBJECT, HOLDS_SCHEMA},
	{"items", T_ARRAY, HOLDS_SCHEMA},
	{"additionalItems", T_ARRAY, HOLDS_SCHEMA},
	{"prefixItems", T_ARRAY, HOLDS_LIST},
	{"minItems", T_ARRAY, HOLDS_NONE},
	{"maxItems", T_ARRAY, HOLDS_NONE},
	{"uniqueItems", T_ARRAY, HOLDS_NONE},
	{"contains", T_ARRAY, HOLDS_SCHEMA},
	{"minContains", T_ARRAY, HOLDS_NONE},
	{"maxContains", T_ARRAY, HOLDS_NONE},
	{"unevaluatedItems", T_ARRAY, HOLDS_SCHEMA},
	{"minLength", T_STRING, HOLDS_NONE},
	{"maxLength", T_STRING, HOLDS_NONE},
	{"pattern", T_STRING, HOLDS_NONE},
	{"format", T_STRING, HOLDS_NONE},
	{"minimum", T_NUMBER | T_INTEGER, HOLDS_NONE},
	{"maximum", T_NUMBER | T_INTEGER, HOLDS_NONE},
	{"exclusiveMinimum", T_NUMBER | T_INTEGER, HOLDS_NONE},
	{"exclusiveMaximum", T_NUMBER | T_INTEGER, HOLDS_NONE},
	{"multipleOf", T_NUMBER | T_INTEGER, HOLDS_NONE},
	{"$schema", ANNOTATION, HOLDS_NONE},
	{"$id", ANNOTATION, HOLDS_NONE},
	{"$comment", ANNOTATION, HOLDS_NONE},
	{"$defs", ANNOTATION, HOLDS_MAP},
	{"definitions", ANNOTATION, HOLDS_MAP},
	{"$anchor", ANNOTATION, HOLDS_NONE},
	{"$dynamicAnchor", ANNOTATION, HOLDS_NONE},
	{"title", ANNOTATION, HOLDS_NONE},
	{"description", ANNOTATION, HOLDS_NONE},
	{"default", ANNOTATION, HOLDS_NONE},
	{"examples", ANNOTATION, HOLDS_NONE},
	{"deprecated", ANNOTATION, HOLDS_NONE},
	{"readOnly", ANNOTATION, HOLDS_NONE},
	{"writeOnly", ANNOTATION, HOLDS_NONE},
	{"contentEncoding", ANNOTATION, HOLDS_NONE},
	{"contentMediaType", ANNOTATION, HOLDS_NONE},
	{"contentSchema", ANNOTATION, HOLDS_NONE},
	/* Of OpenAPI: it names the member that tells the schemas of oneOf apart, and decides nothing. */
	{"discriminator", ANNOTATION, HOLDS_NONE},
};

/* Returns the row of a keyword, or ARRAY_SIZE(keywords). */
static size_t row_of(const char *name)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(keywords) && strcmp(keywords[i].name, name) != 0)
		i++;
	return i;
}

unsigned schema_check(struct schemas *s, const json_t *schema)
{
	unsigned types = 0;
	const char *name;
	json_t *value;

	if (!json_is_object(schema) && !json_is_boolean(schema) && !s->r)
		s->r = err_set(s->e, EINVAL, "a JSON schema is neither an object nor a boolean");
	json_object_foreach((json_t *)schema, name, value)
	{
		size_t i = row_of(name);

		if (i == ARRAY_SIZE(keywords))
			schema_unsupported(s, name, "");
		else
			types |= keywords[i].types;
	}
	return types & T_ALL;
}

size_t schema_keywords(const json_t *schema, const char **ret)
{
	const char *name;
	json_t *value;
	size_t n = 0;

	json_object_foreach((json_t *)schema, name, value)
	{
		size_t i = row_of(name);

		if (i < ARRAY_SIZE(keywords) && keywords[i].types == ANNOTATION)
			continue;
		*ret = name;
		n++;
	}
	return n;
}

enum schema_holds schema_holds(const char *keyword)
{
	size_t i = row_of(keyword);

	return i < ARRAY_SIZE(keywords) ? keywords[i].holds : HOLDS_NONE;
}

static unsigned type_bits(struct schemas *s, const json_t *type)
{
	const char *name = word_of(type);

	for (size_t i = 0; name && i < ARRAY_SIZE(type_names); i++) {
		if (!strcmp(name, type_names[i].name))
			return type_names[i].bit;
	}
	schema_wrong(s, "type", "the name of a type, or a list of these");
	return 0;
}

unsigned schema_types(struct schemas *s, const json_t *schema)
{
	const json_t *type = json_object_get(schema, "type");
	unsigned bits = 0;

	if (!type)
		return T_ALL;
	if (!json_is_array(type))
		return type_bits(s, type);
	for (size_t i = 0; i < json_array_size(type); i++)
		bits |= type_bits(s, json_array_get(type, i));
	return bits;
}

unsigned schema_type_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_NULL: return T_NULL;
	case JSON_TRUE:
	case JSON_FALSE: return T_BOOLEAN;
	case JSON_STRING: return T_STRING;
	case JSON_ARRAY: return T_ARRAY;
	case JSON_OBJECT: return T_OBJECT;
	case JSON_INTEGER: return T_INTEGER;
	case JSON_REAL: break;
	}
	return json_real_value(v) == floor(json_real_value(v)) ? T_INTEGER : T_NUMBER;
}

uint32_t schema_count(struct schemas *s, const json_t *schema, const char *name, uint32_t usual)
{
	const json_t *v = json_object_get(schema, name);
	double n = json_number_value(v);

	if (!v)
		return usual;
	if (!json_is_number(v) || n < 0 || n != floor(n)) {
		schema_wrong(s, name, "a whole number from 0 on");
		return 0;
	}
	return n >= (double)GRAMMAR_NO_LIMIT ? GRAMMAR_NO_LIMIT - 1 : (uint32_t)n;
}

json_t *schema_list(struct schemas *s, const json_t *schema, const char *name)
{
	json_t *v = json_object_get(schema, name);

	if (v && !json_is_array(v))
		schema_wrong(s, name, "a list");
	return s->r ? NULL : v;
}

json_t *schema_map(struct schemas *s, const json_t *schema, const char *name)
{
	json_t *v = json_object_get(schema, name);

	if (v && !json_is_object(v))
		schema_wrong(s, name, "an object");
	return s->r ? NULL : v;
}

json_t *schema_prefix(struct schemas *s, const json_t *schema)
{
	json_t *items = json_object_get(schema, "items");

	if (!json_is_array(items))
		return schema_list(s, schema, "prefixItems");
	if (json_object_get(schema, "prefixItems"))
		schema_unsupported(s, "items", " as a list beside prefixItems");
	return s->r ? NULL : items;
}

json_t *schema_behind(const json_t *schema)
{
	json_t *items = json_object_get(schema, "items");

	return json_is_array(items) ? json_object_get(schema, "additionalItems") : items;
}
