/*
 * Values as a chat template sees them, Python's types in 24 bytes, and the one rendering they
 * live in.
 *
 * Everything a rendering makes is in its arena and dropped whole. Strings are a pointer and a
 * length, never changed once made. Lists and dicts of the context stay jansson's: a value with
 * `json` set borrows the node and looks into it when asked, so that a conversation is never copied.
 *
 * Nothing here trusts the template or the messages. Each call that loops charges steps, each that
 * recurses counts depth, each that allocates is bounded by the arena. A function that returns int
 * gives 0 (or what it says) and a negative errno once the error is set; an error always ends the
 * rendering, there is nothing to undo.
 */
#ifndef PROTOCOL_TEXT_JINJA_VALUE_H
#define PROTOCOL_TEXT_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct builtin;
struct iter;
struct loop;
struct macro;
struct render;

enum value_type {
	V_MISSING = 0, /* a variable nothing was assigned to; never leaves the evaluator */
	V_UNDEFINED,
	V_NONE,
	V_BOOL,
	V_INT,
	V_FLOAT,
	V_STR,
	V_LIST,
	V_TUPLE,
	V_DICT,
	V_RANGE,
	V_VIEW, /* dict.keys(), .values(), .items() */
	V_ITER, /* a generator: can be walked once */
	V_NAMESPACE,
	V_LOOP,
	V_MACRO,
	V_FUNCTION, /* a global such as range */
	V_METHOD,   /* a builtin with the value it belongs to */
	V_CYCLER,
	V_JOINER,
};

struct value {
	enum value_type type;
	bool json; /* V_LIST, V_DICT: `j` holds, not `list` or `dict` */
	bool safe; /* V_STR: markupsafe.Markup, escapes what it is joined with */
	union {
		bool b;
		int64_t i;
		double f;
		struct {
			const char *s;
			size_t len;
		};
		struct list *list;
		struct dict *dict; /* V_DICT, V_NAMESPACE */
		const json_t *j;
		const struct undefined *undefined;
		const struct range *range;
		const struct view *view;
		struct iter *iter;
		struct loop *loop;
		struct macro *macro;
		const struct builtin *function;
		const struct method *method;
		struct cycler *cycler;
		struct joiner *joiner;
	};
};

struct list {
	size_t n, cap;
	struct value *v;
	bool group; /* a pair made by groupby: has .grouper and .list */
};

/* Insertion order; an index once there are more than a few entries. */
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

struct dict_cursor {
	size_t pos;
	void *json_iter;
	bool started;
};

struct range {
	int64_t start, stop, step;
	size_t n;
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct view {
	enum view_kind kind;
	struct value dict;
};

/* Why a value is undefined: what a message says once something is done with it. */
struct undefined {
	enum { UNDEFINED_NAME, UNDEFINED_MEMBER, UNDEFINED_HINT, UNDEFINED_UNSAFE } why;
	const char *name; /* variable or attribute, or the whole hint; NULL when `key` holds */
	size_t name_len;
	const char *owner; /* type name of what was looked into */
	struct value key;
};

struct method {
	const struct builtin *builtin;
	struct value self;
};

struct cycler {
	size_t n, pos;
	struct value *v;
};

struct joiner {
	struct value separator;
	bool used;
};

/* One item after another. next: 1 and *ret, 0 at the end, negative errno. */
struct iter {
	int (*next)(struct render *r, struct iter *it, struct value *ret);
	struct value from; /* what is walked */
	struct dict_cursor cursor;
	struct iter *inner;	   /* generators: where items come from */
	const struct value *arg;   /* generators: what they were made with */
	const void *state, *scope; /* generators: more of the same */
	bool flag, done;
};

/* ---- the rendering ---- */

enum {
	RENDER_DEPTH = 1200,   /* evaluations inside evaluations, or lists inside lists */
	RENDER_RANGE = 100000, /* most items a range may have: the sandbox's own bound */
};

struct render {
	const char *name; /* of the template, for messages */
	int line;	  /* being evaluated */
	unsigned depth;
	uint64_t steps; /* left */
	struct arena arena;
	struct buf scratch; /* where strings are built; each user cuts it back to where it began */
	struct buf *out;    /* output, and captured blocks until they are cut off again */
	size_t out_max;	    /* out->len may not pass this */
	const json_t *context;		   /* borrowed */
	const struct value *context_names; /* the context's value for each name the template has */
	struct err *err;
};

/* Sets the error as "NAME: line N: text" and returns -code. */
int render_fail(struct render *r, int code, const char *fmt, ...) PRINTF(3, 4);

/* Takes `work` from the steps that are left (about one a value touched, or 64 bytes of text). */
int render_charge(struct render *r, size_t work) MUST_CHECK;
int render_charge_bytes(struct render *r, size_t bytes) MUST_CHECK;

/* One level deeper, counted until render_leave. */
int render_enter(struct render *r) MUST_CHECK;
void render_leave(struct render *r);

/* Zeroed memory, *new* in the arena: NULL when the error is set (E2BIG or ENOMEM). */
void *render_alloc(struct render *r, size_t n, size_t size) MUST_CHECK;

/* Building a string: start = text_begin(r); buf_append(&r->scratch, ...); text_end(r, start, ret)
 * copies it out. Uses nest. */
size_t text_begin(struct render *r);
int text_end(struct render *r, size_t start, struct value *ret) MUST_CHECK;

/* ---- making values ---- */

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
	return (struct value){.type = V_STR, .s = s, .len = len};
}

struct value value_cstr(const char *s);
struct value value_json(const json_t *j);
int value_copy_str(struct render *r, const char *s, size_t len, struct value *ret) MUST_CHECK;
int value_undefined_name(struct render *r, const char *name, size_t len, struct value *ret);
int value_undefined_hint(struct render *r, const char *hint, struct value *ret);
int value_undefined_member(struct render *r, const struct value *owner, const struct value *key,
			   struct value *ret);
int value_undefined_unsafe(struct render *r, const struct value *owner, const char *name,
			   size_t len, struct value *ret);

/* A list or tuple of n items, all V_MISSING until filled; list_push makes one longer. */
int value_new_list(struct render *r, enum value_type type, size_t n, struct value *ret) MUST_CHECK;
int list_push(struct render *r, struct list *l, const struct value *v) MUST_CHECK;
int value_new_dict(struct render *r, enum value_type type, struct value *ret) MUST_CHECK;
int value_new_pair(struct render *r, struct value a, struct value b, struct value *ret) MUST_CHECK;

/* ---- what Python can ask any value ---- */

const char *value_type_name(const struct value *v);
bool value_truth(const struct value *v);
bool value_is_number(const struct value *v); /* int, float, bool */

/* The integer that an int or bool is: the index protocol. */
bool value_index(const struct value *v, int64_t *ret);
double value_number(const struct value *v); /* of an int, float or bool */

/* len(); -1 for what has none. */
int64_t value_len(const struct value *v);

bool value_same(const struct value *a, const struct value *b); /* Python's `is` */
int value_equal(struct render *r, const struct value *a, const struct value *b,
		bool *ret) MUST_CHECK;

/* *ret is -1, 0 or 1, or 2 when neither is smaller nor are they equal (a NaN). An error for what
 * Python cannot order; `sign` names the operator in it. */
int value_compare(struct render *r, const struct value *a, const struct value *b, const char *sign,
		  int *ret) MUST_CHECK;
int value_contains(struct render *r, const struct value *in, const struct value *item,
		   bool *ret) MUST_CHECK;

/* Whether a value may be a dict's key; if so its hash. */
int value_hash(struct render *r, const struct value *v, uint64_t *ret) MUST_CHECK;

/* Raises the error that an undefined value stands for. */
int value_fail_undefined(struct render *r, const struct value *v);

/* ---- sequences and dicts ---- */

/* Item i < value_len(v) of a list, tuple or range. */
struct value value_item(const struct value *v, size_t i);

/* True and the next entry, in insertion order; begin with a zeroed cursor. */
bool dict_next(const struct value *dict, struct dict_cursor *c, struct value *key,
	       struct value *value);

/* 1 and the value, 0 when the key is not there; an error when it cannot be a key. */
int dict_find(struct render *r, const struct value *dict, const struct value *key,
	      struct value *ret) MUST_CHECK;
int dict_set(struct render *r, struct dict *d, const struct value *key,
	     const struct value *value) MUST_CHECK;

/* obj[start:stop:step], each V_NONE or an index. */
int value_slice(struct render *r, const struct value *v, const struct value bound[3],
		struct value *ret) MUST_CHECK;

/* obj[index] for a str, list, tuple or range: 1, 0 when out of range. */
int value_at(struct render *r, const struct value *v, int64_t index, struct value *ret) MUST_CHECK;

/* iter(v): 1, or 0 when v cannot be iterated; value_iter makes that an error. */
int value_try_iter(struct render *r, const struct value *v, struct iter **ret) MUST_CHECK;
int value_iter(struct render *r, const struct value *v, struct iter **ret) MUST_CHECK;
int iter_next(struct render *r, struct iter *it, struct value *ret) MUST_CHECK;

/* reversed(v): 1, or 0 when v cannot be walked backwards. */
int value_try_reversed(struct render *r, const struct value *v, struct iter **ret) MUST_CHECK;

/* list(v) */
int value_to_list(struct render *r, const struct value *v, struct value *ret) MUST_CHECK;

/* sorted(): numbers of the n keys in their order, stable. */
int value_sort(struct render *r, const struct value *keys, size_t n, bool reverse,
	       size_t **ret) MUST_CHECK;

/* ---- text of values ---- */

/* Appends str(v) or repr(v) to the scratch buffer or any other. */
int value_write_str(struct render *r, struct buf *b, const struct value *v) MUST_CHECK;
int value_write_repr(struct render *r, struct buf *b, const struct value *v) MUST_CHECK;
int value_to_str(struct render *r, const struct value *v, struct value *ret) MUST_CHECK;

/* repr(float): the shortest decimals that give the same double. */
enum { FLOAT_REPR_MAX = 40 };
void float_repr(double f, char out[FLOAT_REPR_MAX]);

/* json.dumps */
struct json_style {
	bool ensure_ascii, sort_keys, pretty;
	struct value indent;	/* when pretty: the text put before a line, once a level */
	struct value item, key; /* separators: ", " and ": " */
};

int value_write_json(struct render *r, struct buf *b, const struct value *v,
		     const struct json_style *style) MUST_CHECK;

/* int(text, base) and float(text). */
enum parse_int { PARSE_INT_OK, PARSE_INT_BAD, PARSE_INT_BIG };
enum parse_int text_to_int(const char *s, size_t n, int64_t base, int64_t *ret);
bool text_to_float(const char *s, size_t n, double *ret);

#endif
