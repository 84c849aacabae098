/* Objects: the properties that schemas name, in their order, then properties with other names, by the patterns that
 * match them; and how many there are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "protocol/grammar/regex.h"
#include "protocol/grammar/schema.h"
#include "protocol/word.h"

enum {
	PROPERTIES_MAX = 2000,
	PATTERNS_MAX = 8,      /* beside each other, in one object with other names */
	COUNTED_MAX = 1 << 14, /* properties times the numbers of them that have to be known */
	NAME_MAX_BYTES = 256,  /* of a property beside additionalProperties */
};

struct member {
	struct map_node node;
	const char *name;
	bool required;
};

struct object {
	const struct schema_case *c;
	struct member **v; /* [n]; owned, with the members in the arena of cases */
	size_t n, cap;
	struct map names;
	const char *patterns[PATTERNS_MAX];
	size_t n_patterns;
	bool many_patterns;
	bool open;  /* the object may have properties that no schema names and no pattern matches */
	bool named; /* there is propertyNames */
	uint32_t min, max;
};

static json_t *get(const struct object *o, size_t i, const char *keyword)
{
	return json_object_get(o->c->nodes[i]->schema, keyword);
}

/* ---- names ---- */

static struct member *find(struct schemas *s, struct object *o, const char *name, bool add)
{
	struct hash128 h = HASH128_INIT;
	struct member *m;

	schema_works(s, strlen(name) / 64);
	hash128_update(&h, name, strlen(name));
	for (struct map_node *n = map_first(&o->names, (uint64_t)h.value); n; n = map_next(n)) {
		m = container_of(n, struct member, node);
		if (schema_works(s, 1) && !strcmp(m->name, name))
			return m;
	}
	if (!add || s->r)
		return NULL;
	if (o->n == PROPERTIES_MAX) {
		s->r = err_set(s->e, E2BIG,
			       "the JSON schema has an object with more than %d properties",
			       PROPERTIES_MAX);
		return NULL;
	}
	m = arena_alloc(&s->cases, sizeof(*m));
	if (!m || map_reserve(&o->names) < 0 || !array_grow(o->v, o->cap, o->n + 1)) {
		schema_no_memory(s);
		return NULL;
	}
	m->name = name;
	map_insert(&o->names, &m->node, (uint64_t)h.value);
	o->v[o->n++] = m;
	return m;
}

static void require(struct schemas *s, struct object *o, const json_t *list)
{
	const json_t *name;
	size_t i;

	json_array_foreach(list, i, name)
	{
		struct member *m;

		if (!json_is_string(name)) {
			schema_wrong(s, "required", "a list of strings");
			return;
		}
		/* Names are texts that end with a zero byte here. */
		if (!word_of(name)) {
			schema_unsupported(s, "required", " with a name that has a zero byte");
			return;
		}
		m = find(s, o, json_string_value(name), true);
		if (m)
			m->required = true;
	}
}

static void add_pattern(struct object *o, const char *pattern)
{
	for (size_t i = 0; i < o->n_patterns; i++) {
		if (!strcmp(o->patterns[i], pattern))
			return;
	}
	if (o->n_patterns == PATTERNS_MAX)
		o->many_patterns = true;
	else
		o->patterns[o->n_patterns++] = pattern;
}

static void read_object(struct schemas *s, struct object *o)
{
	bool additional = false, listing = false;
	const char *name;
	json_t *value;

	for (size_t i = 0; i < o->c->n && !s->r; i++) {
		const json_t *schema = o->c->nodes[i]->schema;
		json_t *properties = schema_map(s, schema, "properties");
		json_t *patterns = schema_map(s, schema, "patternProperties");

		json_object_foreach(properties, name, value)
		{
			find(s, o, name, true);
		}
		json_object_foreach(patterns, name, value) add_pattern(o, name);
		o->min = MAX(o->min, schema_count(s, schema, "minProperties", 0));
		o->max = MIN(o->max, schema_count(s, schema, "maxProperties", GRAMMAR_NO_LIMIT));
		o->named = o->named || get(o, i, "propertyNames");
		additional = additional || get(o, i, "additionalProperties") ||
			     get(o, i, "unevaluatedProperties");
		listing = listing || properties || patterns || get(o, i, "required");
	}
	/* Names that are only required stand behind. */
	for (size_t i = 0; i < o->c->n && !s->r; i++)
		require(s, o, schema_list(s, o->c->nodes[i]->schema, "required"));
	o->open = additional || !listing;
}

/* ---- the schemas of a property ---- */

/* A name, or the names that match one pattern, or none. */
struct names {
	const char *name;    /* NULL: there are many */
	const char *pattern; /* with name NULL: the only pattern that matches; NULL: none does */
};

/* Returns whether a pattern matches. */
static enum verdict matches(struct schemas *s, const struct names *n, const char *pattern)
{
	if (n->name)
		return schema_matches(s, pattern, strlen(pattern), n->name, strlen(n->name));
	return n->pattern && !strcmp(n->pattern, pattern) ? YES : NO;
}

/* Adds the schemas that one schema demands of a property to *set, unless set is NULL. Returns whether the schema is
 * about the property. */
static enum verdict one_schema(struct schemas *s, const struct object *o, size_t i,
			       const struct names *n, struct schema_set *set)
{
	json_t *own = n->name ? json_object_get(get(o, i, "properties"), n->name) : NULL, *part;
	json_t *additional = get(o, i, "additionalProperties");
	enum verdict about = own ? YES : NO;
	const char *pattern;

	if (own && set)
		schema_add(s, set, own);
	json_object_foreach(get(o, i, "patternProperties"), pattern, part)
	{
		enum verdict match = schema_works(s, 1) ? matches(s, n, pattern) : NO;

		about = verdict_any(about, match);
		/* If that is not certain, the value has to satisfy both: the schemas of the pattern, and those that
		 * count without it. */
		if (match != NO && set)
			schema_add(s, set, part);
	}
	if (additional && about != YES) {
		if (set)
			schema_add(s, set, additional);
		about = YES;
	}
	return about;
}

/* Returns whether a schema below node i is about the property. */
static bool evaluated(struct schemas *s, const struct object *o, size_t i, const struct names *n)
{
	for (size_t k = 0; k < o->c->n && schema_works(s, 1); k++) {
		if (!schema_reaches(o->c->nodes[k], o->c->nodes[i]))
			continue;
		if (one_schema(s, o, k, n, NULL) == YES ||
		    (k != i && get(o, k, "unevaluatedProperties")))
			return true;
	}
	return false;
}

/* Returns whether propertyNames allows a name. */
static bool allowed(struct schemas *s, json_t *schema, const char *name)
{
	json_t *text = json_string(name);
	enum verdict x = text ? schema_valid(s, schema, text) : NO;

	if (!text)
		schema_no_memory(s);
	if (x == MAYBE)
		schema_lose(s, "propertyNames");
	json_decref(text);
	return x == YES;
}

static uint32_t value_of(struct schemas *s, const struct object *o, const struct names *n)
{
	struct schema_set set = {0};

	for (size_t i = 0; i < o->c->n && schema_works(s, 1); i++) {
		json_t *rest = get(o, i, "unevaluatedProperties"),
		       *names = get(o, i, "propertyNames");
		const json_t *absent = schema_not(o->c->nodes[i]->schema, "required");

		one_schema(s, o, i, n, &set);
		if (rest && !evaluated(s, o, i, n))
			schema_add(s, &set, rest);
		if (n->name && names && !allowed(s, names, n->name))
			set.never = true;
		if (n->name && absent &&
		    !strcmp(json_string_value(json_array_get(absent, 0)), n->name))
			set.never = true;
	}
	return json_text_spaced(&s->text, schema_value(s, &set));
}

/* ---- properties with other names ---- */

struct inside {
	struct parts p;
	json_t *schema;
};

/* Adds the constants that the schema accepts as names. */
static void add_constants(struct schemas *s, struct inside *x, const json_t *list)
{
	json_t *value;
	size_t i;

	json_array_foreach(list, i, value)
	{
		if (schema_works(s, 1) && json_is_string(value) &&
		    schema_valid(s, x->schema, value) == YES)
			parts_add(&x->p,
				  regex_text(s->b, json_string_value(value),
					     json_string_length(value), s->text.escape_less));
	}
}

static bool add_inside(struct schemas *s, const struct schema_case *c, void *arg)
{
	struct inside *x = arg;
	const json_t *list = schema_case_constants(s, c);
	bool any;

	if (list)
		add_constants(s, x, list);
	else if (c->types & T_STRING)
		parts_add(&x->p, schema_string_inside(s, c, &any));
	return !s->r;
}

/* Leaves the names that propertyNames allows. */
static void keep_names(struct schemas *s, json_t *schema, struct language **l)
{
	struct schema_set set = {0};
	struct inside x = {.schema = schema};
	json_t *list;

	schema_add(s, &set, schema);
	list = schema_constants(s, &set);
	if (list)
		add_constants(s, &x, list);
	else
		schema_cases(s, &set, false, add_inside, &x);
	free(set.v);
	schema_keep_texts(s, l, schema_choice(s, &x.p), false);
}

/* Returns a choice of the names of all members, and of those that may not be. */
static uint32_t known_names(struct schemas *s, const struct object *o)
{
	struct parts p = {0};

	for (size_t i = 0; i < o->n && schema_works(s, 1); i++)
		parts_add(&p, regex_text(s->b, o->v[i]->name, strlen(o->v[i]->name),
					 s->text.escape_less));
	for (size_t i = 0; i < o->c->n; i++) {
		const json_t *name =
			json_array_get(schema_not(o->c->nodes[i]->schema, "required"), 0);

		if (name)
			parts_add(&p, regex_text(s->b, json_string_value(name),
						 json_string_length(name), s->text.escape_less));
	}
	return schema_choice(s, &p);
}

/* The names that match only the pattern, or none, and are not those of members, with the colon. */
static uint32_t name_of(struct schemas *s, const struct object *o, const char *pattern)
{
	uint32_t quote = grammar_text(s->b, "\""), x = 0;
	struct regex_form form = {.search = true, .json = true, .escape_less = s->text.escape_less};
	struct language *l = NULL;
	struct regex_lengths lengths;

	if (pattern && !s->r) {
		s->r = regex_expression(s->b, pattern, strlen(pattern), form, &x, &lengths, s->e);
		schema_keep_texts(s, &l, x, false);
	}
	form.most = true;
	for (size_t i = 0; i < o->n_patterns && !s->r; i++) {
		const char *other = o->patterns[i];

		if (pattern && !strcmp(pattern, other))
			continue;
		s->r = regex_expression(s->b, other, strlen(other), form, &x, &lengths, s->e);
		schema_keep_texts(s, &l, x, true);
	}
	schema_keep_texts(s, &l, known_names(s, o), true);
	for (size_t i = 0; i < o->c->n && !s->r; i++) {
		if (get(o, i, "propertyNames"))
			keep_names(s, get(o, i, "propertyNames"), &l);
	}
	x = schema_texts(s, l);
	return grammar_seq(s->b, quote, x, json_text_spaced(&s->text, quote),
			   json_text_spaced(&s->text, grammar_text(s->b, ":")));
}

/* As name_of, for objects without patterns and propertyNames. */
static uint32_t plain_name(struct schemas *s, const struct object *o)
{
	const char **names = calloc(o->n + o->c->n + 1, sizeof(*names));
	size_t n = 0;
	uint32_t x = 0;

	for (size_t i = 0; names && i < o->n; i++)
		names[n++] = o->v[i]->name;
	for (size_t i = 0; names && i < o->c->n; i++) {
		const json_t *name =
			json_array_get(schema_not(o->c->nodes[i]->schema, "required"), 0);

		if (name)
			names[n++] = json_string_value(name);
	}
	for (size_t i = 0; i < n; i++) {
		if (strlen(names[i]) > NAME_MAX_BYTES)
			schema_unsupported(s, "additionalProperties",
					   " beside a property with a name of more than 256 bytes");
	}
	if (!names)
		schema_no_memory(s);
	else if (!s->r)
		x = json_text_other_name(&s->text, names, n);
	free(names);
	return x;
}

/* Returns a property with another name, or the expression without texts. */
static uint32_t other_member(struct schemas *s, const struct object *o)
{
	struct parts p = {0};

	if (o->many_patterns)
		schema_unsupported(s, "patternProperties", " with more than 8 patterns");
	for (size_t i = 0; i <= o->n_patterns && !s->r; i++) {
		struct names n = {.pattern = i < o->n_patterns ? o->patterns[i] : NULL};
		uint32_t value, name;

		if (!n.pattern && !o->open)
			continue;
		value = value_of(s, o, &n);
		name = o->n_patterns || o->named ? name_of(s, o, n.pattern) : plain_name(s, o);
		parts_add(&p, grammar_seq(s->b, name, value));
	}
	return schema_choice(s, &p);
}

/* ---- the object ---- */

/* The members from i on: a rule for k members so far, as far as that has to be known, and for whether there was one. */
static uint32_t members(struct schemas *s, const struct object *o)
{
	struct grammar_builder *b = s->b;
	uint32_t comma = json_text_spaced(&s->text, grammar_text(b, ","));
	uint32_t others = s->r ? 0 : other_member(s, o), first = 0;
	uint32_t most = o->max == GRAMMAR_NO_LIMIT ? o->min : (uint32_t)MIN(o->max, o->n);
	uint32_t n_k = MIN(most, (uint32_t)o->n) + 1;
	bool counts = o->min || o->max != GRAMMAR_NO_LIMIT;

	if (!counts)
		n_k = 1;
	/* Below, names outside make up for one missing member alone. */
	if (o->min > o->n + 1 && (o->open || o->n_patterns))
		schema_lose(s, "minProperties");
	if ((o->n + 1) * (uint64_t)n_k > COUNTED_MAX)
		schema_unsupported(s, o->min ? "minProperties" : "maxProperties",
				   " beside so many properties");
	for (uint64_t i = 0; i < (o->n + 1) * (uint64_t)n_k * 2 && !s->r; i++) {
		uint32_t rule = grammar_rule(b, "members");

		if (!i)
			first = rule;
	}
#define RULE(i, k, later) (first + (((uint32_t)(i)*n_k + (k)) * 2) + (later))
	for (uint32_t k = 0; k < n_k && !s->r; k++) {
		/* Names outside may come twice, and then count once: so they make up for one missing member. */
		bool enough = k >= o->min, nearly = k + 1 >= o->min;
		uint32_t room = o->max == GRAMMAR_NO_LIMIT ? o->max : o->max - k;

		for (unsigned later = 0; later < 2; later++) {
			uint32_t more = grammar_seq(b, comma, others), parts[2], n = 0;

			if (enough)
				parts[n++] = 0;
			if (nearly && room)
				parts[n++] =
					grammar_seq(b, later ? comma : 0, others,
						    grammar_repeat(b, more, 0,
								   room == GRAMMAR_NO_LIMIT
									   ? room
									   : MIN(room, 1000u) - 1));
			grammar_define(b, RULE(o->n, k, later), grammar_choice(b, parts, n));
		}
	}
	for (size_t i = o->n; i-- > 0 && schema_works(s, 2 * (uint64_t)n_k);) {
		const struct member *m = o->v[i];
		struct names names = {.name = m->name};
		uint32_t own = grammar_rule(b, "member");

		grammar_define(b, own,
			       grammar_seq(b, json_text_name(&s->text, m->name),
					   value_of(s, o, &names)));
		for (uint32_t k = 0; k < n_k; k++) {
			bool full = o->max != GRAMMAR_NO_LIMIT && k >= o->max;
			uint32_t next = counts ? MIN(k + 1, n_k - 1) : 0;

			for (unsigned later = 0; later < 2; later++) {
				uint32_t parts[2], n = 0;

				if (!full)
					parts[n++] =
						grammar_seq(b, later ? comma : 0,
							    grammar_call(b, own),
							    grammar_call(b, RULE(i + 1, next, 1)));
				if (!m->required)
					parts[n++] = grammar_call(b, RULE(i + 1, k, later));
				grammar_define(b, RULE(i, k, later), grammar_choice(b, parts, n));
			}
		}
	}
	return grammar_call(b, RULE(0, 0, 0));
#undef RULE
}

uint32_t schema_object(struct schemas *s, const struct schema_case *c)
{
	struct object o = {.c = c, .max = GRAMMAR_NO_LIMIT};
	struct grammar_builder *b = s->b;
	uint32_t x;

	if (map_init(&o.names, 16) < 0) {
		schema_no_memory(s);
		return 0;
	}
	read_object(s, &o);
	x = s->r || o.min > o.max ? grammar_choice(b, NULL, 0) : members(s, &o);
	free(o.v);
	map_release(&o.names);
	return grammar_seq(b, json_text_spaced(&s->text, grammar_text(b, "{")), x,
			   grammar_text(b, "}"));
}
