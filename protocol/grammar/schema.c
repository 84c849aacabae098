#include "protocol/grammar/schema.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "base/problem.h"
#include "protocol/grammar/constraint_internal.h"

enum { ARENA_MAX = 256 << 20, PACE = 1 << 13 /* units of work between two questions */ };

/* A set of schemas with its rule. */
struct place {
	struct map_node node;
	struct schema_set set; /* sorted by address; its v is in the arena */
	uint32_t rule;
	struct place *next; /* in the list of places whose rules are not defined yet */
};

void schema_no_memory(struct schemas *s)
{
	if (!s->r)
		s->r = err_no_memory(s->e);
}

void schema_wrong(struct schemas *s, const char *keyword, const char *what)
{
	if (!s->r)
		s->r = err_set(s->e, EINVAL, "the keyword \"%.60s\" of the JSON schema is not %s",
			       keyword, what);
}

void schema_unsupported(struct schemas *s, const char *keyword, const char *how)
{
	if (!s->r)
		s->r = err_set(s->e, PROBLEM_UNSUPPORTED,
			       "the keyword \"%.60s\" of a JSON schema is not supported%s", keyword,
			       how);
}

void schema_lose(struct schemas *s, const char *keyword)
{
	if (!s->lost)
		s->lost = keyword;
}

bool schema_works(struct schemas *s, uint64_t units)
{
	uint64_t before = s->work / PACE;

	s->work += units;
	if (s->work / PACE != before)
		grammar_goes_on(s->b);
	if (s->work > SCHEMA_WORK_MAX && !s->r)
		s->r = err_set(s->e, E2BIG, "the JSON schema takes too much work");
	return !s->r && !grammar_failed(s->b);
}

json_t *schema_keep(struct schemas *s, json_t *schema)
{
	if (!schema || json_array_append_new(s->kept, schema) < 0) {
		schema_no_memory(s);
		return NULL;
	}
	schema_works(s, 16);
	return schema;
}

uint32_t schema_choice(struct schemas *s, struct parts *p)
{
	uint32_t x;

	if (p->failed)
		schema_no_memory(s);
	x = s->r ? 0 : grammar_choice(s->b, p->v, p->n);
	parts_release(p);
	return x;
}

/* ---- sets ---- */

/* The schemas that lead to one another without a value between. */
struct chain {
	const json_t *schema;
	const struct chain *before;
	unsigned depth;
};

static void add(struct schemas *s, struct schema_set *set, json_t *schema,
		const struct chain *before)
{
	struct chain here = {schema, before, before ? before->depth + 1 : 0};
	const char *only = NULL;
	json_t *all, *part;
	size_t i, n;

	if (!schema_works(s, SCHEMA_WORK + set->n) || set->never || json_is_true(schema))
		return;
	if (json_is_false(schema)) {
		set->never = true;
		return;
	}
	for (const struct chain *c = before; c; c = c->before) {
		if (c->schema == schema && !s->r)
			s->r = err_set(
				s->e, EINVAL,
				"a JSON schema refers to itself without a property or an element between");
	}
	if (here.depth == SCHEMA_DEPTH_MAX && !s->r)
		s->r = err_set(s->e, E2BIG,
			       "the JSON schema has $ref and allOf more than %d deep in each other",
			       SCHEMA_DEPTH_MAX);
	schema_check(s, schema);
	n = s->r ? 0 : schema_keywords(schema, &only);
	if (!n)
		return;
	/* A reference without keywords beside it is the schema that it names, so that this one has one rule. */
	if (n == 1 && (!strcmp(only, "$ref") || !strcmp(only, "$dynamicRef"))) {
		part = schema_target(s, schema, only);
		if (part)
			add(s, set, part, &here);
		return;
	}
	if (n == 1 && !strcmp(only, "allOf")) {
		all = schema_list(s, schema, "allOf");
		json_array_foreach(all, i, part) add(s, set, part, &here);
		return;
	}
	for (i = 0; i < set->n; i++) {
		if (set->v[i] == schema)
			return;
	}
	if (set->n == SCHEMA_SET_MAX) {
		s->r = err_set(s->e, E2BIG, "the JSON schema has more than %d schemas at one place",
			       SCHEMA_SET_MAX);
		return;
	}
	if (array_grow(set->v, set->cap, set->n + 1))
		set->v[set->n++] = schema;
	else
		schema_no_memory(s);
}

void schema_add(struct schemas *s, struct schema_set *set, json_t *schema)
{
	add(s, set, schema, NULL);
}

static int by_address(const void *x, const void *y)
{
	uintptr_t p = (uintptr_t) * (json_t *const *)x, q = (uintptr_t) * (json_t *const *)y;

	return p < q ? -1 : p > q;
}

/* Returns the rule of a set. Its definition waits until the others before it are done, so that nothing here is as deep
 * as the schema. */
static uint32_t rule_of(struct schemas *s, struct schema_set *set)
{
	size_t bytes = set->n * sizeof(json_t *);
	uint64_t hash = 0;
	struct place *p;
	json_t **v;

	/* The order of a set says nothing, so equal sets have one rule. The first one's order stays: properties stand
	 * in it. */
	v = malloc(bytes);
	if (!v) {
		schema_no_memory(s);
		return 0;
	}
	memcpy(v, set->v, bytes);
	qsort(v, set->n, sizeof(*v), by_address);
	for (size_t i = 0; i < set->n; i++)
		hash = mix64(hash ^ (uintptr_t)v[i]);
	for (struct map_node *n = map_first(&s->places, hash); n; n = map_next(n)) {
		p = container_of(n, struct place, node);
		if (p->set.n == set->n && !memcmp(p->set.v + set->n, v, bytes)) {
			free(v);
			return p->rule;
		}
	}
	p = arena_alloc(&s->arena, sizeof(*p));
	if (p)
		p->set.v = arena_alloc(&s->arena, 2 * bytes);
	if (!p || !p->set.v || map_reserve(&s->places) < 0) {
		free(v);
		schema_no_memory(s);
		return 0;
	}
	/* The set as it is, and sorted. */
	memcpy(p->set.v, set->v, bytes);
	memcpy(p->set.v + set->n, v, bytes);
	free(v);
	p->set.n = set->n;
	p->rule = grammar_rule(s->b, "a schema that refers to itself");
	map_insert(&s->places, &p->node, hash);
	if (s->last)
		s->last->next = p;
	else
		s->first = p;
	s->last = p;
	return p->rule;
}

uint32_t schema_value(struct schemas *s, struct schema_set *set)
{
	uint32_t x;

	if (s->r)
		x = 0;
	else if (set->never)
		x = grammar_choice(s->b, NULL, 0);
	else if (!set->n)
		x = grammar_call(s->b, s->text.value);
	else
		x = grammar_call(s->b, rule_of(s, set));
	free(set->v);
	*set = (struct schema_set){0};
	return x;
}

/* ---- the value at a place ---- */

bool schema_accepts(struct schemas *s, const struct schema_set *set, const json_t *value)
{
	enum verdict all = YES;

	for (size_t i = 0; i < set->n && all != NO; i++)
		all = verdict_all(all, schema_valid(s, set->v[i], value));
	if (all == MAYBE)
		schema_lose(s, "enum");
	return all == YES && !s->r;
}

/* Returns whether the numbers of a constant are those that the schema has. A whole number beyond int64_t was read as a
 * real one (fields_parse), whose digits are others. */
static bool is_exact(struct schemas *s, json_t *value)
{
	const char *name;
	json_t *part;
	size_t i;

	if (!schema_works(s, 1) || (json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63))
		return false;
	json_object_foreach(value, name, part)
	{
		if (!is_exact(s, part))
			return false;
	}
	json_array_foreach(value, i, part)
	{
		if (!is_exact(s, part))
			return false;
	}
	return true;
}

static uint32_t constants(struct schemas *s, const struct schema_set *set, const json_t *list)
{
	struct parts p = {0};
	json_t *value;
	size_t i;

	s->candidates = list;
	json_array_foreach(list, i, value)
	{
		if (!schema_works(s, 1))
			break;
		s->candidate = value;
		if (!is_exact(s, value))
			schema_lose(s, json_array_size(list) == 1 ? "const" : "enum");
		else if (schema_accepts(s, set, value))
			parts_add(&p, json_text_literal(&s->text, value));
	}
	s->candidates = NULL;
	return schema_choice(s, &p);
}

/* A case with `not` of constants: whether one of them is `value`. */
static bool excludes(struct schemas *s, const struct schema_case *c, const json_t *value)
{
	for (size_t i = 0; i < c->n; i++) {
		const json_t *one = schema_not(c->nodes[i]->schema, "const"),
			     *list = schema_not(c->nodes[i]->schema, "enum"), *v;
		size_t k;

		if (one && schema_same(s, one, value))
			return true;
		json_array_foreach(list, k, v)
		{
			if (schema_same(s, v, value))
				return true;
		}
	}
	return false;
}

/* Returns the types of the constants that a case excludes. */
static unsigned excluded_types(const struct schema_case *c)
{
	unsigned types = 0;

	for (size_t i = 0; i < c->n; i++) {
		const json_t *one = schema_not(c->nodes[i]->schema, "const"),
			     *list = schema_not(c->nodes[i]->schema, "enum"), *v;
		size_t k;

		if (one)
			types |= schema_type_of(one);
		json_array_foreach(list, k, v) types |= schema_type_of(v);
	}
	return types;
}

struct value {
	struct parts p;
	const struct schema_set *set;
};

static bool add_case(struct schemas *s, const struct schema_case *c, void *arg)
{
	struct value *x = arg;
	unsigned types = c->types, excluded = excluded_types(c);
	const json_t *list = schema_case_constants(s, c);

	if (list) {
		parts_add(&x->p, constants(s, x->set, list));
		return !s->r;
	}
	if (!c->typed && c->about) {
		s->narrowed = s->narrowed || (types & ~c->about);
		types &= c->about;
	}
	/* Of arrays and objects no single one can be left out. */
	if (excluded & types & (T_ARRAY | T_OBJECT)) {
		schema_lose(s, "not");
		types &= ~(excluded & (T_ARRAY | T_OBJECT));
	}
	if (types & T_NULL && !(excluded & T_NULL))
		parts_add(&x->p, grammar_text(s->b, "null"));
	if (types & T_BOOLEAN) {
		if (!excludes(s, c, json_true()))
			parts_add(&x->p, grammar_text(s->b, "true"));
		if (!excludes(s, c, json_false()))
			parts_add(&x->p, grammar_text(s->b, "false"));
	}
	if (types & T_STRING)
		parts_add(&x->p, schema_string(s, c));
	if (types & (T_NUMBER | T_INTEGER))
		parts_add(&x->p, schema_number(s, c));
	if (types & T_ARRAY)
		parts_add(&x->p, schema_array(s, c));
	if (types & T_OBJECT)
		parts_add(&x->p, schema_object(s, c));
	return schema_works(s, 1);
}

/* Each branch of a schema that has only branches is a place, with a rule that other places may share. */
static bool add_branches(struct schemas *s, json_t *schema, struct parts *p)
{
	const char *only = NULL;
	json_t *list, *branch;
	size_t i;

	if (schema_keywords(schema, &only) != 1 || (strcmp(only, "anyOf") && strcmp(only, "oneOf")))
		return false;
	list = schema_branches(s, schema, only);
	json_array_foreach(list, i, branch)
	{
		struct schema_set set = {0};

		schema_add(s, &set, branch);
		parts_add(p, schema_value(s, &set));
	}
	return true;
}

static uint32_t body_of(struct schemas *s, const struct schema_set *set)
{
	struct value x = {.set = set};
	json_t *list = schema_constants(s, set);

	if (list)
		return constants(s, set, list);
	if (s->r || (set->n == 1 && add_branches(s, set->v[0], &x.p)))
		return schema_choice(s, &x.p);
	schema_cases(s, set, false, add_case, &x);
	schema_end_cases(s);
	return schema_choice(s, &x.p);
}

void schema_end_cases(struct schemas *s)
{
	arena_release(&s->cases);
	arena_init(&s->cases, ARENA_MAX);
}

void schema_close(struct schemas *s)
{
	struct map *const maps[] = {&s->made, &s->places, &s->matchers, &s->bases};

	schema_free_matchers(s);
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		map_release(maps[i]);
	json_decref(s->kept);
	json_decref(s->named);
	json_decref(s->dynamic);
	arena_release(&s->arena);
	arena_release(&s->cases);
}

int schema_open(struct schemas *s, struct grammar_builder *b, const json_t *root, struct err *e)
{
	*s = (struct schemas){.b = b, .root = (json_t *)root, .e = e};
	arena_init(&s->arena, ARENA_MAX);
	arena_init(&s->cases, ARENA_MAX);
	s->kept = json_array();
	s->named = json_object();
	s->dynamic = json_object();
	if (!s->kept || !s->named || !s->dynamic || map_init(&s->made, 64) < 0 ||
	    map_init(&s->places, 64) < 0 || map_init(&s->matchers, 64) < 0 ||
	    map_init(&s->bases, 64) < 0) {
		schema_close(s);
		return err_no_memory(e);
	}
	schema_find_names(s);
	json_text_init(&s->text, b, false);
	return 0;
}

int schema_define(struct schemas *s)
{
	for (struct place *p = s->first; p && !s->r && !grammar_failed(s->b); p = p->next)
		grammar_define(s->b, p->rule, body_of(s, &p->set));
	return s->r;
}

/* Builds the grammar. If it has no text, says why. */
static int build(struct schemas *s, uint32_t root, struct grammar **ret, struct err *e)
{
	struct err none = {0};
	int r = grammar_build(s->b, root, ret, &none);

	if (r < 0 && e)
		*e = none;
	if (!grammar_is_empty(r, &none))
		return r;
	if (!s->lost)
		return err_set(e, EINVAL, "no value%s can be valid by the JSON schema",
			       s->narrowed ? " of the types that the keywords are about" : "");
	schema_unsupported(
		s, s->lost,
		" here: no value is left of which it is certain that the schema accepts it");
	return s->r;
}

int json_schema_grammar(struct grammar_builder *b, const json_t *schema, struct grammar **ret,
			struct err *e)
{
	struct schema_set set = {0};
	struct schemas s;
	uint32_t root;
	int r = schema_open(&s, b, schema, e);

	if (r < 0)
		return r;
	root = grammar_rule(b, "root");
	schema_add(&s, &set, s.root);
	grammar_define(b, root, schema_value(&s, &set));
	r = schema_define(&s);
	if (r == 0)
		r = build(&s, root, ret, e);
	schema_close(&s);
	return r;
}
