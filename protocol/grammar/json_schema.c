#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mix.h"
#include "base/problem.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/constraint.h"
#include "protocol/grammar/json_merge.h"
#include "protocol/grammar/json_text.h"
#include "protocol/grammar/parts.h"
#include "protocol/grammar/regex.h"

enum {
	MERGES_MAX = 10000,
	PROPERTIES_MAX = 2000, /* of an object: each required one is looked for among them */
	MERGED_DEPTH_MAX = 32, /* allOf, anyOf and $ref inside one another, at one place */
	BRANCHES_MAX = 100,    /* of oneOf: they are compared with each other */
	NAME_MAX_BYTES = 256,  /* of a property beside additionalProperties */
};

enum {
	T_NULL = 1,
	T_BOOLEAN = 2,
	T_OBJECT = 4,
	T_ARRAY = 8,
	T_STRING = 16,
	T_NUMBER = 32,
	T_INTEGER = 64
};
enum { T_ALL = T_NULL | T_BOOLEAN | T_OBJECT | T_ARRAY | T_STRING | T_NUMBER | T_INTEGER };

static const struct {
	const char *name;
	unsigned bit;
} type_names[] = {{"null", T_NULL},	 {"boolean", T_BOOLEAN}, {"object", T_OBJECT},
		  {"array", T_ARRAY},	 {"string", T_STRING},	 {"number", T_NUMBER | T_INTEGER},
		  {"integer", T_INTEGER}};

/* Keywords that are known, and the types that they are about. 0: any type. */
static const struct {
	const char *name;
	unsigned types;
} keywords[] = {
	{"type", 0},
	{"enum", 0},
	{"const", 0},
	{"anyOf", 0},
	{"oneOf", 0},
	{"allOf", 0},
	{"$ref", 0},
	{"properties", T_OBJECT},
	{"required", T_OBJECT},
	{"additionalProperties", T_OBJECT},
	{"patternProperties", T_OBJECT},
	{"minProperties", T_OBJECT},
	{"maxProperties", T_OBJECT},
	{"items", T_ARRAY},
	{"prefixItems", T_ARRAY},
	{"minItems", T_ARRAY},
	{"maxItems", T_ARRAY},
	{"uniqueItems", T_ARRAY},
	{"unevaluatedItems", T_ARRAY},
	{"unevaluatedProperties", T_OBJECT},
	{"minLength", T_STRING},
	{"maxLength", T_STRING},
	{"pattern", T_STRING},
	{"format", T_STRING},
	{"minimum", T_NUMBER | T_INTEGER},
	{"maximum", T_NUMBER | T_INTEGER},
	{"exclusiveMinimum", T_NUMBER | T_INTEGER},
	{"exclusiveMaximum", T_NUMBER | T_INTEGER},
	{"multipleOf", T_NUMBER | T_INTEGER},
};

static const char *const annotations[] = {
	"$schema",	 "$id",	     "$comment",    "$defs",	       "definitions",
	"$anchor",	 "title",    "description", "default",	       "examples",
	"deprecated",	 "readOnly", "writeOnly",   "contentEncoding", "contentMediaType",
	"contentSchema",
};

/* A subschema with its rule. */
struct place {
	struct map_node node;
	json_t *schema; /* borrowed from the whole schema, or from schemas.kept */
	uint32_t rule;
	struct place *next; /* in the list of places whose rules are not defined yet */
};

struct schemas {
	struct json_text text;
	struct grammar_builder *b;
	json_t *root;
	json_t *kept; /* an array: the merged schemas; owned */
	struct map places;
	struct place *first, *last; /* places whose rules are not defined yet */
	struct err *e;
	int r; /* negative: it has failed */
};

static void no_memory(struct schemas *s)
{
	if (!s->r)
		s->r = err_no_memory(s->e);
}

static void wrong(struct schemas *s, const char *keyword, const char *what)
{
	if (!s->r)
		s->r = err_set(s->e, EINVAL, "the keyword \"%.60s\" of the JSON schema is not %s",
			       keyword, what);
}

static void unsupported(struct schemas *s, const char *keyword, const char *how)
{
	if (!s->r)
		s->r = err_set(s->e, PROBLEM_UNSUPPORTED,
			       "the keyword \"%.60s\" of a JSON schema is not supported%s", keyword,
			       how);
}

static uint32_t done_choice(struct schemas *s, struct parts *p)
{
	uint32_t x;

	if (p->failed)
		no_memory(s);
	x = s->r ? 0 : grammar_choice(s->b, p->v, p->n);
	parts_release(p);
	return x;
}

/* Returns the rule of a subschema. Its definition waits until the others before it are done, so that nothing here is
 * as deep as the schema. */
static uint32_t rule_of(struct schemas *s, json_t *schema)
{
	uint64_t hash = mix64((uintptr_t)schema);
	struct place *p;

	if (s->r)
		return 0;
	for (struct map_node *n = map_first(&s->places, hash); n; n = map_next(n)) {
		p = container_of(n, struct place, node);
		if (p->schema == schema)
			return p->rule;
	}
	p = calloc(1, sizeof(*p));
	if (!p || map_reserve(&s->places) < 0) {
		free(p);
		no_memory(s);
		return 0;
	}
	p->schema = schema;
	p->rule = grammar_rule(s->b, "a schema that refers to itself");
	map_insert(&s->places, &p->node, hash);
	if (s->last)
		s->last->next = p;
	else
		s->first = p;
	s->last = p;
	return p->rule;
}

static uint32_t value_of(struct schemas *s, json_t *schema)
{
	if (json_is_true(schema) || (json_is_object(schema) && !json_object_size(schema)))
		return grammar_call(s->b, s->text.value);
	if (json_is_false(schema))
		return grammar_choice(s->b, NULL, 0);
	if (!json_is_object(schema)) {
		if (!s->r)
			s->r = err_set(s->e, EINVAL,
				       "a JSON schema is neither an object nor a boolean");
		return 0;
	}
	return grammar_call(s->b, rule_of(s, schema));
}

/* ---- references and merging ---- */

/* Keeps a new schema to the end. */
static json_t *keep(struct schemas *s, json_t *schema)
{
	if (json_array_size(s->kept) >= MERGES_MAX && !s->r)
		s->r = err_set(s->e, E2BIG,
			       "the JSON schema has more than %d combinations of schemas",
			       MERGES_MAX);
	if (!schema || json_array_append_new(s->kept, schema) < 0) {
		no_memory(s);
		return NULL;
	}
	return s->r ? NULL : schema;
}

/* Returns the subschema that a $ref names. */
static json_t *target_of(struct schemas *s, const json_t *ref)
{
	const char *text = json_string_value(ref), *at;
	json_t *place = s->root;
	char part[512];

	if (!text) {
		wrong(s, "$ref", "a string");
		return NULL;
	}
	if (text[0] != '#' || (text[1] && text[1] != '/') || strchr(text, '%')) {
		unsupported(s, "$ref", " unless it is # or begins with #/");
		return NULL;
	}
	for (at = text + 1; *at == '/' && place;) {
		size_t n = 0;

		for (at++; *at && *at != '/' && n < sizeof(part) - 1; at++) {
			char c = *at;

			if (c == '~' && (at[1] == '0' || at[1] == '1'))
				c = *++at == '0' ? '~' : '/';
			part[n++] = c;
		}
		part[n] = 0;
		if (json_is_array(place)) {
			char *end;
			unsigned long i = strtoul(part, &end, 10);

			place = *end || !n ? NULL : json_array_get(place, i);
		} else {
			place = json_object_get(place, part);
		}
	}
	if ((!place || *at) && !s->r)
		s->r = err_set(s->e, EINVAL, "the JSON schema has nothing at the place \"%.100s\"",
			       text);
	return s->r ? NULL : place;
}

static bool is_annotation(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(annotations); i++) {
		if (!strcmp(annotations[i], name))
			return true;
	}
	return false;
}

/* Returns a copy of the schema without annotations and without `keyword`. */
static json_t *without(struct schemas *s, const json_t *schema, const char *keyword)
{
	json_t *copy = json_object(), *value;
	const char *name;

	json_object_foreach((json_t *)schema, name, value)
	{
		if (is_annotation(name) || !strcmp(name, keyword))
			continue;
		if (json_object_set(copy, name, value) < 0)
			no_memory(s);
	}
	return copy;
}

static const char *const unevaluated[] = {"unevaluatedItems", "unevaluatedProperties"};

/* Moves the keywords about what no other schema at the same place has looked at from one schema to another. A
 * schema that has the keyword leaves nothing over for a second one. */
static void move_unevaluated(struct schemas *s, json_t *from, json_t *to)
{
	for (size_t i = 0; i < ARRAY_SIZE(unevaluated); i++) {
		json_t *value = json_object_get(from, unevaluated[i]);

		if (value && !json_object_get(to, unevaluated[i]) &&
		    json_object_set(to, unevaluated[i], value) < 0)
			no_memory(s);
		json_object_del(from, unevaluated[i]);
	}
}

/* Returns a schema without $ref and allOf at its top that accepts the same values; `schema` itself, if it has none.
 * Booleans become {} and NULL with *never set. */
static json_t *flat(struct schemas *s, json_t *schema, int depth, bool *never)
{
	json_t *ref, *all, *copy, *own;
	const char *taken;

	if (json_is_true(schema))
		return keep(s, json_object());
	if (json_is_false(schema)) {
		*never = true;
		return NULL;
	}
	if (!json_is_object(schema)) {
		if (!s->r)
			s->r = err_set(s->e, EINVAL,
				       "a JSON schema is neither an object nor a boolean");
		return NULL;
	}
	ref = json_object_get(schema, "$ref");
	all = json_object_get(schema, "allOf");
	if (!ref && !all)
		return schema;
	if (depth == MERGED_DEPTH_MAX && !s->r)
		s->r = err_set(
			s->e, E2BIG,
			"the JSON schema has $ref, allOf or anyOf more than %d deep in each other",
			MERGED_DEPTH_MAX);
	taken = ref ? "$ref" : "allOf";
	copy = s->r ? NULL : keep(s, without(s, schema, taken));
	if (!copy)
		return NULL;
	if (!ref && !json_is_array(all)) {
		wrong(s, "allOf", "a list");
		return NULL;
	}
	/* They are about what all the others leave over, so they are not merged with them. */
	own = json_object();
	move_unevaluated(s, copy, own);
	for (size_t i = 0; i < (ref ? 1 : json_array_size(all)) && !s->r; i++) {
		json_t *part = ref ? target_of(s, ref) : json_array_get(all, i), *clean = NULL;

		if (part && !s->r)
			part = flat(s, part, depth + 1, never);
		if (*never || s->r)
			break;
		clean = without(s, part, "");
		if (!clean)
			no_memory(s);
		else if (!s->r)
			s->r = json_merge(copy, clean, s->e);
		json_decref(clean);
	}
	if (!s->r && !*never)
		move_unevaluated(s, own, copy);
	json_decref(own);
	return s->r || *never ? NULL : flat(s, copy, depth + 1, never);
}

/* ---- types ---- */

static unsigned type_bits(struct schemas *s, const json_t *type)
{
	const char *name = json_string_value(type);

	for (size_t i = 0; name && i < ARRAY_SIZE(type_names); i++) {
		if (!strcmp(name, type_names[i].name))
			return type_names[i].bit;
	}
	wrong(s, "type", "the name of a type, or a list of these");
	return 0;
}

static unsigned type_of_value(const json_t *v)
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

/* The types that the keyword `type` allows; all, if it is absent. */
static unsigned types_of(struct schemas *s, const json_t *schema)
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

/* ---- keywords ---- */

/* Checks that every keyword is known. Returns the types that the keywords are about. */
static unsigned check_keywords(struct schemas *s, const json_t *schema)
{
	unsigned types = 0;
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)schema, name, value)
	{
		size_t i = 0;

		if (is_annotation(name))
			continue;
		while (i < ARRAY_SIZE(keywords) && strcmp(keywords[i].name, name) != 0)
			i++;
		if (i == ARRAY_SIZE(keywords))
			unsupported(s, name, "");
		else
			types |= keywords[i].types;
	}
	return types;
}

/* Reads a length or a number of elements; absent: `usual`. */
static uint32_t count_of(struct schemas *s, const json_t *schema, const char *name, uint32_t usual)
{
	const json_t *v = json_object_get(schema, name);
	double n = json_number_value(v);

	if (!v)
		return usual;
	if (!json_is_number(v) || n < 0 || n != floor(n)) {
		wrong(s, name, "a whole number from 0 on");
		return 0;
	}
	return n >= (double)GRAMMAR_NO_LIMIT ? GRAMMAR_NO_LIMIT - 1 : (uint32_t)n;
}

static uint32_t literals(struct schemas *s, json_t *schema)
{
	json_t *one = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
	unsigned types = types_of(s, schema);
	struct parts p = {0};
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach(schema, name, value)
	{
		if (!is_annotation(name) && strcmp(name, "const") != 0 &&
		    strcmp(name, "enum") != 0 && strcmp(name, "type") != 0)
			unsupported(s, name, " beside enum or const");
	}
	if (list && !json_is_array(list))
		wrong(s, "enum", "a list");
	if (s->r)
		return 0;
	if (!list) {
		if (type_of_value(one) & types)
			parts_add(&p, json_text_literal(&s->text, one));
		return done_choice(s, &p);
	}
	json_array_foreach(list, i, value)
	{
		if ((type_of_value(value) & types) && (!one || json_same(one, value)))
			parts_add(&p, json_text_literal(&s->text, value));
	}
	return done_choice(s, &p);
}

/* Returns the value of a keyword, or that of the second one if the first is absent. In a flat schema all other schemas
 * at this place are merged, so what they leave over is the same for both. */
static json_t *either(const json_t *schema, const char *name, const char *other)
{
	json_t *value = json_object_get(schema, name);

	return value ? value : json_object_get(schema, other);
}

/* ---- strings ---- */

#define YEAR   "[1-9]\\d{3}"
#define DAY_30 "(?:0[1-9]|[12]\\d|30)"
#define DATE                                                                  \
	YEAR "-(?:(?:0[13578]|1[02])-(?:" DAY_30 "|31)|(?:0[469]|11)-" DAY_30 \
	     "|02-(?:0[1-9]|1\\d|2[0-8]))"
#define HOUR "(?:[01]\\d|2[0-3])"
#define TIME HOUR ":[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]" HOUR ":[0-5]\\d)"
/* Two hyphens in a row would begin a label of an international name. */
#define LABEL "[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"
#define HOST  LABEL "(?:\\." LABEL "){0,3}"
#define LOCAL "[A-Za-z0-9_+-]{1,30}"
#define OCTET "(?:\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define GROUP "[0-9a-fA-F]{1,4}"

static const struct {
	const char *name, *pattern;
} formats[] = {
	{"date", DATE},
	{"time", TIME},
	{"date-time", DATE "T" TIME},
	{"duration",
	 "P(?:\\d{1,4}Y(?:\\d{1,2}M(?:\\d{1,2}D)?)?|\\d{1,2}M(?:\\d{1,2}D)?|\\d{1,3}[DW]|T\\d{1,3}[HMS])"},
	{"email", LOCAL "(?:\\." LOCAL ")?@" LABEL "(?:\\." LABEL "){1,3}"},
	{"hostname", HOST},
	{"ipv4", OCTET "(?:\\." OCTET "){3}"},
	{"ipv6", GROUP "(?::" GROUP "){7}"},
	{"uri", "https?://" HOST "(?::\\d{1,4})?(?:/[A-Za-z0-9._~-]*)*(?:\\?[A-Za-z0-9._~=&-]*)?"},
	{"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
};

static uint32_t string_of(struct schemas *s, const json_t *schema)
{
	const json_t *pattern = json_object_get(schema, "pattern"),
		     *format = json_object_get(schema, "format");
	uint32_t min = count_of(s, schema, "minLength", 0), x, quote = grammar_text(s->b, "\"");
	uint32_t max = count_of(s, schema, "maxLength", GRAMMAR_NO_LIMIT);
	const char *text = json_string_value(pattern), *name = json_string_value(format);
	size_t len = json_string_length(pattern);
	struct regex_lengths lengths;

	if (pattern && format)
		unsupported(s, "format", " beside pattern");
	if ((pattern && !text) || (format && !name))
		wrong(s, pattern ? "pattern" : "format", "a string");
	for (size_t i = 0; name && i < ARRAY_SIZE(formats); i++) {
		if (!strcmp(name, formats[i].name)) {
			text = formats[i].pattern;
			len = strlen(text);
		}
	}
	if (name && !text && !s->r)
		s->r = err_set(s->e, PROBLEM_UNSUPPORTED,
			       "the format \"%.60s\" of a JSON schema is not supported", name);
	if (s->r)
		return 0;
	if (!text) {
		if (!min && max == GRAMMAR_NO_LIMIT)
			return grammar_call(s->b, s->text.string);
		x = grammar_repeat(s->b, grammar_call(s->b, s->text.character), min, max);
		return grammar_seq(s->b, quote, x, quote);
	}
	s->r = regex_expression(s->b, text, len,
				(struct regex_form){.search = pattern, .json = true}, &x, &lengths,
				s->e);
	if (!s->r && (lengths.min < min || lengths.max > max))
		unsupported(s, lengths.min < min ? "minLength" : "maxLength",
			    pattern ? " beside a pattern with texts of other lengths"
				    : " beside a format with texts of other lengths");
	return s->r ? 0 : grammar_seq(s->b, quote, x, quote);
}

/* ---- numbers ---- */

#define LIMIT 1e15 /* numbers in texts are less in size, and exact as doubles */

/* Reads the bounds in units of 1 / scale. False: there are none. */
static bool bounds_of(struct schemas *s, const json_t *schema, double scale, int64_t *lo,
		      int64_t *hi)
{
	static const struct {
		const char *name;
		bool lower, exclusive;
	} names[] = {{"minimum", true, false},
		     {"maximum", false, false},
		     {"exclusiveMinimum", true, true},
		     {"exclusiveMaximum", false, true}};
	bool any = false;

	*lo = -(int64_t)LIMIT + 1;
	*hi = (int64_t)LIMIT - 1;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const json_t *v = json_object_get(schema, names[i].name);
		double n = json_number_value(v), whole;
		int64_t at;

		if (!v)
			continue;
		any = true;
		if (!json_is_number(v)) {
			wrong(s, names[i].name, "a number");
			return false;
		}
		if (scale > 1) {
			/* The bound has to be a multiple of 1 / scale, as the texts are. */
			whole = nearbyint(n * scale);
			if (fabs(n) >= LIMIT / scale || whole / scale != n) {
				unsupported(
					s, names[i].name,
					" for numbers, unless its size is below 10^9 and it has at most 6 decimals");
				return false;
			}
		} else {
			whole = names[i].lower ? ceil(n) : floor(n);
			whole = MAX(-LIMIT, MIN(whole, LIMIT));
		}
		at = (int64_t)whole;
		if (names[i].exclusive && (scale > 1 || whole == n))
			at += names[i].lower ? 1 : -1;
		if (names[i].lower)
			*lo = MAX(*lo, at);
		else
			*hi = MIN(*hi, at);
	}
	return any;
}

static uint32_t number_of(struct schemas *s, const json_t *schema, bool integer)
{
	const json_t *multiple = json_object_get(schema, "multipleOf");
	int64_t lo, hi;
	bool bounded;

	if (multiple && (!json_is_number(multiple) || json_number_value(multiple) <= 0))
		wrong(s, "multipleOf", "a number above 0");
	else if (multiple && json_number_value(multiple) == 1)
		integer = true;
	else if (multiple)
		unsupported(s, "multipleOf", " unless it is 1");
	bounded = bounds_of(s, schema, integer ? 1 : 1e6, &lo, &hi);
	if (s->r)
		return 0;
	if (integer)
		return json_text_integers(s->b, lo, hi);
	return bounded ? json_text_decimals(s->b, lo, hi) : grammar_call(s->b, s->text.number);
}

/* ---- arrays ---- */

static uint32_t array_of(struct schemas *s, const json_t *schema)
{
	struct grammar_builder *b = s->b;
	const json_t *first = json_object_get(schema, "prefixItems"),
		     *unique = json_object_get(schema, "uniqueItems");
	json_t *items = either(schema, "items", "unevaluatedItems");
	uint32_t min = count_of(s, schema, "minItems", 0),
		 max = count_of(s, schema, "maxItems", GRAMMAR_NO_LIMIT);
	uint32_t n = (uint32_t)json_array_size(first), rest, more, element;
	uint32_t comma = json_text_spaced(&s->text, grammar_text(b, ","));
	uint32_t open = json_text_spaced(&s->text, grammar_text(b, "[")),
		 close = grammar_text(b, "]");

	if (first && !json_is_array(first))
		wrong(s, "prefixItems", "a list");
	if (items && json_is_array(items))
		unsupported(s, "items", " as a list");
	if (unique && !json_is_boolean(unique))
		wrong(s, "uniqueItems", "a boolean");
	if (json_is_true(unique)) {
		/* An array with fewer than two elements has no equal ones. */
		if (max > 1)
			unsupported(s, "uniqueItems", " for arrays with more than one element");
	}
	if (s->r || min > max)
		return grammar_choice(b, NULL, 0);
	if (!items && n)
		max = MIN(max, MAX(min, n));
	element = json_text_spaced(&s->text,
				   items ? value_of(s, items) : grammar_call(b, s->text.value));
	/* Behind the elements of prefixItems; if there are none, behind the first element. */
	more = grammar_seq(b, comma, element);
	if (!n) {
		if (!max)
			return grammar_seq(b, open, close);
		rest = grammar_seq(b, element,
				   grammar_repeat(b, more, min ? min - 1 : 0,
						  max == GRAMMAR_NO_LIMIT ? max : max - 1));
		return grammar_seq(b, open, min ? rest : grammar_repeat(b, rest, 0, 1), close);
	}
	rest = max > n ? grammar_repeat(b, more, min > n ? min - n : 0,
					max == GRAMMAR_NO_LIMIT ? max : max - n)
		       : 0;
	for (uint32_t i = n; i-- > 0 && !s->r;) {
		uint32_t rule = grammar_rule(b, "elements");
		uint32_t own = json_text_spaced(&s->text, value_of(s, json_array_get(first, i)));

		if (i >= max) {
			rest = 0;
			continue;
		}
		rest = grammar_seq(b, i ? comma : 0, own, rest);
		grammar_define(b, rule, i >= min ? grammar_repeat(b, rest, 0, 1) : rest);
		rest = grammar_call(b, rule);
	}
	return grammar_seq(b, open, rest, close);
}

/* ---- objects ---- */

struct member {
	const char *name;
	json_t *schema; /* NULL: any value */
	bool required;
};

struct members {
	struct member *v; /* owned */
	size_t n, cap;
};

static struct member *find_member(struct members *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++) {
		if (!strcmp(m->v[i].name, name))
			return &m->v[i];
	}
	return NULL;
}

static void add_member(struct schemas *s, struct members *m, struct member member)
{
	if (array_grow(m->v, m->cap, m->n + 1))
		m->v[m->n++] = member;
	else
		no_memory(s);
}

/* Returns whether a pattern matches somewhere in the name. */
static bool name_matches(struct schemas *s, const char *pattern, const char *name)
{
	struct grammar_builder *b = grammar_builder_new();
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	struct regex_lengths lengths;
	uint32_t x, root;
	bool found = false;

	if (!b) {
		no_memory(s);
		return false;
	}
	if (!s->r)
		s->r = regex_expression(b, pattern, strlen(pattern),
					(struct regex_form){.search = true}, &x, &lengths, s->e);
	if (!s->r) {
		root = grammar_rule(b, "pattern");
		grammar_define(b, root, x);
		s->r = grammar_build(b, root, &g, s->e);
	}
	if (!s->r) {
		if (automaton_new(g, (size_t)16 << 20, &a) < 0) {
			no_memory(s);
		} else {
			found = automaton_may_end(a, automaton_read(a, AUTOMATON_START, name,
								    strlen(name)));
			s->r = automaton_failed(a, s->e);
		}
	}
	automaton_free(a);
	grammar_free(g);
	grammar_builder_free(b);
	return found;
}

/* Adds to a member the schemas of the patterns that match its name. */
static void add_patterns(struct schemas *s, const json_t *patterns, struct member *m, bool *any)
{
	const char *pattern;
	json_t *schema;

	json_object_foreach((json_t *)patterns, pattern, schema)
	{
		if (!s->r && name_matches(s, pattern, m->name)) {
			*any = true;
			m->schema = m->schema ? keep(s, json_pack("{s:[O,O]}", "allOf", m->schema,
								  schema))
					      : schema;
		}
	}
}

static void find_members(struct schemas *s, const json_t *schema, struct members *m)
{
	json_t *properties = json_object_get(schema, "properties"),
	       *required = json_object_get(schema, "required");
	json_t *patterns = json_object_get(schema, "patternProperties"), *value;
	json_t *additional = either(schema, "additionalProperties", "unevaluatedProperties");
	const char *name;
	size_t i;

	if (properties && !json_is_object(properties))
		wrong(s, "properties", "an object");
	if (patterns && !json_is_object(patterns))
		wrong(s, "patternProperties", "an object");
	if (required && !json_is_array(required))
		wrong(s, "required", "a list");
	if (s->r)
		return;
	json_object_foreach(properties, name, value)
		add_member(s, m, (struct member){name, value, false});
	if (json_array_size(required) + m->n > PROPERTIES_MAX && !s->r)
		s->r = err_set(s->e, E2BIG,
			       "the JSON schema has an object with more than %d properties",
			       PROPERTIES_MAX);
	for (i = 0; i < m->n && patterns; i++) {
		bool any = false;

		add_patterns(s, patterns, &m->v[i], &any);
	}
	json_array_foreach(required, i, value)
	{
		struct member *own;
		bool any = false;

		name = json_string_value(value);
		if (!name || s->r) {
			wrong(s, "required", "a list of strings");
			return;
		}
		own = find_member(m, name);
		if (own) {
			own->required = true;
			continue;
		}
		add_member(s, m, (struct member){name, NULL, true});
		if (s->r)
			return;
		own = &m->v[m->n - 1];
		add_patterns(s, patterns, own, &any);
		if (!any)
			own->schema = additional;
	}
}

static uint32_t object_of(struct schemas *s, const json_t *schema)
{
	struct grammar_builder *b = s->b;
	json_t *additional = either(schema, "additionalProperties", "unevaluatedProperties");
	uint32_t min = count_of(s, schema, "minProperties", 0), n_required = 0;
	uint32_t max = count_of(s, schema, "maxProperties", GRAMMAR_NO_LIMIT);
	uint32_t comma = json_text_spaced(&s->text, grammar_text(b, ",")), first = 0, rest = 0;
	bool open = additional && !json_is_false(additional) &&
		    !json_object_get(schema, "patternProperties");
	struct members m = {0};

	if (!additional && !json_object_get(schema, "properties") &&
	    !json_object_get(schema, "required") && !json_object_get(schema, "patternProperties"))
		open = true;
	find_members(s, schema, &m);
	for (size_t i = 0; i < m.n; i++)
		n_required += m.v[i].required;
	if (max < m.n)
		unsupported(s, "maxProperties", " if it is less than the number of properties");
	else if (max != GRAMMAR_NO_LIMIT)
		open = false;
	if (min > n_required)
		unsupported(s, "minProperties",
			    " if it is more than the number of required properties");
	if (open && !s->r) {
		const char **names = calloc(m.n + 1, sizeof(*names));
		uint32_t other;

		for (size_t i = 0; names && i < m.n; i++) {
			names[i] = m.v[i].name;
			if (strlen(names[i]) > NAME_MAX_BYTES)
				unsupported(
					s, "additionalProperties",
					" beside a property with a name of more than 256 bytes");
		}
		if (!names)
			no_memory(s);
		if (!s->r) {
			other = json_text_other_name(&s->text, names, m.n);
			other = grammar_seq(
				b, other,
				json_text_spaced(&s->text,
						 additional ? value_of(s, additional)
							    : grammar_call(b, s->text.value)));
			rest = grammar_repeat(b, grammar_seq(b, comma, other), 0, GRAMMAR_NO_LIMIT);
			first = grammar_repeat(b, grammar_seq(b, other, rest), 0, 1);
		}
		free(names);
	}
	/* From the last member to the first: `first` is what may stand from this member on if none was before it, `rest`
	 * if one was. */
	for (size_t i = m.n; i-- > 0 && !s->r;) {
		uint32_t own = grammar_rule(b, "member"), first_rule = grammar_rule(b, "members");
		uint32_t rest_rule = grammar_rule(b, "members"), x;

		grammar_define(
			b, own,
			grammar_seq(b, json_text_name(&s->text, m.v[i].name),
				    json_text_spaced(&s->text,
						     m.v[i].schema
							     ? value_of(s, m.v[i].schema)
							     : grammar_call(b, s->text.value))));
		x = grammar_seq(b, grammar_call(b, own), rest);
		grammar_define(b, first_rule, m.v[i].required ? x : grammar_alt(b, x, first));
		x = grammar_seq(b, comma, x);
		grammar_define(b, rest_rule, m.v[i].required ? x : grammar_alt(b, x, rest));
		first = grammar_call(b, first_rule);
		rest = grammar_call(b, rest_rule);
	}
	free(m.v);
	return grammar_seq(b, json_text_spaced(&s->text, grammar_text(b, "{")), first,
			   grammar_text(b, "}"));
}

/* ---- alternatives ---- */

/* The types of the values that a flat schema can accept. */
static unsigned accepted_types(struct schemas *s, const json_t *schema)
{
	const json_t *one = json_object_get(schema, "const"),
		     *list = json_object_get(schema, "enum"), *value;
	unsigned bits = 0;
	size_t i;

	if (one)
		return type_of_value(one);
	if (!list)
		return types_of(s, schema);
	json_array_foreach(list, i, value) bits |= type_of_value(value);
	return bits;
}

/* Returns whether value v is among the constants of a flat schema. */
static bool lists_value(const json_t *schema, const json_t *v)
{
	const json_t *one = json_object_get(schema, "const"),
		     *list = json_object_get(schema, "enum"), *value;
	size_t i;

	if (one)
		return json_same(one, v);
	json_array_foreach(list, i, value)
	{
		if (json_same(value, v))
			return true;
	}
	return false;
}

static bool has_constants(const json_t *schema)
{
	return json_object_get(schema, "const") || json_is_array(json_object_get(schema, "enum"));
}

/* Returns whether it is certain that no value is valid by both schemas. */
static bool disjoint(struct schemas *s, json_t *x, json_t *y, int depth)
{
	bool never = false;
	unsigned types;
	const json_t *required, *value;
	size_t i;

	x = flat(s, x, 0, &never);
	y = s->r || never ? NULL : flat(s, y, 0, &never);
	if (never)
		return true;
	if (s->r || !x || !y)
		return false;
	types = accepted_types(s, x) & accepted_types(s, y);
	if (!types)
		return true;
	if (has_constants(x) && has_constants(y)) {
		json_t *one = json_object_get(x, "const"), *list = json_object_get(x, "enum");

		if (one)
			return !lists_value(y, one);
		json_array_foreach(list, i, value)
		{
			if (lists_value(y, value))
				return false;
		}
		return true;
	}
	if (types != T_OBJECT || depth == 4)
		return false;
	required = json_object_get(x, "required");
	json_array_foreach(required, i, value)
	{
		const char *name = json_string_value(value);
		const json_t *other = json_object_get(y, "required"), *v;
		json_t *p, *q;
		size_t k;

		if (!name)
			continue;
		p = json_object_get(json_object_get(x, "properties"), name);
		q = json_object_get(json_object_get(y, "properties"), name);
		json_array_foreach(other, k, v)
		{
			if (json_is_string(v) && !strcmp(json_string_value(v), name) && p && q &&
			    disjoint(s, p, q, depth + 1))
				return true;
		}
	}
	return false;
}

static uint32_t alternatives(struct schemas *s, json_t *schema, const char *keyword)
{
	json_t *list = json_object_get(schema, keyword), *branch;
	json_t *rest = without(s, schema, keyword), *own = json_object();
	size_t i, n = json_array_size(list);
	struct parts p = {0};

	move_unevaluated(s, rest, own);
	if (!json_is_array(list) || !n)
		wrong(s, keyword, "a list of schemas");
	if (!strcmp(keyword, "oneOf")) {
		if (n > BRANCHES_MAX)
			unsupported(s, "oneOf", " with more than 100 branches");
		for (i = 0; i < n; i++) {
			for (size_t k = 0; k < i && !s->r; k++) {
				if (!disjoint(s, json_array_get(list, i), json_array_get(list, k),
					      0))
					unsupported(
						s, "oneOf",
						" unless it is clear that no two branches accept the same value");
			}
		}
	}
	json_array_foreach(list, i, branch)
	{
		json_t *sum = branch;

		if (s->r)
			break;
		if (json_object_size(rest) || json_object_size(own)) {
			sum = keep(s, json_pack("{s:[O,O]}", "allOf", rest, branch));
			if (!s->r && json_object_update(sum, own) < 0)
				no_memory(s);
		}
		if (!s->r)
			parts_add(&p, value_of(s, sum));
	}
	json_decref(rest);
	json_decref(own);
	return done_choice(s, &p);
}

static uint32_t body_of(struct schemas *s, json_t *schema)
{
	unsigned types, about;
	struct parts p = {0};
	bool never = false;

	check_keywords(s, schema);
	if (s->r)
		return 0;
	/* A reference without keywords beside it is a call, so that schemas may be recursive. */
	if (json_object_get(schema, "$ref")) {
		json_t *rest = without(s, schema, "$ref");
		size_t n = json_object_size(rest);

		json_decref(rest);
		if (!n) {
			json_t *target = target_of(s, json_object_get(schema, "$ref"));

			return s->r ? 0 : value_of(s, target);
		}
	}
	schema = flat(s, schema, 0, &never);
	if (never)
		return grammar_choice(s->b, NULL, 0);
	if (!schema)
		return 0;
	about = check_keywords(s, schema);
	if (json_object_get(schema, "anyOf"))
		return alternatives(s, schema, "anyOf");
	if (json_object_get(schema, "oneOf"))
		return alternatives(s, schema, "oneOf");
	if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
		return literals(s, schema);
	types = types_of(s, schema);
	if (!json_object_get(schema, "type") && about)
		types = about;
	if (s->r)
		return 0;
	if (types & T_NULL)
		parts_add(&p, grammar_text(s->b, "null"));
	if (types & T_BOOLEAN)
		parts_add(&p, grammar_alt(s->b, grammar_text(s->b, "true"),
					  grammar_text(s->b, "false")));
	if (types & T_STRING)
		parts_add(&p, string_of(s, schema));
	if (types & (T_NUMBER | T_INTEGER))
		parts_add(&p, number_of(s, schema, !(types & T_NUMBER)));
	if (types & T_ARRAY)
		parts_add(&p, array_of(s, schema));
	if (types & T_OBJECT)
		parts_add(&p, object_of(s, schema));
	return done_choice(s, &p);
}

/* Refuses a schema inside the schema that has a name of its own: references in it would begin there. */
static void check_ids(struct schemas *s, const json_t *value)
{
	const char *name;
	json_t *inner;
	size_t i;

	if (json_is_string(json_object_get(value, "$id")) && value != s->root)
		unsupported(s, "$id", " inside a schema");
	json_object_foreach((json_t *)value, name, inner) check_ids(s, inner);
	json_array_foreach(value, i, inner) check_ids(s, inner);
}

static void free_place(void *arg, struct map_node *node)
{
	free(container_of(node, struct place, node));
}

int constraint_json_schema(const json_t *schema, struct grammar **ret, struct err *e)
{
	struct schemas s = {.root = (json_t *)schema, .e = e};
	uint32_t root;

	if (map_init(&s.places, 64) < 0)
		return err_no_memory(e);
	s.kept = json_array();
	s.b = grammar_builder_new();
	if (!s.kept || !s.b) {
		s.r = err_no_memory(e);
	} else {
		check_ids(&s, s.root);
		json_text_init(&s.text, s.b);
		root = grammar_rule(s.b, "root");
		grammar_define(s.b, root, value_of(&s, s.root));
		for (struct place *p = s.first; p && !s.r; p = p->next)
			grammar_define(s.b, p->rule, body_of(&s, p->schema));
		if (!s.r)
			s.r = grammar_build(s.b, root, ret, e);
	}
	map_drain(&s.places, free_place, NULL);
	map_release(&s.places);
	json_decref(s.kept);
	grammar_builder_free(s.b);
	return s.r;
}

int constraint_json_object(struct grammar **ret, struct err *e)
{
	struct grammar_builder *b = grammar_builder_new();
	struct json_text text;
	int r;

	if (!b)
		return err_no_memory(e);
	json_text_init(&text, b);
	r = grammar_build(b, text.object, ret, e);
	grammar_builder_free(b);
	return r;
}
