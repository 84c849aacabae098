/* Reading tokens, for expr.c (expressions) and parse.c (statements). */
#pragma once

#include "protocol/jinja/lex.h"

/* After a failure `at` is the last token, and no tag and no expression waits for that one: each
 * construct ends without a check after each step, and lists end there. Functions that give
 * a node then give `spare`, which is of no use but can be written to. */
struct parser {
	struct reader *rd;
	struct node spare;
	const struct token *at; /* the current token; T_EOF is never passed */
	unsigned depth;
	unsigned loops;	    /* around this place, within the innermost macro */
	unsigned for_depth; /* for tags around this place: `loop` may not be assigned in them */
};

/* Sets the error and goes to the last token. */
struct node *parser_fail(struct parser *p, int line, const char *fmt, ...) PRINTF(3, 4);

/* A token as messages show it. */
const char *parser_describe(const struct parser *p, const struct token *t, char out[64]);

bool parser_is_name(const struct parser *p, const char *name);
bool parser_skip(struct parser *p, int type);
bool parser_skip_name(struct parser *p, const char *name);

/* Passes a token of this type and gives it; another one is an error, and given as it is. */
const struct token *parser_expect(struct parser *p, int type);

/* One nesting level more; the caller takes it back from p->depth, also after a failure. */
void parser_deeper(struct parser *p);

struct node *parser_node(struct parser *p, enum node_type type, int line);
