/* Values by JSON schemas as parts of a larger grammar, such as the arguments of a tool call. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "protocol/grammar/grammar.h"

struct schemas;

/* Makes a *new* object for the schemas inside `root`, which may refer to each other and to root. Builder and root are
 * borrowed until schema_part_end. -ENOMEM. */
int schema_part_new(struct grammar_builder *b, const json_t *root, struct schemas **ret,
		    struct err *e) MUST_CHECK;

/* From here on the strings of JSON have '<' only as \u003c, so that no tag is in them. Names of members that the schema
 * does not list have none. It is called before the first expression. */
void schema_part_escape_less(struct schemas *s);

/* These return an expression of the builder for values that a schema, root or one inside it, accepts (constraint.h).
 * schema_part_json: written as JSON. schema_part_others: the same without strings. schema_part_raw: the strings alone,
 * as they are, without quotes and escapes; of these the expression `any` has all that can be written, and strings that
 * the schema limits have no '<', backslash, quotation mark or control character; those with a maxLength have at most
 * `longest` code points, or minLength if that is more. If the object has failed they return the empty text. */
uint32_t schema_part_json(struct schemas *s, const json_t *schema);
uint32_t schema_part_others(struct schemas *s, const json_t *schema);
uint32_t schema_part_raw(struct schemas *s, const json_t *schema, uint32_t any, uint32_t longest);

/* Returns an expression for the texts of x that a regular expression does not match as a whole. x has to be regular
 * (language.h). */
uint32_t schema_part_without(struct schemas *s, uint32_t x, const char *pattern);

/* Returns whether it is certain that a schema accepts a value. */
bool schema_part_accepts(struct schemas *s, const json_t *schema, const json_t *value);

/* Defines the rules of the expressions, and frees the object. 0, or an error of constraint_json_schema: then the
 * expressions are of no use. */
int schema_part_end(struct schemas *s) MUST_CHECK;
