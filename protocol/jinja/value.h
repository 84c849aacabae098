/* Values of a chat template: Python's types in 16 bytes.
 *
 * A value is copied freely. Its pointer leads into the rendering's arena, the template's, or the given context.
 * Strings are a pointer and a length and never change once made; nor do lists and dicts, except while they are being
 * built. A namespace can be assigned to. */
#pragma once

#include <errno.h>

#include "protocol/jinja/render.h"

struct args;
struct iter;
struct loop;

enum value_type {
	/* no value: an argument not given, a variable without an assignment, or the result of a failure; never leaves
	 * the evaluator */
	V_MISSING = 0,
	V_UNDEFINED,
	V_NONE,
	V_BOOL,
	V_INT,
	V_FLOAT,
	V_STR,
	V_LIST, /* from here to V_RANGE: `list` holds the items */
	V_TUPLE,
	V_KEYS, /* dict.keys(), dict.values(), dict.items() */
	V_VALUES,
	V_ITEMS,
	V_RANGE,
	V_DICT,
	V_NAMESPACE,
	V_ITER, /* a generator: its items can be taken once */
	V_LOOP,
	V_CALLABLE, /* a function, a method, a macro */
};

struct value {
	uint8_t type; /* enum value_type */
	bool safe;    /* the filter `safe` made this V_STR: texts added to it are escaped */
	uint32_t len; /* V_STR: bytes */
	union {
		bool b;
		int64_t i;
		double f;
		const char *s; /* V_STR; no 0 behind it */
		struct list *list;
		struct dict *dict; /* V_DICT, V_NAMESPACE */
		struct iter *iter;
		struct loop *loop;
		const struct undefined *undefined;
		const struct callable *callable;
	};
};

struct list {
	size_t n, cap;
	struct value *v;
};

/* In the order of insertion; an index once there are more than a few entries. */
struct dict_entry {
	struct value key, value;
	uint64_t hash;
};

struct dict {
	size_t n, cap;
	struct dict_entry *entry;
	uint32_t *index; /* entry number + 1, 0 free; index_size is a power of two */
	size_t index_size;
};

/* Why a value is undefined. The error message is made from it when a template uses the value where it has to be
 * defined. */
struct undefined {
	const char *hint;  /* the message, or NULL */
	const char *owner; /* type name of the value whose member is missing; NULL: a variable is */
	struct value key;  /* name of the variable or member */
};

struct callable {
	const char *type; /* "function", "method", "macro" */
	const char *name;
	struct value (*call)(struct render *r, const struct callable *c, const struct args *args);
};

/* Arguments of a call. */
struct kwarg {
	struct value name, value;
};

struct args {
	size_t n, nkw;
	const struct value *v;
	const struct kwarg *kw;
};

/* ---- making values ---- */

#define NOTHING ((struct value){0})

/* Sets the error (EINVAL) and gives nothing. */
#define value_fail(r, ...) value_nothing(render_fail(r, EINVAL, __VA_ARGS__))

static inline struct value value_nothing(bool failed)
{
	return NOTHING;
}

static inline struct value value_none(void)
{
	return (struct value){.type = V_NONE};
}

static inline struct value value_bool(bool b)
{
	return (struct value){.type = V_BOOL, .b = b};
}

static inline struct value value_int(int64_t i)
{
	return (struct value){.type = V_INT, .i = i};
}

static inline struct value value_float(double f)
{
	return (struct value){.type = V_FLOAT, .f = f};
}

/* The bytes are *borrowed*: a literal, the template's, the context's or the arena's. */
static inline struct value value_str(const char *s, size_t len)
{
	return (struct value){.type = V_STR, .len = (uint32_t)len, .s = s};
}

static inline struct value value_of_list(enum value_type type, struct list *list)
{
	return (struct value){.type = list ? type : V_MISSING, .list = list};
}

/* The bytes [from, to) of a str, as safe as the whole str. */
static inline struct value value_piece(struct value v, size_t from, size_t to)
{
	return (struct value){V_STR, v.safe, (uint32_t)(to - from), {.s = v.s + from}};
}

struct value value_cstr(const char *s);
struct value value_copy(struct render *r, const char *s, size_t len);

/* Builds a string: size_t start = r->scratch.len; buf_append(&r->scratch, ...); value_take(r, start) copies the text
 * out and cuts the buffer back. Uses can nest. */
struct value value_take(struct render *r, size_t start);

/* Undefined: a variable, a member of `owner`, or with a message of its own (*borrowed*). */
struct value value_undefined_name(struct render *r, const char *name, size_t len);
struct value value_undefined_member(struct render *r, struct value owner, struct value key);
struct value value_undefined_hint(struct render *r, const char *hint);

/* A list of n items, all V_MISSING until filled; NULL after a failure. list_push appends an item; it does nothing
 * with NULL. */
struct list *list_new(struct render *r, size_t n);
void list_push(struct render *r, struct list *l, struct value v);

struct value value_pair(struct render *r, struct value a, struct value b);

/* ---- questions about any value ---- */

const char *value_type_name(struct value v);
bool value_truth(struct value v);
bool value_is_number(struct value v);		 /* int, float, bool */
bool value_is(struct value v, const char *text); /* a str with this text */

static inline bool value_has_items(struct value v)
{
	return v.type >= V_LIST && v.type <= V_RANGE;
}

/* A list or a tuple. */
static inline bool value_is_list(struct value v)
{
	return v.type == V_LIST || v.type == V_TUPLE;
}

/* The integer of an int or bool. */
bool value_index(struct value v, int64_t *ret);
double value_number(struct value v); /* of an int, float or bool */

/* len(); -1: the value has none. */
int64_t value_len(struct value v);

/* Python's `is`: the same object, except that equal texts and equal numbers count as the same. */
bool value_same(struct value a, struct value b);

/* If v is undefined, fails with its message. False: it is defined. */
bool value_fail_undefined(struct render *r, struct value v);

/* Fails: the operation `who` expected a value of another type than v. */
struct value value_fail_type(struct render *r, const char *who, const char *expected,
			     struct value v);
