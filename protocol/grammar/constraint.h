/* The front ends of grammars: what a client asks for, as a grammar.
 *
 * Each function makes a *new* grammar. Its errors are one sentence fit to show the client: -EINVAL, the text is wrong;
 * -PROBLEM_UNSUPPORTED, it has a construct that is not known here, which the sentence names; -E2BIG, a limit of
 * grammar.h; -ENOMEM. Work is linear in the size of the text and of the grammar, but for JSON schemas, whose work has a
 * bound. A grammar may have fewer texts than the client's description, but never one that the description forbids. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "protocol/grammar/grammar.h"

struct constraint_text {
	const char *text;
	size_t len;
};

/* One of the n texts. */
int constraint_choice(const struct constraint_text *texts, size_t n, struct grammar **ret,
		      struct err *e) MUST_CHECK;

/* A grammar in GBNF, the language of llama.cpp: rules NAME ::= ... with "texts", [classes], [^classes], a dot for any
 * code point, names, groups, | and the quantifiers * + ? {n} {n,} {,m} {n,m}. Comments begin with #. A rule ends with
 * its line, but groups and the lines after | and ::= go on, as does a line that begins with |. Texts and classes know
 * the escapes \n \r \t \\ \" \[ \] \- \^ \/ \xHH \uHHHH \UHHHHHHHH. The answer is a text of the rule `root`. */
int constraint_gbnf(const char *text, size_t len, struct grammar **ret, struct err *e) MUST_CHECK;

/* All of the answer matches a regular expression; regex.h says which expressions are known. */
int constraint_regex(const char *pattern, size_t len, struct grammar **ret,
		     struct err *e) MUST_CHECK;

/* Any JSON object, written as json_text.h says. */
int constraint_json_object(struct grammar **ret, struct err *e) MUST_CHECK;

/* JSON that a schema (draft 2020-12) accepts, written as json_text.h says. Every text of the grammar is valid by the
 * schema; valid texts may be missing:
 *
 *   properties            stand in the order of the schema, and those that are only required behind them
 *   additionalProperties  if it is absent, an object with properties or required has no further members. Else they
 *                         stand last, and their names have no escapes that JSON can do without
 *   patternProperties     stand behind properties; a name matches one pattern only
 *   prefixItems           if `items` is absent, the array has no elements behind them
 *   items                 may be a list, with additionalItems: as prefixItems with items, which older drafts write so
 *   unevaluatedItems,     annotations of anyOf count for the branch that was chosen, those of contains do not count
 *   unevaluatedProperties
 *   uniqueItems           each constant of an enum at most once, in the order of the enum
 *   no type               the types that the other keywords are about; if there is no such keyword, any type
 *   integers, numbers     json_text.h; a number with a bound has no exponent, and at most 9 digits before the point
 *   pattern, format       nothing is escaped that JSON can do without escaping
 *   format                date, time, date-time, duration, email, hostname, ipv4, ipv6, json-pointer, regex,
 *                         relative-json-pointer, uri, uri-reference, uri-template, uuid, and idn- and iri forms: some
 *                         values of each
 *   maxLength, maxItems   more than 8192 means 8192
 *   not, oneOf, else      values for which it is not certain that the other schema refuses them are missing
 *   enum, const           a value counts if it is certain that all schemas beside accept it
 *
 * Patterns mean the same in all dialects, or both meanings are kept. $ref and $dynamicRef name a schema by its place,
 * by $anchor or by $id, inside the whole schema. Annotations are ignored. Every other keyword, and every unknown one,
 * is -PROBLEM_UNSUPPORTED with its name, as is a schema of which no value is left. A schema that no value satisfies is
 * -EINVAL. */
int constraint_json_schema(const json_t *schema, struct grammar **ret, struct err *e) MUST_CHECK;

/* Any of the descriptions above, as a value. Everything is borrowed. */
struct constraint {
	enum {
		CONSTRAINT_CHOICE,
		CONSTRAINT_GBNF,
		CONSTRAINT_REGEX,
		CONSTRAINT_JSON_OBJECT,
		CONSTRAINT_JSON_SCHEMA
	} kind;
	const struct constraint_text *texts; /* CHOICE */
	size_t n_texts;
	struct constraint_text text; /* GBNF, REGEX */
	const json_t *schema;	     /* JSON_SCHEMA */
};

/* Does the work of each function above. A hostile description may take a second; pace, which may be NULL, is asked
 * again and again meanwhile, and ends the work with -ECANCELED. */
int constraint_grammar(const struct constraint *c, const struct pace *pace, struct grammar **ret,
		       struct err *e) MUST_CHECK;
