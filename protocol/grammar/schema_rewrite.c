/* Keywords that are written with others: not, if, oneOf and the dependent keywords become lists of schemas. Each
 * schema is rewritten only once, so that places with it are equal. */
#include <errno.h>
#include <string.h>

#include "base/mix.h"
#include "protocol/grammar/schema.h"
#include "protocol/word.h"

enum {
	BRANCHES_MAX = 100, /* of oneOf: they are compared with each other */
	PREFIX_MAX = 64,    /* elements before one that must not be valid */
};

/* A list that was made of a keyword of a schema. */
struct made {
	struct map_node node;
	const json_t *schema;
	const char *keyword; /* a constant of this file, or of schema_cases.c */
	json_t *list;
};

static uint64_t made_hash(const json_t *schema, const char *keyword)
{
	uint64_t h = mix64((uintptr_t)schema);

	for (; *keyword; keyword++)
		h = mix64(h ^ (uint8_t)*keyword);
	return h;
}

static json_t *made_before(struct schemas *s, const json_t *schema, const char *keyword)
{
	uint64_t hash = made_hash(schema, keyword);

	for (struct map_node *n = map_first(&s->made, hash); n; n = map_next(n)) {
		struct made *m = container_of(n, struct made, node);

		if (m->schema == schema && !strcmp(m->keyword, keyword))
			return m->list;
	}
	return NULL;
}

static json_t *remember(struct schemas *s, const json_t *schema, const char *keyword, json_t *list)
{
	struct made *m = arena_alloc(&s->arena, sizeof(*m));

	if (s->r)
		return NULL;
	if (!m || !list || map_reserve(&s->made) < 0) {
		schema_no_memory(s);
		return NULL;
	}
	*m = (struct made){.schema = schema, .keyword = keyword, .list = list};
	map_insert(&s->made, &m->node, made_hash(schema, keyword));
	return list;
}

/* Adds a *new* schema to a list; NULL: memory has ended. */
static void add(struct schemas *s, json_t *list, json_t *schema)
{
	if (!list || !schema || json_array_append_new(list, schema) < 0)
		schema_no_memory(s);
	schema_works(s, 16);
}

/* Returns whether a value of multipleOf is a whole number. */
static bool is_step(const json_t *v)
{
	return json_is_number(v) && schema_type_of(v) == T_INTEGER && json_number_value(v) > 0;
}

json_t *schema_not(const json_t *schema, const char *keyword)
{
	json_t *not = json_object_get(schema, "not"), *value = json_object_get(not, keyword);
	const char *only = NULL;

	if (!value || schema_keywords(not, &only) != 1)
		return NULL;
	if (!strcmp(keyword, "multipleOf") && !is_step(value))
		return NULL;
	if (!strcmp(keyword, "required") &&
	    (json_array_size(value) != 1 || !word_of(json_array_get(value, 0))))
		return NULL;
	return value;
}

/* ---- complements ---- */

/* The complement of `keyword`: `type` and another keyword. */
static void add_bound(struct schemas *s, json_t *list, const char *type, const char *keyword,
		      json_t *value)
{
	add(s, list, json_pack("{s:s,s:o}", "type", type, keyword, value));
}

/* An element at place n that a schema does not accept. */
static void add_element(struct schemas *s, json_t *list, size_t n, json_t *schema)
{
	json_t *prefix = json_array();

	if (n >= PREFIX_MAX) {
		schema_lose(s, "not");
		json_decref(prefix);
		return;
	}
	for (size_t i = 0; i < n; i++)
		add(s, prefix, json_true());
	add(s, prefix, json_incref(schema_complement(s, schema)));
	add(s, list,
	    json_pack("{s:s,s:o,s:I}", "type", "array", "prefixItems", prefix, "minItems",
		      (json_int_t)n + 1));
}

/* Each function below adds schemas for the values that a keyword of a schema does not accept: `value` is the keyword's
 * value. */
typedef void add_opposite(struct schemas *s, json_t *list, json_t *schema, const char *name,
			  json_t *value);

static void not_bound(struct schemas *s, json_t *list, json_t *schema, const char *name,
		      json_t *value)
{
	static const char *const others[][2] = {{"minimum", "exclusiveMaximum"},
						{"maximum", "exclusiveMinimum"},
						{"exclusiveMinimum", "maximum"},
						{"exclusiveMaximum", "minimum"}};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strcmp(name, others[i][0]))
			add_bound(s, list, "number", others[i][1], json_incref(value));
}

static void not_count(struct schemas *s, json_t *list, json_t *schema, const char *name,
		      json_t *value)
{
	static const struct {
		const char *name, *type, *other;
		int step;
	} counts[] = {{"minLength", "string", "maxLength", -1},
		      {"maxLength", "string", "minLength", 1},
		      {"minItems", "array", "maxItems", -1},
		      {"maxItems", "array", "minItems", 1},
		      {"minProperties", "object", "maxProperties", -1},
		      {"maxProperties", "object", "minProperties", 1}};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		json_int_t n;

		if (strcmp(name, counts[i].name) != 0)
			continue;
		n = (json_int_t)schema_count(s, schema, name, 0) + counts[i].step;
		if (n >= 0)
			add_bound(s, list, counts[i].type, counts[i].other, json_integer(n));
	}
}

/* The complement is left to the type (schema_not). */
static void not_itself(struct schemas *s, json_t *list, json_t *schema, const char *name,
		       json_t *value)
{
	add(s, list, json_pack("{s:{s:O}}", "not", name, value));
}

static void not_multiple(struct schemas *s, json_t *list, json_t *schema, const char *name,
			 json_t *value)
{
	if (is_step(value))
		not_itself(s, list, schema, name, value);
	else
		schema_lose(s, "not");
}

static void not_required(struct schemas *s, json_t *list, json_t *schema, const char *name,
			 json_t *value)
{
	json_t *part;
	size_t i;

	json_array_foreach(value, i, part)
	{
		if (word_of(part))
			add(s, list, json_pack("{s:{s:[O]}}", "not", "required", part));
		else
			schema_lose(s, "not");
	}
}

static void not_properties(struct schemas *s, json_t *list, json_t *schema, const char *name,
			   json_t *value)
{
	const char *key;
	json_t *part;

	json_object_foreach(value, key, part)
		add(s, list,
		    json_pack("{s:s,s:{s:O},s:[s]}", "type", "object", "properties", key,
			      schema_complement(s, part), "required", key));
}

static void not_items(struct schemas *s, json_t *list, json_t *schema, const char *name,
		      json_t *value)
{
	json_t *part;
	size_t i;

	if (!strcmp(name, "prefixItems") || (!strcmp(name, "items") && json_is_array(value))) {
		json_array_foreach(value, i, part) add_element(s, list, i, part);
		return;
	}
	/* Beside other items than a list additionalItems says nothing. */
	if (!strcmp(name, "items") || json_is_array(json_object_get(schema, "items")))
		add_element(s, list, json_array_size(schema_prefix(s, schema)), value);
}

static void not_contains(struct schemas *s, json_t *list, json_t *schema, const char *name,
			 json_t *value)
{
	uint32_t min = schema_count(s, schema, "minContains", 1);
	uint32_t max = schema_count(s, schema, "maxContains", GRAMMAR_NO_LIMIT);

	if (min == 1)
		add(s, list,
		    json_pack("{s:s,s:O}", "type", "array", "items", schema_complement(s, value)));
	else if (min)
		add(s, list,
		    json_pack("{s:s,s:O,s:i,s:I}", "type", "array", "contains", value,
			      "minContains", 0, "maxContains", (json_int_t)min - 1));
	if (max != GRAMMAR_NO_LIMIT)
		add(s, list,
		    json_pack("{s:s,s:O,s:I}", "type", "array", "contains", value, "minContains",
			      (json_int_t)max + 1));
}

static void not_dependent_required(struct schemas *s, json_t *list, json_t *schema,
				   const char *name, json_t *value)
{
	const char *key;
	json_t *part, *all;
	size_t i;

	json_object_foreach(value, key, all)
	{
		json_array_foreach(all, i, part)
		{
			if (word_of(part))
				add(s, list,
				    json_pack("{s:s,s:[s],s:{s:[O]}}", "type", "object", "required",
					      key, "not", "required", part));
			else
				schema_lose(s, "not");
		}
	}
}

static void not_dependent_schemas(struct schemas *s, json_t *list, json_t *schema, const char *name,
				  json_t *value)
{
	const char *key;
	json_t *part;

	json_object_foreach(value, key, part)
		add(s, list,
		    json_pack("{s:s,s:[s],s:O}", "type", "object", "required", key, "not", part));
}

static void not_all(struct schemas *s, json_t *list, json_t *schema, const char *name,
		    json_t *value)
{
	json_t *part;
	size_t i;

	json_array_foreach(value, i, part) add(s, list, json_incref(schema_complement(s, part)));
}

/* A value that two branches of oneOf accept is missing. */
static void not_any(struct schemas *s, json_t *list, json_t *schema, const char *name,
		    json_t *value)
{
	json_t *all = json_array();

	not_all(s, all, schema, name, value);
	add(s, list, json_pack("{s:o}", "allOf", all));
	if (!strcmp(name, "oneOf"))
		schema_lose(s, "not");
}

static void not_not(struct schemas *s, json_t *list, json_t *schema, const char *name,
		    json_t *value)
{
	add(s, list, json_incref(value));
}

static void not_reference(struct schemas *s, json_t *list, json_t *schema, const char *name,
			  json_t *value)
{
	json_t *target = schema_target(s, schema, name);

	if (target)
		add(s, list, json_incref(schema_complement(s, target)));
}

static void not_if(struct schemas *s, json_t *list, json_t *schema, const char *name, json_t *value)
{
	json_t *then = json_object_get(schema, "then"), *other = json_object_get(schema, "else");

	if (then)
		add(s, list, json_pack("{s:[O,O]}", "allOf", value, schema_complement(s, then)));
	if (other)
		add(s, list,
		    json_pack("{s:[O,O]}", "allOf", schema_complement(s, value),
			      schema_complement(s, other)));
}

/* No schema says it: its values are missing. */
static void lose(struct schemas *s, json_t *list, json_t *schema, const char *name, json_t *value)
{
	schema_lose(s, "not");
}

/* Keywords that are not here accept every value by themselves. */
static const struct {
	const char *name;
	add_opposite *add;
} opposites[] = {
	{"type", not_itself},
	{"const", not_itself},
	{"enum", not_itself},
	{"pattern", not_itself},
	{"minimum", not_bound},
	{"maximum", not_bound},
	{"exclusiveMinimum", not_bound},
	{"exclusiveMaximum", not_bound},
	{"multipleOf", not_multiple},
	{"minLength", not_count},
	{"maxLength", not_count},
	{"minItems", not_count},
	{"maxItems", not_count},
	{"minProperties", not_count},
	{"maxProperties", not_count},
	{"required", not_required},
	{"properties", not_properties},
	{"dependentRequired", not_dependent_required},
	{"dependentSchemas", not_dependent_schemas},
	{"prefixItems", not_items},
	{"items", not_items},
	{"additionalItems", not_items},
	{"contains", not_contains},
	{"allOf", not_all},
	{"anyOf", not_any},
	{"oneOf", not_any},
	{"not", not_not},
	{"if", not_if},
	{"$ref", not_reference},
	{"$dynamicRef", not_reference},
	{"additionalProperties", lose},
	{"patternProperties", lose},
	{"propertyNames", lose},
	{"unevaluatedProperties", lose},
	{"uniqueItems", lose},
	{"unevaluatedItems", lose},
	{"format", lose},
};

/* Returns the branches of a complement. */
static json_t *complement_branches(struct schemas *s, json_t *schema)
{
	json_t *list = schema_keep(s, json_array()), *value;
	const char *name;

	if (json_is_false(schema))
		add(s, list, json_true());
	schema_check(s, schema);
	json_object_foreach(schema, name, value)
	{
		for (size_t i = 0; i < ARRAY_SIZE(opposites) && !s->r; i++)
			if (!strcmp(name, opposites[i].name))
				opposites[i].add(s, list, schema, name, value);
	}
	return list;
}

json_t *schema_complement(struct schemas *s, json_t *schema)
{
	json_t *list = made_before(s, schema, "complement");

	if (list || s->r)
		return list;
	return remember(s, schema, "complement", schema_keep(s, json_pack("{s:O}", "not", schema)));
}

/* ---- branches ---- */

static bool disjoint(struct schemas *s, json_t *x, json_t *y)
{
	struct schema_set set = {0};
	bool possible;

	schema_add(s, &set, x);
	schema_add(s, &set, y);
	possible = schema_possible(s, &set, 0);
	free(set.v);
	return !possible;
}

/* Each branch together with the complements of those that are not disjoint with it. */
static json_t *one_of(struct schemas *s, const json_t *branches)
{
	json_t *list = schema_keep(s, json_array()), *branch, *other;
	size_t i, k, n = json_array_size(branches);
	bool apart[BRANCHES_MAX][BRANCHES_MAX];

	if (n > BRANCHES_MAX) {
		schema_unsupported(s, "oneOf", " with more than 100 branches");
		return NULL;
	}
	for (i = 0; i < n && !s->r; i++) {
		for (k = 0; k < i && !s->r; k++)
			apart[i][k] = apart[k][i] = disjoint(s, json_array_get(branches, i),
							     json_array_get(branches, k));
	}
	json_array_foreach(branches, i, branch)
	{
		json_t *all = json_pack("[O]", branch);

		for (k = 0; k < n && !s->r; k++) {
			if (k == i || apart[i][k])
				continue;
			other = json_array_get(branches, k);
			/* Equal branches exclude each other. */
			add(s, all, json_incref(schema_complement(s, other)));
		}
		if (s->r || !all) {
			schema_no_memory(s);
			json_decref(all);
			return NULL;
		}
		if (json_array_size(all) == 1)
			add(s, list, json_incref(branch));
		else
			add(s, list, json_pack("{s:O}", "allOf", all));
		json_decref(all);
	}
	return list;
}

static json_t *if_then_else(struct schemas *s, const json_t *schema)
{
	json_t *list = schema_keep(s, json_array()), *test = json_object_get(schema, "if");
	json_t *then = json_object_get(schema, "then"), *other = json_object_get(schema, "else");

	if (!then && !other) {
		add(s, list, json_true());
		return list;
	}
	add(s, list, json_pack("{s:[O,O]}", "allOf", test, then ? then : json_true()));
	add(s, list,
	    json_pack("{s:[O,O]}", "allOf", schema_complement(s, test),
		      other ? other : json_true()));
	return list;
}

json_t *schema_branches(struct schemas *s, json_t *schema, const char *keyword)
{
	json_t *list, *value = json_object_get(schema, keyword);

	if (!strcmp(keyword, "anyOf") || !strcmp(keyword, "oneOf")) {
		if (!json_is_array(value) || !json_array_size(value))
			schema_wrong(s, keyword, "a list of schemas");
	}
	if (s->r || !strcmp(keyword, "anyOf"))
		return s->r ? NULL : value;
	/* Complements of one schema are the same wherever they stand, so that those of recursive schemas come to an
	 * end. */
	if (!strcmp(keyword, "not")) {
		list = made_before(s, value, "not");
		return list ? list : remember(s, value, "not", complement_branches(s, value));
	}
	list = made_before(s, schema, keyword);
	if (list)
		return list;
	if (!strcmp(keyword, "oneOf"))
		return remember(s, schema, "oneOf", one_of(s, value));
	return remember(s, schema, "if", if_then_else(s, schema));
}

/* ---- properties that ask for others ---- */

json_t *schema_dependent(struct schemas *s, json_t *schema, const char *keyword)
{
	bool names = !strcmp(keyword, "dependentRequired");
	json_t *list = made_before(s, schema, keyword), *value, *map;
	const char *name;

	if (list)
		return list;
	map = schema_map(s, schema, keyword);
	list = schema_keep(s, json_array());
	/* The object lacks the property, or has it and is valid by the other schema, or the value is no object. */
	json_object_foreach(map, name, value)
	{
		json_t *then = names ? json_pack("{s:O}", "required", value) : json_incref(value);

		if (names && !json_is_array(value))
			schema_wrong(s, keyword, "an object of lists of strings");
		add(s, list,
		    json_pack("{s:[{s:{s:[s]}},{s:s,s:[s],s:[o]},{s:{s:s}}]}", "anyOf", "not",
			      "required", name, "type", "object", "required", name, "allOf", then,
			      "not", "type", "object"));
	}
	return remember(s, schema, names ? "dependentRequired" : "dependentSchemas", list);
}
