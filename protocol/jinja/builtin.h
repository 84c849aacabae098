/*
 * Builtins: filters, tests, methods and global functions. Each is a row of a table beside its
 * function, and tables.h lists the tables. Adding one is a function and its row.
 *
 * A builtin of jinja2 or Python that no published chat template uses has no row; its name is in its
 * table's `refused`, so that a template that uses it is refused by that name.
 */
#pragma once

#include "protocol/jinja/value.h"

enum { BUILTIN_PARAMS = 4 };

enum builtin_kind {
	FILTER,
	TEST,
	GLOBAL,
	METHOD_STR,
	METHOD_LIST,
	METHOD_TUPLE,
	METHOD_RANGE,
	METHOD_DICT,
	METHOD_LOOP,
};

enum builtin_flags {
	BUILTIN_POSITIONAL = 1, /* takes no keyword arguments, as many methods of str */
	BUILTIN_RAW = 2,	/* looks at call->args itself */
	BUILTIN_LAZY = 4,	/* a generator: the function runs, and gives a list, when the first
				   item is asked for */
	BUILTIN_SAFE = 8,	/* a str it gives is as safe as the one it was given */
	BUILTIN_CHANGES = 16,	/* would change its list or dict: the sandbox refuses it */
};

/* One call, as the function sees it. */
struct call {
	const struct builtin *b;
	struct value self;		  /* on the left of the filter, test or method */
	struct value arg[BUILTIN_PARAMS]; /* V_MISSING: not given */
	struct args args;		  /* as they were given, for BUILTIN_RAW */
};

struct builtin {
	const char *name;
	struct value (*call)(struct render *r, const struct call *c); /* NULL: not supported */
	int64_t data;	/* the function's: several builtins may share one */
	unsigned flags; /* enum builtin_flags */
	int required;	/* how many of the parameters must be given */
	/* Names of the parameters. A letter and a colon before a name say what it takes: "s:" a str,
	 * "i:" an int, "S:" and "I:" these or None, which counts as not given. "x:" is refused:
	 * jinja2 has it, no published chat template uses it. */
	const char *params[BUILTIN_PARAMS];
};

struct value builtin_call(struct render *r, const struct builtin *b, struct value self,
			  const struct args *args);

/* The filter or test of that name; NULL, and an error, when there is none. */
const struct builtin *builtin_named(struct render *r, enum builtin_kind kind, struct value name);

/* A global function, or a method and the value it belongs to, as a value. type: "function" or
 * "method". */
struct value builtin_value(struct render *r, const char *type, const struct builtin *b,
			   struct value name, struct value self);
