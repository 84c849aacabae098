/* The tables of builtins, each beside its functions, and the search in them. */
#pragma once

#include "protocol/jinja/builtin.h"

/* `refused` and `changes` are lists of names with one space between two names. */
struct builtin_table {
	enum builtin_kind kind;
	const struct builtin *rows;
	size_t n;
	const char *refused; /* names without a row: not supported */
	const char *changes; /* methods that change their list or dict: refused by the sandbox */
};

extern const struct builtin_table str_methods, text_filters;		      /* strings.c */
extern const struct builtin_table value_filters;			      /* filters.c */
extern const struct builtin_table item_filters;				      /* items.c */
extern const struct builtin_table value_tests;				      /* tests.c */
extern const struct builtin_table list_methods, tuple_methods, range_methods; /* methods.c */
extern const struct builtin_table dict_methods, loop_methods;		      /* methods.c */
extern const struct builtin_table global_functions;			      /* globals.c */

/* Returns the row of a name; NULL: the name is unknown. For a name of `refused` or `changes` it returns a row without a
 * function, which is in no table. */
const struct builtin *builtin_find(enum builtin_kind kind, const char *name, size_t len);
