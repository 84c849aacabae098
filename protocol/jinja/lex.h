/* Tokens of a template. */
#pragma once

#include "protocol/jinja/ast.h"

/* An operator of one character is its own type: '+', '('. */
enum token_type {
	T_EOF = 256,
	T_DATA,
	T_BLOCK_BEGIN,
	T_BLOCK_END,
	T_VARIABLE_BEGIN,
	T_VARIABLE_END,
	T_NAME,
	T_STRING,
	T_INT,
	T_FLOAT,
	T_FLOORDIV,
	T_POW,
	T_EQ,
	T_NE,
	T_LE,
	T_GE,
};

struct token {
	int type; /* a character, or enum token_type */
	int line;
	struct value value; /* T_DATA, T_NAME, T_STRING: the text; T_INT, T_FLOAT: the number */
};

/* Cuts a text into tokens and returns them. The last one is T_EOF. The tokens are in the scratch arena, their strings
 * in the template's arena. After a failure (rd->rc) they are of no use. */
const struct token *lex(struct reader *rd, const char *text, size_t len);
