/* Arrays: the elements of prefixItems, those behind them, how many there are, and how many contain something. */
#include <string.h>

#include "protocol/grammar/schema.h"

enum {
	ITEMS_MAX = 8192,	 /* a larger maximum is taken for this one */
	COUNTED_ITEMS_MAX = 500, /* as ITEMS_MAX, beside `contains` */
	COUNTED_MAX = 4096,	 /* elements times elements that `contains` counts */
};

struct array {
	const struct schema_case *c;
	uint32_t min, max;
	uint32_t prefix;  /* elements with schemas of their own */
	json_t *contains; /* NULL: nothing is counted */
	uint32_t min_contains, max_contains;
	uint32_t comma;
};

static json_t *get(const struct array *a, size_t i, const char *keyword)
{
	return json_object_get(a->c->nodes[i]->schema, keyword);
}

/* Returns whether a schema below `to` is about element i: then the unevaluatedItems of `to` is not. */
static bool evaluated(struct schemas *s, const struct array *a, const struct schema_node *to,
		      uint32_t i)
{
	for (size_t k = 0; k < a->c->n && schema_works(s, 1); k++) {
		const struct schema_node *node = a->c->nodes[k];

		if (!schema_reaches(node, to))
			continue;
		if (schema_behind(node->schema) ||
		    i < json_array_size(schema_prefix(s, node->schema)) ||
		    (node != to && get(a, k, "unevaluatedItems")))
			return true;
	}
	return false;
}

/* Collects the schemas of element i; i = a->prefix stands for all behind the prefix. */
static void element_schemas(struct schemas *s, const struct array *a, uint32_t i,
			    struct schema_set *set)
{
	for (size_t k = 0; k < a->c->n && schema_works(s, 1); k++) {
		const json_t *schema = a->c->nodes[k]->schema;
		json_t *prefix = schema_prefix(s, schema), *items = schema_behind(schema);
		json_t *rest = get(a, k, "unevaluatedItems");

		if (i < json_array_size(prefix))
			schema_add(s, set, json_array_get(prefix, i));
		else if (items)
			schema_add(s, set, items);
		if (rest && !evaluated(s, a, a->c->nodes[k], i))
			schema_add(s, set, rest);
	}
}

/* Returns element i with blanks behind it. also: one more schema, or NULL. */
static uint32_t element(struct schemas *s, const struct array *a, uint32_t i, json_t *also)
{
	struct schema_set set = {0};

	element_schemas(s, a, i, &set);
	if (also)
		schema_add(s, &set, also);
	return json_text_spaced(&s->text, schema_value(s, &set));
}

static void read_array(struct schemas *s, struct array *a)
{
	bool items = false;

	for (size_t k = 0; k < a->c->n; k++) {
		const json_t *schema = a->c->nodes[k]->schema;
		const json_t *prefix = schema_prefix(s, schema);
		json_t *contains = get(a, k, "contains");
		const json_t *unique = get(a, k, "uniqueItems");

		a->min = MAX(a->min, schema_count(s, schema, "minItems", 0));
		a->max = MIN(a->max, schema_count(s, schema, "maxItems", GRAMMAR_NO_LIMIT));
		a->prefix = MAX(a->prefix, (uint32_t)json_array_size(prefix));
		items = items || schema_behind(schema) || get(a, k, "unevaluatedItems") || contains;
		if (unique && !json_is_boolean(unique))
			schema_wrong(s, "uniqueItems", "a boolean");
		if (!contains)
			continue;
		if (a->contains && a->contains != contains)
			schema_unsupported(s, "contains", " in two schemas at the same place");
		a->contains = contains;
		a->min_contains = MAX(a->min_contains, schema_count(s, schema, "minContains", 1));
		a->max_contains = MIN(a->max_contains,
				      schema_count(s, schema, "maxContains", GRAMMAR_NO_LIMIT));
	}
	if (!a->min_contains && a->max_contains == GRAMMAR_NO_LIMIT)
		a->contains = NULL;
	if (a->contains && a->max != GRAMMAR_NO_LIMIT)
		a->max = MIN(a->max, MAX(a->min, (uint32_t)COUNTED_ITEMS_MAX));
	if (!items && a->prefix)
		a->max = MIN(a->max, MAX(a->min, a->prefix));
	if (a->max != GRAMMAR_NO_LIMIT)
		a->max = MIN(a->max, MAX(a->min, (uint32_t)ITEMS_MAX));
}

/* The elements, if no more is to be known of those behind the prefix than their number. */
static uint32_t plain(struct schemas *s, const struct array *a)
{
	struct grammar_builder *b = s->b;
	uint32_t n = a->prefix, min = a->min, max = a->max, rest, more, behind;

	behind = element(s, a, n, NULL);
	more = grammar_seq(b, a->comma, behind);
	if (!n) {
		if (!max)
			return 0;
		rest = grammar_seq(b, behind,
				   grammar_repeat(b, more, min ? min - 1 : 0,
						  max == GRAMMAR_NO_LIMIT ? max : max - 1));
		return min ? rest : grammar_repeat(b, rest, 0, 1);
	}
	rest = max > n ? grammar_repeat(b, more, min > n ? min - n : 0,
					max == GRAMMAR_NO_LIMIT ? max : max - n)
		       : 0;
	for (uint32_t i = n; i-- > 0 && schema_works(s, 1);) {
		uint32_t rule = grammar_rule(b, "elements"), own;

		if (i >= max)
			continue;
		own = element(s, a, i, NULL);
		rest = grammar_seq(b, i ? a->comma : 0, own, rest);
		grammar_define(b, rule, i >= min ? grammar_repeat(b, rest, 0, 1) : rest);
		rest = grammar_call(b, rule);
	}
	return rest;
}

/* The elements, if some have to be valid by `contains`: a rule for i elements so far, k of which count. Where it makes
 * no difference, larger i and k are those of the last rule. */
static uint32_t counted(struct schemas *s, const struct array *a)
{
	struct grammar_builder *b = s->b;
	bool bounded = a->max_contains != GRAMMAR_NO_LIMIT;
	/* The first rule has no comma, so it is never the last one. */
	uint64_t n_i =
		(uint64_t)(a->max == GRAMMAR_NO_LIMIT ? MAX(MAX(a->prefix, a->min), 1u) : a->max) +
		1;
	uint64_t n_k = (uint64_t)(bounded ? a->max_contains : a->min_contains) + 1;
	json_t *other = bounded ? schema_complement(s, a->contains) : NULL;
	uint32_t first = 0;

	if (n_i * n_k > COUNTED_MAX)
		schema_unsupported(s, "contains", " beside such large numbers of elements");
	for (uint32_t i = 0; i < n_i * n_k && !s->r; i++) {
		uint32_t rule = grammar_rule(b, "elements");

		if (!i)
			first = rule;
	}
	for (uint32_t i = 0; i < n_i && schema_works(s, n_k); i++) {
		uint32_t comma = i ? a->comma : 0, place = MIN(i, a->prefix);
		uint32_t next = i + 1 < n_i ? i + 1 : i;
		uint32_t hit = element(s, a, place, a->contains);
		uint32_t miss = element(s, a, place, other);

		for (uint32_t k = 0; k < n_k; k++) {
			uint32_t parts[3], n = 0, rules = first + next * (uint32_t)n_k;
			bool full = k + 1 == n_k;

			if (i >= a->min && k >= a->min_contains)
				parts[n++] = 0;
			if (a->max == GRAMMAR_NO_LIMIT || i < a->max) {
				parts[n++] =
					grammar_seq(b, comma, miss, grammar_call(b, rules + k));
				if (!full)
					parts[n++] = grammar_seq(b, comma, hit,
								 grammar_call(b, rules + k + 1));
			}
			grammar_define(b, first + i * (uint32_t)n_k + k,
				       grammar_choice(b, parts, n));
		}
	}
	return grammar_call(b, first);
}

/* Elements that are all different: of a list of constants each one at most once, in the order of the list. */
static uint32_t unique(struct schemas *s, const struct array *a)
{
	struct grammar_builder *b = s->b;
	struct schema_set set = {0};
	uint32_t n, most, first = 0, n_rules;
	json_t *list, *kept = schema_keep(s, json_array()), *value;
	size_t i, k;

	element_schemas(s, a, a->prefix, &set);
	list = a->contains || a->prefix ? NULL : schema_constants(s, &set);
	if (!list)
		schema_unsupported(
			s, "uniqueItems",
			" for arrays with more than one element, unless the elements are of an enum");
	json_array_foreach(list, i, value)
	{
		bool good = true;

		for (k = 0; k < set.n && good; k++)
			good = schema_valid(s, set.v[k], value) == YES;
		for (k = 0; k < json_array_size(kept) && good; k++)
			good = !schema_same(s, value, json_array_get(kept, k));
		if (good && !s->r && json_array_append(kept, value) < 0)
			schema_no_memory(s);
	}
	free(set.v);
	n = (uint32_t)json_array_size(kept);
	most = MIN(a->max, n);
	if (s->r || a->min > most)
		return grammar_choice(b, NULL, 0);
	n_rules = (n + 1) * (most + 1);
	if ((uint64_t)(n + 1) * (most + 1) > COUNTED_MAX) {
		schema_unsupported(s, "uniqueItems", " beside such a large enum");
		return 0;
	}
	for (uint32_t rule = 0; rule < n_rules; rule++) {
		uint32_t number = grammar_rule(b, "elements");

		if (!rule)
			first = number;
	}
	/* Rule (i, k): the constants from i on, if the array has k elements so far. */
	for (uint32_t at = 0; at <= n; at++) {
		uint32_t own =
			at < n ? json_text_spaced(&s->text,
						  json_text_literal(&s->text,
								    json_array_get(kept, at)))
			       : 0;

		for (uint32_t m = 0; m <= most; m++) {
			uint32_t rule = first + at * (most + 1) + m, next = rule + most + 1;
			uint32_t parts[2], n_parts = 0;

			if (at == n) {
				if (m >= a->min)
					parts[n_parts++] = 0;
			} else {
				parts[n_parts++] = grammar_call(b, next);
				if (m < most)
					parts[n_parts++] = grammar_seq(b, m ? a->comma : 0, own,
								       grammar_call(b, next + 1));
			}
			grammar_define(b, rule, grammar_choice(b, parts, n_parts));
		}
	}
	return grammar_call(b, first);
}

uint32_t schema_array(struct schemas *s, const struct schema_case *c)
{
	struct array a = {.c = c, .max = GRAMMAR_NO_LIMIT, .max_contains = GRAMMAR_NO_LIMIT};
	struct grammar_builder *b = s->b;
	uint32_t open = json_text_spaced(&s->text, grammar_text(b, "[")), x;
	bool different = false;

	a.comma = json_text_spaced(&s->text, grammar_text(b, ","));
	read_array(s, &a);
	for (size_t k = 0; k < c->n; k++)
		different = different || json_is_true(get(&a, k, "uniqueItems"));
	if (s->r || a.min > a.max || a.min_contains > a.max_contains)
		return grammar_choice(b, NULL, 0);
	/* An array with fewer than two elements has no equal ones. */
	if (different && a.max > 1)
		x = unique(s, &a);
	else
		x = a.contains ? counted(s, &a) : plain(s, &a);
	return grammar_seq(b, open, x, grammar_text(b, "]"));
}
