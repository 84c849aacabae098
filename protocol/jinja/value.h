/* Values of a chat template: Python's types in 16 bytes.
 *
 * A value is copied freely. A pointer in it leads into the arena of the rendering or of the template, into the context
 * of template_render, or to a literal. Strings are a pointer and a length. Strings, lists and dicts do not change once
 * they are built. The attributes of a namespace do. */
#pragma once

#include <errno.h>

#include "protocol/jinja/render.h"

struct args;
struct iter;
struct loop;

enum value_type {
	/* no value: an argument not given, a variable without an assignment, or the result of a failure; an expression
	 * has it only after a failure */
	V_MISSING = 0,
	V_UNDEFINED,
	V_NONE,
	V_BOOL,
	V_INT,
	V_FLOAT,
	V_STR,
	V_LIST, /* from here to V_RANGE: `list` holds the items */
	V_TUPLE,
	V_KEYS,	  /* dict.keys() */
	V_VALUES, /* dict.values() */
	V_ITEMS,  /* dict.items() */
	V_RANGE,
	V_DICT,
	V_NAMESPACE,
	V_ITER, /* a generator: its items can be taken once */
	V_LOOP,
	V_CALLABLE, /* a function, a method, a macro */
};

struct value {
	uint8_t type; /* enum value_type */
	/* V_STR: the filter `safe` or `escape` made this text, or it was made from such a text. Texts that are added to
	 * a safe text are escaped. */
	bool safe;
	uint32_t len; /* V_STR: bytes */
	union {
		bool b;
		int64_t i;
		double f;
		const char *s; /* V_STR; need not have a 0 behind it */
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

struct dict_entry {
	struct value key, value;
	uint64_t hash; /* of the key */
};

/* Entries are in the order of insertion. A dict with room for more than 8 entries also has an index: a hash table that
 * holds the numbers of the entries. */
struct dict {
	size_t n, cap;
	struct dict_entry *entry;
	uint32_t *index;   /* number of an entry + 1; 0: this place is free */
	size_t index_size; /* a power of two; 0: there is no index */
};

/* Why a value is undefined. When a template uses the value where a defined one is needed, the error message is made
 * from this struct. */
struct undefined {
	const char *hint;  /* the message, or NULL */
	const char *owner; /* type name of the value that lacks `key`; NULL: key names a variable */
	struct value key;  /* name of the variable or member */
};

struct callable {
	const char *type; /* "function", "method", "macro" */
	const char *name;
	struct value (*call)(struct render *r, const struct callable *c, const struct args *args);
};

/* A keyword argument. */
struct kwarg {
	struct value name, value;
};

/* The arguments of a call: n by position, nkw by keyword. */
struct args {
	size_t n, nkw;
	const struct value *v;
	const struct kwarg *kw;
};

/* ---- making values ---- */

#define NOTHING ((struct value){0})

/* Makes the rendering fail (EINVAL) with a message, which is given as to printf. The macro's value is NOTHING. */
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

/* Makes a str of bytes that are *borrowed* (from a literal, the template, the context or the rendering's arena). */
static inline struct value value_str(const char *s, size_t len)
{
	return (struct value){.type = V_STR, .len = (uint32_t)len, .s = s};
}

/* Returns a value of this type with `list` as its items; NOTHING if `list` is NULL. */
static inline struct value value_of_list(enum value_type type, struct list *list)
{
	return (struct value){.type = list ? type : V_MISSING, .list = list};
}

/* Returns the bytes [from, to) of a str as a str, which is safe if the whole str is. */
static inline struct value value_piece(struct value v, size_t from, size_t to)
{
	return (struct value){V_STR, v.safe, (uint32_t)(to - from), {.s = v.s + from}};
}

struct value value_cstr(const char *s);
struct value value_copy(struct render *r, const char *s, size_t len);

/* Returns a copy of the text that r->scratch has from `start` on, and cuts the buffer back to `start`; NOTHING after a
 * failure. A string is built so: size_t start = r->scratch.len; buf_append(&r->scratch, ...); value_take(r, start).
 * Before value_take, other strings may be built in the same way. */
struct value value_take(struct render *r, size_t start);

/* Make undefined values: value_undefined_name for a variable, value_undefined_member for a member that `owner` does not
 * have. The value of value_undefined_hint has `hint` as its error message (*borrowed*). */
struct value value_undefined_name(struct render *r, const char *name, size_t len);
struct value value_undefined_member(struct render *r, struct value owner, struct value key);
struct value value_undefined_hint(struct render *r, const char *hint);

/* list_new returns a *new* list of n items, which are V_MISSING at first; NULL after a failure. list_push appends an
 * item; if l is NULL it does nothing. */
struct list *list_new(struct render *r, size_t n);
void list_push(struct render *r, struct list *l, struct value v);

/* Returns the tuple (a, b). */
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

/* Sets *ret to the integer of an int or bool. False: v is of another type. */
bool value_index(struct value v, int64_t *ret);
double value_number(struct value v); /* of an int, float or bool */

/* Returns Python's len(v); -1: v has no length. */
int64_t value_len(struct value v);

/* Returns Python's `a is b`: whether a and b are the same object. Texts with the same bytes count as the same object,
 * and so do numbers of one type with the same bits. */
bool value_same(struct value a, struct value b);

/* If v is undefined, fails with its message and returns true. False: v is defined. */
bool value_fail_undefined(struct render *r, struct value v);

/* Fails with a message: the operation `who` expected `expected` ("a string"), and v is of another type. If v is
 * undefined, fails with v's own message instead. Returns NOTHING. */
struct value value_fail_type(struct render *r, const char *who, const char *expected,
			     struct value v);
