/* Inside the front end for JSON schemas (constraint_json_schema).
 *
 * A place is a set of schemas that one value has to satisfy: a property of two schemas of allOf is a place with two
 * schemas. Each place has a rule, so that schemas may be recursive. A place is compiled in these steps:
 *
 *     schema.c           the places and their rules; the values of constants
 *     schema_cases.c     the cases of a place: all of the schemas that $ref, allOf and one branch of each anyOf bring
 *                        together. The value satisfies the place if it satisfies one case
 *     schema_rewrite.c   not, if, oneOf and the dependent keywords become anyOf and allOf first
 *     schema_strings.c,  the texts of one case, by type
 *       _numbers.c, _arrays.c, _objects.c
 *
 * and beside them schema_names.c ($ref, $id, $anchor), schema_valid.c (whether a value satisfies a schema) and
 * schema_keywords.c (the table of keywords).
 *
 * Everything may lose texts and must not gain any. Only `schema_possible` goes the other way, since a oneOf needs
 * certainty that no value is valid. SCHEMA_WORK_MAX bounds the work: every part whose work may be quadratic counts it
 * (schema_works). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/err.h"
#include "base/map.h"
#include "protocol/grammar/json_text.h"
#include "protocol/grammar/language.h"
#include "protocol/grammar/parts.h"

enum {
	SCHEMA_WORK_MAX = 1 << 22,
	SCHEMA_WORK = 8,	  /* of looking at one schema */
	SCHEMA_SET_MAX = 500,	  /* schemas of one place */
	SCHEMA_DEPTH_MAX = 64,	  /* schemas inside one another at one place */
	SCHEMA_CASES_MAX = 500,	  /* of one place */
	SCHEMA_LENGTH_MAX = 8192, /* of a string: a longer maximum is taken for this one */
};

enum {
	T_NULL = 1,
	T_BOOLEAN = 2,
	T_OBJECT = 4,
	T_ARRAY = 8,
	T_STRING = 16,
	T_NUMBER = 32, /* numbers that are not whole */
	T_INTEGER = 64
};
enum { T_ALL = T_NULL | T_BOOLEAN | T_OBJECT | T_ARRAY | T_STRING | T_NUMBER | T_INTEGER };

struct place;

struct schemas {
	struct json_text text;
	struct grammar_builder *b;
	json_t *root;
	json_t *kept;	     /* an array: schemas that were made here; owned */
	struct map made;     /* of schema_rewrite.c */
	struct map places;   /* of schema.c */
	struct map matchers; /* of schema_valid.c */
	struct map bases;    /* of schema_names.c: by schema, its resource */
	json_t *named;	     /* by URI, a schema with an $id or $anchor; owned */
	json_t *dynamic;     /* by name, the number of schemas with this $dynamicAnchor; owned */
	bool embedded;	     /* a schema inside the root has an $id */
	struct place *first, *last; /* places whose rules are not defined yet */
	struct arena arena;	    /* until the end */
	struct arena cases;	    /* until the end of the present place */
	const json_t *candidates,
		*candidate; /* the list of constants that is read, and the present one */
	uint64_t work;
	bool narrowed;	  /* a schema without a type was taken for one of those that it is about */
	const char *lost; /* a keyword some of whose texts could not be kept; NULL: none */
	struct err *e;
	int r; /* negative: it has failed */
};

/* Schemas at one place: pointers into the whole schema or schemas.kept. */
struct schema_set {
	json_t **v; /* owned */
	size_t n, cap;
	bool never; /* no value satisfies them */
};

/* ---- schema.c ---- */

/* Each sets s->r, unless it is set already. */
void schema_no_memory(struct schemas *s);
void schema_wrong(struct schemas *s, const char *keyword, const char *what);
void schema_unsupported(struct schemas *s, const char *keyword, const char *how);

/* Notes that texts of a keyword are missing, for the case that none are left. */
void schema_lose(struct schemas *s, const char *keyword);

/* Counts units of work. False: there was too much, or s has failed. */
bool schema_works(struct schemas *s, uint64_t units);

/* schema_open makes *s for the schemas of `root`, with its rules in b; both are borrowed. -ENOMEM. schema_define
 * defines the rules of all places, also of those that it finds meanwhile, and returns s->r. schema_close frees what *s
 * owns. */
int schema_open(struct schemas *s, struct grammar_builder *b, const json_t *root,
		struct err *e) MUST_CHECK;
int schema_define(struct schemas *s) MUST_CHECK;
void schema_close(struct schemas *s);

/* Frees the memory of the cases of a place. */
void schema_end_cases(struct schemas *s);

/* Returns whether it is certain that a value satisfies all schemas of a set. */
bool schema_accepts(struct schemas *s, const struct schema_set *set, const json_t *value);

/* Adds a schema to a set. */
void schema_add(struct schemas *s, struct schema_set *set, json_t *schema);

/* Returns an expression for the values that satisfy all schemas of a set, which it releases. */
uint32_t schema_value(struct schemas *s, struct schema_set *set);

/* Keeps a new schema, or another new value, to the end. NULL: memory has ended. */
json_t *schema_keep(struct schemas *s, json_t *schema);

/* Returns a choice of the parts, and releases them. */
uint32_t schema_choice(struct schemas *s, struct parts *p);

/* ---- schema_keywords.c ---- */

/* Checks that a schema is an object with keywords that are known, or a boolean. Returns the types that its keywords are
 * about. */
unsigned schema_check(struct schemas *s, const json_t *schema);

/* Returns the number of keywords that are not annotations; *ret is one of them. */
size_t schema_keywords(const json_t *schema, const char **ret);

/* Returns how the value of a keyword has schemas in it. */
enum schema_holds { HOLDS_NONE, HOLDS_SCHEMA, HOLDS_LIST, HOLDS_MAP };
enum schema_holds schema_holds(const char *keyword);

/* The types that the keyword `type` allows; all, if it is absent. */
unsigned schema_types(struct schemas *s, const json_t *schema);
unsigned schema_type_of(const json_t *value);

/* Reads a length or a number of elements; absent: `usual`. */
uint32_t schema_count(struct schemas *s, const json_t *schema, const char *name, uint32_t usual);

/* Returns the value of a keyword that has to be a list, or an object. NULL: it is absent, or s has failed. */
json_t *schema_list(struct schemas *s, const json_t *schema, const char *name);
json_t *schema_map(struct schemas *s, const json_t *schema, const char *name);

/* Returns the list of the schemas of an array's first elements, and the schema of those behind them; NULL: absent. A
 * list as `items` is prefixItems, and additionalItems beside it is items, as in the drafts before 2020-12. */
json_t *schema_prefix(struct schemas *s, const json_t *schema);
json_t *schema_behind(const json_t *schema);

/* ---- schema_names.c ---- */

/* Finds the names of all schemas. */
void schema_find_names(struct schemas *s);

/* Returns the schema that $ref or $dynamicRef of a schema names; NULL: s has failed. */
json_t *schema_target(struct schemas *s, const json_t *schema, const char *keyword);

/* ---- schema_rewrite.c ---- */

/* Returns a list of schemas, one of which a value has to satisfy, in the place of a keyword: anyOf itself, oneOf, if
 * (with then and else) and not. NULL: s has failed. For `not` the list may lose values. */
json_t *schema_branches(struct schemas *s, json_t *schema, const char *keyword);

/* Returns a list of schemas, all of which a value has to satisfy, in the place of dependentSchemas or
 * dependentRequired. NULL: s has failed. */
json_t *schema_dependent(struct schemas *s, json_t *schema, const char *keyword);

/* Some complements are left to the types. Returns the value of `keyword` in not, if that is all that `not` has and
 * the keyword is type, const, enum, pattern, or required with one name; else NULL. */
json_t *schema_not(const json_t *schema, const char *keyword);

/* Returns a new schema that accepts nothing that `schema` accepts. */
json_t *schema_complement(struct schemas *s, json_t *schema);

/* ---- schema_cases.c ---- */

/* A schema at a place, with the schema that has brought it there. */
struct schema_node {
	json_t *schema;
	const struct schema_node *from; /* NULL: the place itself has the schema */
	const struct schema_node *next;
	bool aside; /* a complement has brought it, so `from` does not take over its annotations */
};

struct schema_case {
	const struct schema_node *const *nodes; /* [n], in the order of the text */
	size_t n;
	unsigned types; /* that the schemas allow */
	unsigned about; /* that their keywords are about */
	bool typed;	/* some schema has said something about the type */
};

/* Calls `each` with the cases of a set until it returns false. loose: for schema_possible; keywords that have to be
 * rewritten are left out, so that the cases accept too much. Returns false if there are too many cases; without `loose`
 * s fails then. */
bool schema_cases(struct schemas *s, const struct schema_set *set, bool loose,
		  bool (*each)(struct schemas *s, const struct schema_case *c, void *arg),
		  void *arg);

/* Returns false if it is certain that no value satisfies all of the schemas. */
bool schema_possible(struct schemas *s, const struct schema_set *set, int depth);

/* Returns whether the annotations of a node reach `to`, one of the nodes before it. */
bool schema_reaches(const struct schema_node *node, const struct schema_node *to);

/* Returns the constants that a value at the place, or of the case, can have; NULL: nothing limits it to some. They may
 * be invalid by other schemas of the set. */
json_t *schema_constants(struct schemas *s, const struct schema_set *set);
json_t *schema_case_constants(struct schemas *s, const struct schema_case *c);

/* ---- schema_valid.c ---- */

enum verdict { NO, MAYBE, YES };

static inline enum verdict verdict_all(enum verdict x, enum verdict y)
{
	return x < y ? x : y;
}

static inline enum verdict verdict_any(enum verdict x, enum verdict y)
{
	return x > y ? x : y;
}

/* Returns whether a value satisfies a schema. */
enum verdict schema_valid(struct schemas *s, json_t *schema, const json_t *value);

/* Returns whether a pattern matches somewhere in a text. MAYBE: dialects differ. */
enum verdict schema_matches(struct schemas *s, const char *pattern, size_t pattern_len,
			    const char *text, size_t len);
void schema_free_matchers(struct schemas *s);

/* Returns whether two values are equal by JSON Schema: 1 and 1.0 are. */
bool schema_same(struct schemas *s, const json_t *a, const json_t *b);

/* ---- languages, with the work counted ---- */

/* *l, which may be NULL for all strings as regex.h writes them, becomes its texts that are (without: are not) among
 * those of an expression. */
void schema_keep_texts(struct schemas *s, struct language **l, uint32_t expression, bool without);
void schema_keep_language(struct schemas *s, struct language **l, const struct language *other,
			  bool without);

/* Returns the expression of a language, which it frees. */
uint32_t schema_texts(struct schemas *s, struct language *l);

/* Strings as regex.h writes them, of min to max code points. */
uint32_t schema_any_inside(struct schemas *s, uint32_t min, uint32_t max);

/* ---- by type: expressions of the values of one case ---- */

uint32_t schema_string(struct schemas *s, const struct schema_case *c);
uint32_t schema_number(struct schemas *s, const struct schema_case *c);
uint32_t schema_array(struct schemas *s, const struct schema_case *c);
uint32_t schema_object(struct schemas *s, const struct schema_case *c);

/* Returns the inside of strings that satisfy a case, in the form of regex.h for JSON; *ret_any: each string does, and
 * the expression has all of them. */
uint32_t schema_string_inside(struct schemas *s, const struct schema_case *c, bool *ret_any);

/* The regular expression of a format, a value of the keyword; NULL: it is not known. */
const char *schema_format(const json_t *format);

/* Reads the bounds of numbers in units of 1 / scale. False: there are none. */
bool schema_bounds(struct schemas *s, const struct schema_case *c, double scale, int64_t *lo,
		   int64_t *hi);
