/* Reads members of a request's JSON by name. All members of a type are checked alike.
 *
 * `where` is the path of the object, "" for the body itself or "messages[3]."; `where` and `name` together are the
 * `param` of an error. null counts as absent. If the member is absent, field_bool, field_int, field_number, field_string
 * and field_word return 0 and leave *ret unchanged, so the caller sets *ret to the default first. Otherwise they return
 * 0 or -EINVAL. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/macros.h"
#include "base/pace.h"

/* A local json_t * declared with CLEANUP_JSON is released when its scope ends. It may be NULL. */
static inline void field_cleanup(json_t **v)
{
	json_decref(*v);
}
#define CLEANUP_JSON CLEANUP(field_cleanup)

/* Parses JSON text to an object, new. Depth and number of values are bounded and checked before anything is allocated.
 * -EINVAL: the text is empty, is beyond the bounds, is no JSON (the sentence has line and column) or is no object;
 * -ECANCELED: pace_gives_up (pace NULL: never); -ENOMEM. */
int fields_load(const char *body, size_t len, const struct pace *pace, json_t **ret,
		struct err *e) MUST_CHECK;

/* Like json_loadb, except that a whole number beyond int64_t becomes a real number, as in JavaScript: JSON schemas of
 * tools have "maximum": 18446744073709551615. New; NULL: *error says why. A reason may also be pace_gives_up (pace
 * NULL: never). An empty text of *error means that memory ran out. `error` may be NULL. */
json_t *fields_parse(const char *text, size_t len, size_t flags, const struct pace *pace,
		     json_error_t *error);

/* The same of JSON that a model wrote: a number beyond double, such as 1E+400, becomes the largest one, which JSON can
 * say, unlike infinity. */
json_t *fields_parse_written(const char *text, size_t len, size_t flags);

/* Returns whether a parameter's value has no effect: null, false, 0, "", [] or {}. */
bool field_asks_nothing(const json_t *v);

/* Returns whether a value is the string `text`. */
bool field_is(const json_t *v, const char *text);

/* Returns whether a value is one of some words, which end with NULL. */
bool field_is_one_of(const json_t *v, const char *const *words);

/* A member that would change the answer and is not supported. */
struct refused_field {
	/* why: the rest of the error's sentence; x-refused of docs/openapi.json has the same one */
	const char *name, *why;
};

/* Refuses the member `name` of `where`. -PROBLEM_UNSUPPORTED. */
int field_refuse(struct err *e, const char *where, const struct refused_field *field) MUST_CHECK;

/* Refuses the first of n members that is there and asks for something. -PROBLEM_UNSUPPORTED. */
int fields_refuse(const json_t *object, const char *where, const struct refused_field *fields,
		  size_t n, struct err *e) MUST_CHECK;

/* The most values that the JSON of a body may have: objects, arrays, and the values in them. The JSON texts of all
 * arguments of tool calls together may have as many again. */
enum { FIELDS_VALUES_MAX = 500000 };

/* Checks JSON text against the bounds on depth and number of values, and takes the number of its values from *values.
 * fields_load does this for the body; JSON text inside a string has to be checked before fields_parse. `e` may be NULL.
 * 0: the text may be parsed. -EINVAL: it is nested too deeply, or has more values than *values. -ECANCELED:
 * pace_gives_up (pace NULL: never). After an error *values is as before. */
int fields_check_bounds(const char *text, size_t len, const struct pace *pace, size_t *values,
			struct err *e) MUST_CHECK;

/* Writes a path such as "messages[3].content[0]"; a path that is too long for a param is cut. */
void field_path(char out[ERR_PARAM_MAX], const char *fmt, ...) PRINTF(2, 3);

/* Returns the member, borrowed; NULL: absent or null. */
json_t *field_get(const json_t *object, const char *name);

/* Copies those of n members that are there and not null. */
int fields_copy(const json_t *from, json_t *to, const char *const *names, size_t n,
		struct err *e) MUST_CHECK;

/* Sets a member to `value`, and takes over the reference to it. If `value` is NULL, its allocation has failed:
 * -ENOMEM. */
int field_set_new(json_t *object, const char *name, json_t *value, struct err *e) MUST_CHECK;

/* Fills *e with "NAME is SEEN, but must be WANT" or, with seen NULL, "NAME is missing: it must be WANT", where NAME is
 * the member's path. Returns -EINVAL. */
int field_wrong(struct err *e, const char *where, const char *name, const json_t *seen,
		const char *want);

int field_bool(const json_t *object, const char *where, const char *name, bool *ret,
	       struct err *e) MUST_CHECK;

/* field_int reads a whole number (16.0 is one), field_number any number, from min to max. */
int field_int(const json_t *object, const char *where, const char *name, int64_t min, int64_t max,
	      int64_t *ret, struct err *e) MUST_CHECK;
int field_number(const json_t *object, const char *where, const char *name, double min, double max,
		 double *ret, struct err *e) MUST_CHECK;

/* *ret is the member itself, borrowed: json_string_value and json_string_length read it. */
int field_string(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e) MUST_CHECK;

/* The same of a member that has to be there; field_filled: and not be empty. */
int field_needed(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e) MUST_CHECK;
int field_filled(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e) MUST_CHECK;

/* Copies a string member under the name to_name, if it is there. */
int field_copy_string(const json_t *object, const char *where, const char *name, json_t *to,
		      const char *to_name, struct err *e) MUST_CHECK;

/* Reads a member that is one of some words, which end with NULL: *ret is its number among them. `want` names them. */
int field_word(const json_t *object, const char *where, const char *name, const char *const *words,
	       const char *want, size_t *ret, struct err *e) MUST_CHECK;

/* Appends a list of at most `max` token ids, each below `vocab`. `path` is the list's own path. -EINVAL; -ENOMEM.
 * After an error some ids may have been appended. */
int field_ids(const json_t *array, const char *path, uint32_t vocab, size_t max, struct ids *ret,
	      struct err *e) MUST_CHECK;
