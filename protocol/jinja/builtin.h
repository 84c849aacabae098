/* Builtins: filters, tests, methods and global functions. Each has a row of a table, and a function in the same file,
 * which several rows may share. tables.h lists the tables. To add a builtin, write its function and its row.
 *
 * A builtin of jinja2 or Python that is refused, because no published chat template uses it or because the sandbox does
 * not allow it, has no row. Its name is in a list of its table, `refused` or `changes` (tables.h), so that the error
 * can say why the builtin is refused. */
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
	BUILTIN_POSITIONAL = 1, /* takes no keyword arguments, like many methods of str */
	BUILTIN_RAW = 2,	/* the function reads `args` itself; `params` is not used */
	/* its value is a generator: the function runs when the first item is wanted, and returns a list of the items */
	BUILTIN_LAZY = 4,
	BUILTIN_SAFE = 8,     /* a str that it returns is `safe` (value.h) if `self` is */
	BUILTIN_CHANGES = 16, /* would change its list or dict: the sandbox refuses it */
};

/* One call of a builtin, as its function gets it. */
struct builtin_call {
	const struct builtin *b;
	struct value self;		  /* the value left of a filter, test or method */
	struct value arg[BUILTIN_PARAMS]; /* V_MISSING: not given */
	struct args args;		  /* all arguments as given, for BUILTIN_RAW */
};

struct builtin {
	const char *name;
	struct value (*call)(struct render *r,
			     const struct builtin_call *c); /* NULL: not supported */
	int64_t data;	/* a parameter for `call`; that function's comment explains it */
	unsigned flags; /* enum builtin_flags */
	int required;	/* so many of the parameters, from the first on, must be given */
	/* Names of the parameters. A letter and a colon before a name give its type: "s:" a str, "i:" an int or bool,
	 * "S:" and "I:" the same or None, which counts as not given. An argument for an "x:" parameter is refused:
	 * jinja2 or Python has the parameter, but no published chat template uses it. */
	const char *params[BUILTIN_PARAMS];
};

/* Calls b and returns its value. */
struct value builtin_call(struct render *r, const struct builtin *b, struct value self,
			  const struct args *args);

/* Returns the filter or test of that name. NULL after a failure. Fails if `name` is no str, or if there is no such
 * filter or test, or if it is not supported. */
const struct builtin *builtin_named(struct render *r, enum builtin_kind kind, struct value name);

/* Makes a V_CALLABLE of a global function, or of a method and its object `self`. type: "function" or "method". */
struct value builtin_value(struct render *r, const char *type, const struct builtin *b,
			   struct value name, struct value self);
