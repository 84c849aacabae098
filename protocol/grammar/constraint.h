/* The front ends of grammars: what a client asks for, as a grammar.
 *
 * Each function makes a *new* grammar. Its errors are one sentence fit to show the client: -EINVAL, the text is wrong;
 * -PROBLEM_UNSUPPORTED, it has a construct that is not known here, which the sentence names; -E2BIG, a limit of
 * grammar.h; -ENOMEM. Work is linear in the size of the text and of the grammar. A grammar may have fewer texts than the
 * client's description, but never one that the description forbids. */
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
 * code point, names, groups, | and the quantifiers * + ? {n} {n,} {,m} {n,m}. Comments begin with #. A rule ends with its
 * line, but groups and the lines after | and ::= go on, as does a line that begins with |. Texts and classes know the
 * escapes \n \r \t \\ \" \[ \] \- \^ \/ \xHH \uHHHH \UHHHHHHHH. The answer is a text of the rule `root`. */
int constraint_gbnf(const char *text, size_t len, struct grammar **ret, struct err *e) MUST_CHECK;

/* All of the answer matches a regular expression; regex.h says which expressions are known. */
int constraint_regex(const char *pattern, size_t len, struct grammar **ret,
		     struct err *e) MUST_CHECK;

/* Any JSON object; json_schema.h says how JSON is written. */
int constraint_json_object(struct grammar **ret, struct err *e) MUST_CHECK;

/* JSON that a schema accepts; json_schema.h says which keywords are known. */
int constraint_json_schema(const json_t *schema, struct grammar **ret, struct err *e) MUST_CHECK;
