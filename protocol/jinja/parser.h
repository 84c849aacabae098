/* Reading tokens, for expr.c (expressions) and parse.c (statements). */
#pragma once

#include "protocol/jinja/lex.h"

/* State of the parser. After a failure `at` is the last token, T_EOF, which no construct accepts. So every construct
 * and list ends there, and callers need no check after each step. Functions that return a node then return `spare`,
 * which may be written to and is never used. */
struct parser {
	struct reader *rd;
	struct node spare;
	const struct token *at; /* the current token; T_EOF is never passed */
	unsigned depth;
	unsigned loops; /* number of loops around this place, within the innermost macro */
	/* number of `for` tags around this place: `loop` may not be assigned in them */
	unsigned for_depth;
};

/* Keeps the error, goes to the last token and returns `spare`. */
struct node *parser_fail(struct parser *p, int line, const char *fmt, ...) PRINTF(3, 4);

/* The text of a token for errors: in `out`, or a constant. */
const char *parser_describe(const struct parser *p, const struct token *t, char out[64]);

bool parser_is_name(const struct parser *p, const char *name);
bool parser_skip(struct parser *p, int type);
bool parser_skip_name(struct parser *p, const char *name);

/* If the current token has this type, passes it and returns it. Otherwise fails and returns the last token, T_EOF. */
const struct token *parser_expect(struct parser *p, int type);

/* One nesting level more; the caller must decrease p->depth again, also after a failure. */
void parser_deeper(struct parser *p);

struct node *parser_node(struct parser *p, enum node_type type, int line);
