/* Whether a value satisfies a schema, for constants. MAYBE: that is not known here, or readers of schemas differ. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/regex.h"
#include "protocol/grammar/schema.h"

enum { MATCHERS_MAX = 16, MATCHER_BYTES = 4 << 20 };

/* A pattern as two automata, of the texts that match by every dialect, and by any. */
struct matcher {
	struct map_node node;
	const char *pattern; /* borrowed from the schema */
	size_t len;
	bool search;
	struct grammar *grammars[2];
	struct automaton *automata[2]; /* NULL: the pattern matches no text */
};

static void free_matcher(void *arg, struct map_node *node)
{
	struct matcher *m = container_of(node, struct matcher, node);

	for (int i = 0; i < 2; i++) {
		automaton_free(m->automata[i]);
		grammar_free(m->grammars[i]);
	}
	free(m);
}

void schema_free_matchers(struct schemas *s)
{
	map_drain(&s->matchers, free_matcher, NULL);
}

static void make_automaton(struct schemas *s, struct matcher *m, const char *pattern, size_t len,
			   struct regex_form form, int i)
{
	struct grammar_builder *b = grammar_builder_new();
	struct regex_lengths lengths;
	uint32_t x, root;
	int r;

	if (!b) {
		schema_no_memory(s);
		return;
	}
	if (!s->r)
		s->r = regex_expression(b, pattern, len, form, &x, &lengths, s->e);
	if (!s->r) {
		struct err e = {0};

		root = grammar_rule(b, "pattern");
		grammar_define(b, root, x);
		r = grammar_build(b, root, &m->grammars[i], &e);
		if (r < 0 && r != -EINVAL) {
			s->r = r;
			if (s->e)
				*s->e = e;
		} else if (!r) {
			r = automaton_new(m->grammars[i], MATCHER_BYTES, NULL, &m->automata[i]);
			if (r == -ENOBUFS)
				s->r = err_set(s->e, E2BIG, "a pattern needs too many states");
			else if (r < 0)
				schema_no_memory(s);
		}
		schema_works(s, 1000 + (r ? 0 : 4 * (uint64_t)grammar_size(m->grammars[i])));
	}
	grammar_builder_free(b);
}

static struct matcher *matcher_of(struct schemas *s, const char *pattern, size_t len, bool search)
{
	struct hash128 h = HASH128_INIT;
	struct matcher *m;

	schema_works(s, len / 64);
	hash128_update(&h, pattern, len);
	for (struct map_node *n = map_first(&s->matchers, (uint64_t)h.value); n; n = map_next(n)) {
		m = container_of(n, struct matcher, node);
		if (m->len == len && !memcmp(m->pattern, pattern, len) && m->search == search)
			return m;
	}
	if (s->matchers.n >= MATCHERS_MAX)
		schema_free_matchers(s);
	m = calloc(1, sizeof(*m));
	if (!m || map_reserve(&s->matchers) < 0) {
		free(m);
		schema_no_memory(s);
		return NULL;
	}
	m->pattern = pattern;
	m->len = len;
	m->search = search;
	map_insert(&s->matchers, &m->node, (uint64_t)h.value);
	for (int i = 0; i < 2; i++)
		make_automaton(s, m, pattern, len,
			       (struct regex_form){.search = search, .most = i == 1}, i);
	return s->r ? NULL : m;
}

static bool reads(struct schemas *s, struct automaton *a, const char *text, size_t len)
{
	uint64_t before;
	bool ends;

	if (!a)
		return false;
	before = automaton_work(a);
	ends = automaton_may_end(a, automaton_read(a, AUTOMATON_START, text, len));
	schema_works(s, len / 8 + (automaton_work(a) - before) / 4);
	if (!s->r)
		s->r = automaton_failed(a, s->e);
	return ends;
}

enum verdict schema_matches(struct schemas *s, const char *pattern, size_t pattern_len,
			    const char *text, size_t len)
{
	struct matcher *m = matcher_of(s, pattern, pattern_len, true);

	if (!m)
		return MAYBE;
	if (reads(s, m->automata[0], text, len))
		return YES;
	return reads(s, m->automata[1], text, len) ? MAYBE : NO;
}

bool schema_same(struct schemas *s, const json_t *a, const json_t *b)
{
	const char *name;
	json_t *member;

	if (!schema_works(s, 1 + json_string_length(a) / 256))
		return false;
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
			if (!schema_same(s, json_array_get(a, i), json_array_get(b, i)))
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

			if (!other || !schema_same(s, member, other))
				return false;
		}
		return true;
	}
	return json_equal(a, b);
}

/* ---- schemas ---- */

static enum verdict valid(struct schemas *s, json_t *schema, const json_t *v, unsigned depth);

static enum verdict no_if(bool wrong)
{
	return wrong ? NO : YES;
}

static enum verdict opposite(enum verdict x)
{
	return x == YES ? NO : x == NO ? YES : MAYBE;
}

static uint32_t characters(const json_t *v)
{
	const char *text = json_string_value(v);
	uint32_t n = 0;

	for (size_t i = 0; i < json_string_length(v); i++)
		n += ((uint8_t)text[i] & 0xc0) != 0x80;
	return n;
}

static enum verdict multiple_of(struct schemas *s, const json_t *of, const json_t *v)
{
	double step = json_number_value(of), value = json_number_value(v);

	if (!json_is_number(of) || step <= 0) {
		schema_wrong(s, "multipleOf", "a number above 0");
		return NO;
	}
	if (json_is_integer(of) && json_is_integer(v))
		return no_if(json_integer_value(v) % json_integer_value(of) != 0);
	if (step == floor(step) && value != floor(value))
		return NO;
	if (step == floor(step) && fabs(value) < 1e15 && step < 1e15)
		return no_if(fmod(value, step) != 0);
	/* Binary fractions are exact; of others readers may see a remainder. */
	return step * 1024 == floor(step * 1024) && fabs(value) < 1e9 && fmod(value, step) == 0
		       ? YES
		       : MAYBE;
}

static enum verdict number_valid(struct schemas *s, json_t *schema, const json_t *v)
{
	static const struct {
		const char *name;
		int side;
		bool exclusive;
	} bounds[] = {{"minimum", -1, false},
		      {"maximum", 1, false},
		      {"exclusiveMinimum", -1, true},
		      {"exclusiveMaximum", 1, true}};
	const json_t *multiple = json_object_get(schema, "multipleOf");
	double n = json_number_value(v);
	enum verdict all = YES;

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		const json_t *bound = json_object_get(schema, bounds[i].name);
		double at = json_number_value(bound);

		if (!bound)
			continue;
		if (!json_is_number(bound)) {
			schema_wrong(s, bounds[i].name, "a number");
			return NO;
		}
		/* Above 2^53 doubles are not exact. */
		if ((fabs(n) > 9e15 || fabs(at) > 9e15) && fabs(n - at) <= fabs(n) * 1e-15)
			all = verdict_all(all, MAYBE);
		else if (bounds[i].side < 0 ? n < at : n > at)
			return NO;
		else if (bounds[i].exclusive && n == at)
			return NO;
	}
	return multiple ? verdict_all(all, multiple_of(s, multiple, v)) : all;
}

static enum verdict string_valid(struct schemas *s, json_t *schema, const json_t *v)
{
	const json_t *pattern = json_object_get(schema, "pattern"),
		     *format = json_object_get(schema, "format");
	const char *text = json_string_value(v), *expression;
	uint32_t n = characters(v);
	size_t len = json_string_length(v);
	enum verdict all = YES;

	if (n < schema_count(s, schema, "minLength", 0) ||
	    n > schema_count(s, schema, "maxLength", GRAMMAR_NO_LIMIT))
		return NO;
	if (pattern && !json_is_string(pattern))
		schema_wrong(s, "pattern", "a string");
	else if (pattern)
		all = schema_matches(s, json_string_value(pattern), json_string_length(pattern),
				     text, len);
	if (format && all != NO) {
		/* A format may be an annotation, or more than its expression. */
		struct matcher *m = NULL;

		expression = schema_format(format);
		if (expression)
			m = matcher_of(s, expression, strlen(expression), false);
		if (!m || !reads(s, m->automata[0], text, len))
			all = MAYBE;
	}
	return all;
}

static enum verdict array_valid(struct schemas *s, json_t *schema, const json_t *v, unsigned depth)
{
	json_t *prefix = schema_prefix(s, schema), *items = schema_behind(schema);
	json_t *contains = json_object_get(schema, "contains"), *element;
	size_t n = json_array_size(v), i, k;
	bool unique = json_is_true(json_object_get(schema, "uniqueItems"));
	uint32_t found = 0, perhaps = 0;
	enum verdict all = YES;

	if (n < schema_count(s, schema, "minItems", 0) ||
	    n > schema_count(s, schema, "maxItems", GRAMMAR_NO_LIMIT))
		return NO;
	json_array_foreach(v, i, element)
	{
		json_t *own = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
		enum verdict found_here;

		if (!schema_works(s, 1) || all == NO)
			break;
		if (own)
			all = verdict_all(all, valid(s, own, element, depth + 1));
		if (contains) {
			found_here = valid(s, contains, element, depth + 1);
			found += found_here == YES;
			perhaps += found_here == MAYBE;
		}
		for (k = 0; k < i && unique && !s->r; k++) {
			if (schema_same(s, element, json_array_get(v, k)))
				return NO;
		}
	}
	if (contains) {
		uint32_t min = schema_count(s, schema, "minContains", 1);
		uint32_t max = schema_count(s, schema, "maxContains", GRAMMAR_NO_LIMIT);

		if (found + perhaps < min || found > max)
			return NO;
		if (found < min || found + perhaps > max)
			all = verdict_all(all, MAYBE);
	}
	if (json_object_get(schema, "unevaluatedItems"))
		all = verdict_all(all, MAYBE);
	return all;
}

/* Returns whether a member satisfies the schemas that are about its name. */
static enum verdict member_valid(struct schemas *s, json_t *schema, const char *name,
				 const json_t *v, unsigned depth)
{
	json_t *own = json_object_get(json_object_get(schema, "properties"), name), *part;
	json_t *additional = json_object_get(schema, "additionalProperties");
	json_t *patterns = schema_map(s, schema, "patternProperties");
	enum verdict all = own ? valid(s, own, v, depth + 1) : YES, matched = own ? YES : NO;
	const char *pattern;

	json_object_foreach(patterns, pattern, part)
	{
		enum verdict match =
			schema_matches(s, pattern, strlen(pattern), name, strlen(name));

		matched = verdict_any(matched, match);
		if (match != NO)
			all = verdict_all(all, verdict_any(opposite(match),
							   valid(s, part, v, depth + 1)));
	}
	if (additional && matched != YES)
		all = verdict_all(all, verdict_any(matched, valid(s, additional, v, depth + 1)));
	return all;
}

static enum verdict object_valid(struct schemas *s, json_t *schema, const json_t *v, unsigned depth)
{
	json_t *required = schema_list(s, schema, "required"),
	       *names = json_object_get(schema, "propertyNames");
	json_t *needs = schema_map(s, schema, "dependentRequired"),
	       *schemas = schema_map(s, schema, "dependentSchemas");
	size_t n = json_object_size(v), i;
	enum verdict all = YES;
	const char *name;
	json_t *part;

	if (n < schema_count(s, schema, "minProperties", 0) ||
	    n > schema_count(s, schema, "maxProperties", GRAMMAR_NO_LIMIT))
		return NO;
	schema_map(s, schema, "properties");
	json_array_foreach(required, i, part)
	{
		if (!json_is_string(part))
			schema_wrong(s, "required", "a list of strings");
		else if (!json_object_getn(v, json_string_value(part), json_string_length(part)))
			return NO;
	}
	json_object_foreach(needs, name, part)
	{
		const json_t *other;

		if (!json_object_get(v, name))
			continue;
		json_array_foreach(part, i, other)
		{
			if (!json_is_string(other) || !json_object_getn(v, json_string_value(other),
									json_string_length(other)))
				return NO;
		}
	}
	json_object_foreach(schemas, name, part)
	{
		if (json_object_get(v, name))
			all = verdict_all(all, valid(s, part, v, depth + 1));
	}
	json_object_foreach((json_t *)v, name, part)
	{
		if (!schema_works(s, 1) || all == NO)
			break;
		all = verdict_all(all, member_valid(s, schema, name, part, depth));
		if (names) {
			json_t *text = json_string(name);

			if (text)
				all = verdict_all(all, valid(s, names, text, depth + 1));
			else
				schema_no_memory(s);
			json_decref(text);
		}
	}
	if (json_object_get(schema, "unevaluatedProperties"))
		all = verdict_all(all, MAYBE);
	return all;
}

static enum verdict constant_valid(struct schemas *s, json_t *schema, const json_t *v)
{
	json_t *one = json_object_get(schema, "const"), *list = schema_list(s, schema, "enum");
	/* A list is not searched for its own elements, which would be quadratic. */
	bool found = !list || (list == s->candidates && v == s->candidate);
	size_t i;

	if (one && !schema_same(s, one, v))
		return NO;
	for (i = 0; i < json_array_size(list) && !found && !s->r; i++)
		found = schema_same(s, json_array_get(list, i), v);
	return no_if(!found);
}

/* anyOf, allOf, oneOf, not, if and references. */
static enum verdict combination_valid(struct schemas *s, json_t *schema, const json_t *v,
				      unsigned depth)
{
	static const char *const refs[] = {"$ref", "$dynamicRef"};
	json_t *part, *list;
	enum verdict all = YES, any = NO;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refs); i++) {
		if (json_object_get(schema, refs[i])) {
			part = schema_target(s, schema, refs[i]);
			all = verdict_all(all, part ? valid(s, part, v, depth + 1) : NO);
		}
	}
	json_array_foreach(schema_list(s, schema, "allOf"), i, part) all =
		verdict_all(all, valid(s, part, v, depth + 1));
	list = schema_list(s, schema, "anyOf");
	json_array_foreach(list, i, part) any = verdict_any(any, valid(s, part, v, depth + 1));
	if (list)
		all = verdict_all(all, any);
	list = schema_list(s, schema, "oneOf");
	if (list) {
		unsigned yes = 0, maybe = 0;

		json_array_foreach(list, i, part)
		{
			enum verdict x = valid(s, part, v, depth + 1);

			yes += x == YES;
			maybe += x == MAYBE;
		}
		all = verdict_all(all, yes > 1 || yes + maybe == 0 ? NO : maybe ? MAYBE : YES);
	}
	part = json_object_get(schema, "not");
	if (part)
		all = verdict_all(all, opposite(valid(s, part, v, depth + 1)));
	part = json_object_get(schema, "if");
	if (part) {
		enum verdict test = valid(s, part, v, depth + 1), then = YES, other = YES;

		if (test != NO && json_object_get(schema, "then"))
			then = valid(s, json_object_get(schema, "then"), v, depth + 1);
		if (test != YES && json_object_get(schema, "else"))
			other = valid(s, json_object_get(schema, "else"), v, depth + 1);
		all = verdict_all(all, test == YES     ? then
				       : test == NO    ? other
				       : then == other ? then
						       : MAYBE);
	}
	return all;
}

static enum verdict valid(struct schemas *s, json_t *schema, const json_t *v, unsigned depth)
{
	enum verdict all;
	unsigned type;

	if (depth > 4 * SCHEMA_DEPTH_MAX || !schema_works(s, SCHEMA_WORK))
		return MAYBE;
	if (json_is_boolean(schema))
		return no_if(json_is_false(schema));
	schema_check(s, schema);
	if (s->r)
		return NO;
	type = schema_type_of(v);
	if (!(schema_types(s, schema) & type))
		return NO;
	all = constant_valid(s, schema, v);
	if (all != NO && type & (T_NUMBER | T_INTEGER))
		all = verdict_all(all, number_valid(s, schema, v));
	if (all != NO && type & T_STRING)
		all = verdict_all(all, string_valid(s, schema, v));
	if (all != NO && type & T_ARRAY)
		all = verdict_all(all, array_valid(s, schema, v, depth));
	if (all != NO && type & T_OBJECT)
		all = verdict_all(all, object_valid(s, schema, v, depth));
	if (all != NO)
		all = verdict_all(all, combination_valid(s, schema, v, depth));
	return s->r ? NO : all;
}

enum verdict schema_valid(struct schemas *s, json_t *schema, const json_t *value)
{
	return valid(s, schema, value, 0);
}
