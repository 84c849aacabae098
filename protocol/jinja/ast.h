/* The tree of a template, and the places of its variables.
 *
 *     text --lex--> tokens --parse--> nodes --scope--> nodes that know their variables
 *
 * The nodes are in the template's arena and do not change after template_parse: any number of threads may walk them.
 *
 * Names. Jinja compiles a template to Python functions, in which each scope (the template, a loop's body, a macro, a
 * set block...) has variables of its own. Jinja decides which variable a name means when it compiles the template, not
 * when the template runs. scope.c makes the same decisions: a name that is assigned anywhere in a scope means the
 * scope's own variable everywhere in the scope.
 *
 * Each time a `function` (the template or a macro) runs, it gets an activation: an array of values, one for each of its
 * variables. The place of a variable in this array is its slot. A `frame` is one scope of a function: its variables
 * have neighbouring slots. Each time the scope is entered, its slots are cleared, and some are filled (`slot_load`). So
 * a variable that a loop's body assigns keeps its value until the end of the iteration only. */
#pragma once

#include "protocol/jinja/value.h"

enum node_type {
	/* Kinds of expressions, with the members of a node that they use. Lists are chained through next. */
	N_CONST,    /* value */
	N_NAME,	    /* name, op: enum name_use, where */
	N_NSREF,    /* name "." value (a str), where; only as the target of an assignment */
	N_LIST,	    /* list */
	N_TUPLE,    /* list */
	N_DICT,	    /* list: key, value, key, value... */
	N_NOT,	    /* a */
	N_NEG,	    /* a */
	N_POS,	    /* a */
	N_BINARY,   /* a, b, op: enum binary_op */
	N_AND,	    /* a, b */
	N_OR,	    /* a, b */
	N_COMPARE,  /* a, b, op: enum compare_op */
	N_CONCAT,   /* a, b */
	N_COND,	    /* b if a else c; c may be NULL */
	N_ATTR,	    /* a "." name, op: a bit 1 << k for each enum builtin_kind k with this method */
	N_ITEM,	    /* a [ b ] */
	N_SLICE,    /* a : b : c, each may be NULL; only as b of N_ITEM */
	N_CALL,	    /* a(list, list2): the arguments by position, and the N_KEYWORDs */
	N_KEYWORD,  /* name = a */
	N_FILTER,   /* a | name, arguments as N_CALL, builtin */
	N_TEST,	    /* a is name, arguments as N_CALL, builtin */
	N_CAPTURED, /* the text of the block to which filters are applied */

	/* Statements */
	N_DATA,		/* value */
	N_OUTPUT,	/* a */
	N_IF,		/* a: condition, list: body, list2: else, b: chain of N_IF for elif */
	N_FOR,		/* a: target, b: iterable, c: test or NULL, list: body, list2: else */
	N_SET,		/* a: target, b: value */
	N_SET_BLOCK,	/* a: target, b: filters over N_CAPTURED or NULL, list: body */
	N_FILTER_BLOCK, /* b: filters over N_CAPTURED, list: body */
	N_GENERATION,	/* list: body */
	N_MACRO,	/* name, function, list: body, where */
	N_BREAK,
	N_CONTINUE,
};

enum name_use { NAME_LOAD, NAME_STORE, NAME_PARAM };

enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

/* A variable: slot number `slot` of the activation that is `hops` steps outwards from the current one. A step goes from
 * a macro to the function in which it was defined. */
struct variable {
	unsigned hops, slot;
};

/* Gives a slot its first value when its frame is entered. A slot without a slot_load begins as V_MISSING. */
struct slot_load {
	unsigned slot;
	bool from_context;     /* else from `outer`, a variable of a scope around */
	unsigned context_name; /* index into context_names of struct template */
	struct variable outer;
};

struct frame {
	unsigned first, n; /* its slots are [first, first + n) */
	unsigned nloads;
	const struct slot_load *loads;
};

/* The template itself, or a macro. */
struct function {
	const char *name;
	unsigned nslots;
	struct frame frame;
	struct node *params;   /* chain of N_NAME; their slots are the frame's first ones */
	struct node *defaults; /* chain of expressions, for the last ndefaults parameters */
	unsigned nparams, ndefaults;
};

struct node {
	enum node_type type;
	int op;
	int line;
	unsigned height; /* levels of expressions below; bounded, because evaluation recurses */
	struct value name;
	struct value value;
	struct node *next, *a, *b, *c, *list, *list2;
	struct variable where;
	const struct builtin *builtin; /* N_FILTER, N_TEST; NULL: the name is unknown */
	struct function *function;
	struct frame frame; /* of the body of N_FOR, N_SET_BLOCK, N_FILTER_BLOCK or N_GENERATION */
	struct frame test_frame; /* N_FOR */
	struct frame else_frame; /* N_FOR */
};

struct template
{
	const char *name;
	const char *text; /* [len] */
	size_t len;
	struct arena arena;
	struct node *body; /* chain of statements */
	struct function root;
	/* the names of the variables that the template takes from outside; each rendering looks them up once */
	struct value *context_names;
	unsigned ncontext_names;
};

enum {
	/* most bytes of the tree: a node takes about 200, and each byte of a template may become a node */
	TEMPLATE_ARENA_MAX = 512 << 20,
	TEMPLATE_NESTING = 100, /* most levels of tags in tags, parentheses in parentheses */
	/* most height of an expression: each operator of a + b + c ... adds 1 */
	TEMPLATE_HEIGHT = 400,
};

/* State of reading a template. The first error is kept, as in a rendering (render.h). */
struct reader {
	struct template *t;
	struct arena scratch; /* dropped once the template is read */
	int rc;		      /* 0, or the negative errno of the first failure */
	struct err *err;
};

/* Keeps "template NAME, line N: text" as the error (EINVAL), if it is the first. Returns false. */
bool reader_fail(struct reader *rd, int line, const char *fmt, ...) PRINTF(3, 4);

/* Returns zeroed memory for n items of `size` bytes, *new* in the template's arena; NULL after a failure. */
void *reader_alloc(struct reader *rd, size_t n, size_t size) MUST_CHECK;

/* Makes room for one more item in an array of n items of `size` bytes. Returns the array, or a larger copy of it in the
 * scratch arena, and sets *cap to the number of items that fit. NULL after a failure. */
void *reader_grow(struct reader *rd, void *array, size_t n, size_t *cap, size_t size) MUST_CHECK;
