/* What jinja_parse.c (statements) and jinja_expr.c (expressions) share. */
#ifndef PROTOCOL_TEXT_JINJA_PARSE_H
#define PROTOCOL_TEXT_JINJA_PARSE_H

#include "protocol/text/jinja_ast.h"

struct parser {
	struct template *t;
	const struct token *at; /* the current token; T_EOF is never passed */
	unsigned depth;
	unsigned loops;	    /* around this place, within the innermost function */
	unsigned for_depth; /* for tags around this place: `loop` may not be assigned in them */
	int rc;
	struct err *err;
};

/* Sets the error and p->rc. Every function that gives a node gives NULL once that is done. */
struct node *parse_fail(struct parser *p, int line, const char *fmt, ...) PRINTF(3, 4);

const char *parse_describe(const struct parser *p, const struct token *t, char out[64]);
bool parse_is_name(const struct token *t, const char *name);
bool parse_skip(struct parser *p, enum token_type type);
bool parse_skip_name(struct parser *p, const char *name);
const struct token *parse_expect(struct parser *p, enum token_type type);

/* One nesting level more; the caller takes it back from p->depth. */
bool parse_deeper(struct parser *p);
struct node *parse_new(struct parser *p, enum node_type type, int line);

/* ---- expressions ---- */

struct tuple_rules {
	const char *end;   /* a name that ends it too */
	bool no_condition; /* no inline if */
	bool explicit_end; /* in parentheses: may be empty */
	bool simple;	   /* names and literals only: a target */
	bool namespaces;   /* ... and namespace.attribute */
};

struct target_rules {
	const char *end;
	bool tuple;	   /* several names */
	bool name_only;	   /* one name token */
	bool namespaces;   /* namespace.attribute too */
	bool macro;	   /* the name of a macro: no variable of a loop */
	enum name_use use; /* NAME_LOAD stands for NAME_STORE */
};

struct node *parse_expression(struct parser *p);

/* One expression, or several with commas between them: a tuple. */
struct node *parse_tuple(struct parser *p, const struct tuple_rules *rules);
struct node *parse_target(struct parser *p, const struct target_rules *rules);

/* "| name(...) | ..." applied to n; n is NULL where a block is filtered. */
struct node *parse_filters(struct parser *p, struct node *n);
/* "name(...)" */
struct node *parse_filter_name(struct parser *p, struct node *n);

#endif
