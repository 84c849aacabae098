/*
 * The tree of a template, and what the static pass found out about its names.
 *
 *     text --jinja_lex--> tokens --jinja_parse--> nodes --jinja_scope--> nodes with slots
 *
 * Everything is in the template's arena and does not change once jinja_scope is done: any number
 * of threads may walk it.
 *
 * Names. Jinja compiles a template to Python functions, in which each scope (the template, a loop's
 * body, a macro, a set block...) has variables of its own; which of them a name means is decided
 * when the template is compiled, not when it runs. jinja_scope makes the same decisions. A
 * `function` is what has an activation at run time: the template, a macro, a call block. A `frame`
 * is a scope within one; its variables are neighbouring slots of the activation, filled by `load`s
 * each time the scope is entered and cleared when it is left. An assignment in a loop's body thus
 * ends with the iteration, and a name that is assigned anywhere in a scope never means the
 * variable outside by accident.
 */
#ifndef PROTOCOL_TEXT_JINJA_AST_H
#define PROTOCOL_TEXT_JINJA_AST_H

#include "base/arena.h"
#include "protocol/text/jinja_value.h"

enum node_type {
	/* Expressions, and which members of a node they use. Lists are chained through next. */
	N_CONST,   /* value */
	N_NAME,	   /* name, op: enum name_use, where */
	N_NSREF,   /* name "." value (a str), where: target of an assignment only */
	N_LIST,	   /* list */
	N_TUPLE,   /* list */
	N_DICT,	   /* list: key, value, key, value... */
	N_NOT,	   /* a */
	N_NEG,	   /* a */
	N_POS,	   /* a */
	N_BINARY,  /* a, b, op: enum binary_op */
	N_AND,	   /* a, b */
	N_OR,	   /* a, b */
	N_COMPARE, /* a, list of N_OPERAND */
	N_OPERAND, /* op: enum compare_op, a */
	N_CONCAT,  /* list */
	N_COND,	   /* b if a else c (or NULL) */
	N_ATTR,	   /* a "." name */
	N_ITEM,	   /* a [ b ] */
	N_SLICE,   /* a : b : c, each or NULL; only as b of N_ITEM */
	N_CALL, /* a, arguments: list, list2 of N_KEYWORD, b: *args or NULL, c: **kwargs or NULL */
	N_KEYWORD, /* name = a */
	N_FILTER,  /* a (NULL in a filter block) | name, arguments as N_CALL, builtin */
	N_TEST,	   /* a is name, arguments as N_CALL, builtin */

	/* Statements */
	N_DATA,		/* value */
	N_OUTPUT,	/* a */
	N_IF,		/* a: condition, list: body, list2: else, b: chain of N_IF for elif */
	N_FOR,		/* a: target, b: iterable, c: filter or NULL, list: body, list2: else */
	N_SET,		/* a: target, b: value */
	N_SET_BLOCK,	/* a: target, b: filter or NULL, list: body */
	N_MACRO,	/* name, function, list: body, where */
	N_CALL_BLOCK,	/* a: call, or NULL for {% generation %}; function, list: body */
	N_FILTER_BLOCK, /* a: filter, list: body */
	N_WITH,		/* list2: target, value, target, value...; list: body */
	N_BREAK,
	N_CONTINUE,
};

enum name_use { NAME_LOAD, NAME_STORE, NAME_PARAM };

enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

/* A variable: `hops` activations out, number `slot` there. */
struct variable {
	unsigned hops, slot;
};

/* What fills a slot when its frame is entered; slots without a load begin as missing. */
struct load {
	unsigned slot;
	bool from_context;     /* else from `outer`, a variable of a scope around */
	unsigned context_name; /* index into template's context names */
	struct variable outer;
};

struct frame {
	unsigned first, n; /* slots */
	unsigned nloads;
	const struct load *loads;
};

/* The template itself, a macro, or the body of a call block. */
struct function {
	const char *name;
	unsigned nslots;
	struct frame frame;
	struct node *params;   /* chain of N_NAME; their slots are the frame's first ones */
	struct node *defaults; /* chain, of the last ndefaults parameters */
	unsigned nparams, ndefaults;
	bool caller, kwargs, varargs; /* body uses these names: more parameters, in this order */
	bool explicit_caller;	      /* ... or `caller` is among the params */
};

struct node {
	enum node_type type;
	int op;
	int line;
	unsigned height; /* of the expression below: bounds recursion */
	const char *name;
	size_t name_len;
	struct value value;
	struct node *next, *a, *b, *c, *list, *list2;
	struct variable where;
	const struct builtin *builtin; /* N_FILTER, N_TEST: NULL when there is no such one */
	struct function *function;
	struct frame *frame;	  /* N_FOR: body; N_SET_BLOCK, N_FILTER_BLOCK, N_WITH */
	struct frame *test_frame; /* N_FOR */
	struct frame *else_frame; /* N_FOR */
	bool extended;		  /* N_FOR: the body uses `loop` (the frame's first slot) */
};

struct text_ref {
	const char *s;
	size_t len;
};

struct template
{
	const char *name;
	struct arena arena;
	struct node *body; /* chain of statements */
	struct function root;
	struct text_ref *context_names; /* looked up in the context once a rendering */
	unsigned ncontext_names;
};

enum {
	TEMPLATE_TEXT_MAX = 1 << 20,
	TEMPLATE_ARENA_MAX = 512 << 20, /* a node takes some 200 bytes, a byte of text may be one */
	TEMPLATE_NESTING = 100,		/* tags in tags, parentheses in parentheses */
	TEMPLATE_HEIGHT = 400,		/* a + b + c ... */
};

/* Fills *e as "template NAME, line N: ..." and returns -EINVAL. */
int jinja_syntax_error(const char *name, int line, struct err *e, const char *fmt, ...)
	PRINTF(4, 5);

/* ---- tokens ---- */

enum token_type {
	T_EOF,
	T_DATA,
	T_BLOCK_BEGIN,
	T_BLOCK_END,
	T_VARIABLE_BEGIN,
	T_VARIABLE_END,
	T_NAME,
	T_STRING,
	T_INT,
	T_FLOAT,
	T_ADD,
	T_SUB,
	T_MUL,
	T_DIV,
	T_FLOORDIV,
	T_MOD,
	T_POW,
	T_TILDE,
	T_EQ,
	T_NE,
	T_LT,
	T_LE,
	T_GT,
	T_GE,
	T_ASSIGN,
	T_DOT,
	T_COLON,
	T_PIPE,
	T_COMMA,
	T_SEMICOLON,
	T_LPAREN,
	T_RPAREN,
	T_LBRACKET,
	T_RBRACKET,
	T_LBRACE,
	T_RBRACE,
};

struct token {
	enum token_type type;
	int line;
	const char *s; /* T_DATA, T_NAME, T_STRING; also the spelling of T_INT and T_FLOAT */
	size_t len;
	int64_t i;
	double f;
};

/* Cuts a text into tokens, the last being T_EOF. *ret is *new* (free it); its strings are in the
 * arena or in text, which must live as long. -EINVAL, -ENOMEM. */
int jinja_lex(struct arena *a, const char *name, const char *text, size_t len, struct token **ret,
	      struct err *e) MUST_CHECK;

/* Builds t->body from tokens. */
int jinja_parse(struct template *t, const struct token *tokens, struct err *e) MUST_CHECK;

/* Resolves names, checks filters and tests, fills the functions and frames. */
int jinja_scope(struct template *t, struct err *e) MUST_CHECK;

#endif
