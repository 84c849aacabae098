/* Regular expressions as expressions of a grammar: those of ECMAScript that describe regular languages.
 *
 * Known are literals, the dot, classes, groups (also with names, and (?:...)), alternatives, greedy and lazy
 * quantifiers, ^ and $ at the beginning and the end of the whole or of an alternative there, and the escapes
 * \d \D \s \S \w \W \p{..} \P{..} (general categories) \t \n \r \v \f \0 \cX \xHH \uHHHH \u{H} and those of
 * punctuation. Lookaround, references to groups, word boundaries and flags are refused by name. The dot is any code
 * point but \n, \r, U+2028 and U+2029, and classes are those on which dialects agree (code_points.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "protocol/grammar/grammar.h"

struct regex_form {
	bool search; /* the expression may match anywhere in the text; else it has to match all of it */
	/* The text is the inside of a JSON string. Code points that JSON has to escape are escaped in the shortest way,
	 * all others are not escaped. */
	bool json;
	bool escape_less; /* with json: '<' is escaped, too, as \u003c */
	/* All texts that match in any dialect. Else those that match in every dialect. */
	bool most;
};

/* The lengths of the matching texts, in code points. max GRAMMAR_NO_LIMIT: there is no longest one. */
struct regex_lengths {
	uint32_t min, max;
};

/* *ret is an expression of b for the pattern, *ret_lengths the lengths of its texts. -EINVAL, -PROBLEM_UNSUPPORTED,
 * -E2BIG or -ENOMEM, with a sentence. */
int regex_expression(struct grammar_builder *b, const char *pattern, size_t len,
		     struct regex_form form, uint32_t *ret, struct regex_lengths *ret_lengths,
		     struct err *e) MUST_CHECK;

/* Returns an expression of b for one code point of the set, as the form says (json, escape_less). */
struct code_points;
uint32_t regex_class(struct grammar_builder *b, const struct code_points *set,
		     struct regex_form form);

/* Returns an expression of b for a text in UTF-8, as the inside of a JSON string. */
uint32_t regex_text(struct grammar_builder *b, const char *text, size_t len, bool escape_less);
