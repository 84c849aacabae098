/* The front ends that have files of their own, for constraint.c. Each takes an empty builder, makes expressions with
 * it, and the *new* grammar of them. Errors as in constraint.h. */
#pragma once

#include "protocol/grammar/constraint.h"

int gbnf_grammar(struct grammar_builder *b, const char *text, size_t len, struct grammar **ret,
		 struct err *e) MUST_CHECK;
int regex_grammar(struct grammar_builder *b, const char *pattern, size_t len, struct grammar **ret,
		  struct err *e) MUST_CHECK;
int json_schema_grammar(struct grammar_builder *b, const json_t *schema, struct grammar **ret,
			struct err *e) MUST_CHECK;
