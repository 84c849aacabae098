/*
 * Functions that come with the engine: filters, tests, methods of str, dict and list, and the
 * global functions. One shape for all of them, so that arguments are bound in one place.
 *
 * A builtin names its parameters, or takes its arguments raw. Bound parameters that were not given
 * are V_MISSING.
 */
#ifndef PROTOCOL_TEXT_JINJA_BUILTIN_H
#define PROTOCOL_TEXT_JINJA_BUILTIN_H

#include "protocol/text/jinja_value.h"

enum { BUILTIN_PARAMS = 5 };

struct kwarg {
	const char *name;
	size_t len;
	struct value value;
};

struct args {
	size_t n, nkw;
	const struct value *v;
	const struct kwarg *kw;
};

struct builtin {
	const char *name;
	/* One of the two. self: the value on the left of the filter, test or method. */
	int (*bound)(struct render *r, const struct value *self, const struct value *arg,
		     struct value *ret);
	int (*raw)(struct render *r, const struct value *self, const struct args *args,
		   struct value *ret);
	int required; /* how many of the parameters must be given */
	const char *params[BUILTIN_PARAMS];
	bool positional; /* takes no keywords, as many methods of str */
};

int builtin_call(struct render *r, const struct builtin *b, const struct value *self,
		 const struct args *args, struct value *ret) MUST_CHECK;

/* NULL when there is none of that name. */
const struct builtin *filter_find(const char *name, size_t len);
const struct builtin *test_find(const char *name, size_t len);
const struct builtin *global_find(const char *name, size_t len);
const struct builtin *method_find(enum value_type type, const char *name, size_t len);

/* The name of a method that would change its list or dict: the sandbox refuses it. */
bool method_is_unsafe(enum value_type type, const char *name, size_t len);

const struct builtin *builtin_search(const struct builtin *table, size_t n, const char *name,
				     size_t len);

/* Applies a filter or test given by a value (map, select): its name must be a str. */
int builtin_call_filter(struct render *r, const struct value *name, const struct value *self,
			const struct args *args, struct value *ret) MUST_CHECK;
int builtin_call_test(struct render *r, const struct value *name, const struct value *self,
		      const struct args *args, bool *ret) MUST_CHECK;

/* ---- what several of them need ---- */

/* obj.name and obj[key], as the sandboxed environment looks them up: V_UNDEFINED when neither an
 * attribute nor an item is there. */
int value_getattr(struct render *r, const struct value *obj, const char *name, size_t len,
		  struct value *ret) MUST_CHECK;
int value_getitem(struct render *r, const struct value *obj, const struct value *key,
		  struct value *ret) MUST_CHECK;

/* Only attributes, no items: 1, or 0 when there is none. */
int value_attribute(struct render *r, const struct value *obj, const char *name, size_t len,
		    struct value *ret) MUST_CHECK;

enum binary_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };

int value_binary(struct render *r, enum binary_op op, const struct value *a, const struct value *b,
		 struct value *ret) MUST_CHECK;
int value_negate(struct render *r, const struct value *v, bool minus, struct value *ret) MUST_CHECK;

/* "..." % args */
int value_format_percent(struct render *r, const struct value *format, const struct value *args,
			 struct value *ret) MUST_CHECK;

/* "...".format(...) */
int value_format_braces(struct render *r, const struct value *format, const struct args *args,
			struct value *ret) MUST_CHECK;

/* Calls any value: a function, method, macro. */
int value_call(struct render *r, const struct value *callee, const struct args *args,
	       struct value *ret) MUST_CHECK;

/* Methods of str that filters share. chars: the characters to strip, or not a str for white space.
 * count: at most so many, all when negative. */
enum strip_side { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };

int text_strip(struct render *r, const struct value *v, const struct value *chars,
	       enum strip_side side, struct value *ret) MUST_CHECK;
int text_replace(struct render *r, const struct value *v, const struct value *old,
		 const struct value *new, int64_t count, struct value *ret) MUST_CHECK;
int text_center(struct render *r, const struct value *v, int64_t width, const char *fill,
		size_t fill_len, struct value *ret) MUST_CHECK;
bool text_is_case(const struct value *v, bool upper); /* isupper(), islower() */

/* markupsafe.escape */
int value_escape(struct render *r, const struct value *v, struct value *ret) MUST_CHECK;

/* An argument that must be an int (or bool), or a str. */
int arg_int(struct render *r, const char *who, const struct value *v, int64_t *ret) MUST_CHECK;
int arg_str(struct render *r, const char *who, const struct value *v) MUST_CHECK;

#endif
