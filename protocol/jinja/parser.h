/* Reading tokens, for expr.c (expressions) and parse.c (statements). */
#pragma once

#include "protocol/jinja/lex.h"

/* State of the parser. After a failure `at` is the last token, T_EOF, which no construct accepts. So every construct
 * and list ends at it, and callers need no check after each step. A new node is then `spare`, which may be written to;
 * the tree is not used after a failure. */
struct parser {
	struct reader *rd;
	struct node spare;
	const struct token *at; /* the current token; never one behind T_EOF */
	unsigned depth;
	/* number of loop bodies around the current token, within the innermost macro or generation block */
	unsigned loops;
	/* number of `for` blocks around the current token, each from its target to its endfor; inside such a block, set
	 * and for may not assign `loop` */
	unsigned for_depth;
};

/* Keeps the error, if it is the first, goes to the last token and returns `spare`. */
struct node *parser_fail(struct parser *p, int line, const char *fmt, ...) PRINTF(3, 4);

/* Returns the text by which errors name a token. The text is in `out` or a constant. */
const char *parser_describe(const struct parser *p, const struct token *t, char out[64]);

bool parser_is_name(const struct parser *p, const char *name);
bool parser_skip(struct parser *p, int type);
bool parser_skip_name(struct parser *p, const char *name);

/* If the current token has this type, returns it and goes on to the next one. Otherwise fails and returns the last
 * token, T_EOF. */
const struct token *parser_expect(struct parser *p, int type);

/* Goes one nesting level deeper, or fails. The caller must decrease p->depth again, also after a failure. */
void parser_deeper(struct parser *p);

struct node *parser_node(struct parser *p, enum node_type type, int line);
