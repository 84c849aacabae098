/* Members of a request's JSON by name, with the checks and sentences that all of them share.
 *
 * `where` is the path of the object, "" for the body itself or "messages[3]."; path and name together are the `param`
 * of an error. null counts as absent. A getter whose member is absent returns 0 and leaves *ret unchanged, so the
 * caller puts the default there first. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* Parses JSON text to an object, new. Bounded: depth and number of values are checked before anything is allocated.
 * -EINVAL: the sentence has line and column; -ENOMEM. */
int fields_load(const char *body, size_t len, json_t **ret, struct err *e) MUST_CHECK;

/* json_loadb, except that a whole number beyond 64 bits becomes a real one, as in JavaScript: JSON schemas of tools
 * have "maximum": 18446744073709551615. New; NULL: *error (may be NULL) says why. */
json_t *fields_parse(const char *text, size_t len, size_t flags, json_error_t *error);

/* Checks the same bounds for JSON inside a string. 0: it may be parsed. */
int fields_check_bounds(const char *text, size_t len, struct err *e) MUST_CHECK;

/* Writes a path such as "messages[3].content[0]"; one that is too long for a param is cut. */
void field_path(char out[ERR_PARAM_MAX], const char *fmt, ...) PRINTF(2, 3);

/* The member, borrowed; NULL: absent or null. */
json_t *field_get(const json_t *object, const char *name);

/* "NAME is SEEN, but must be WANT" or, with seen NULL, "NAME is missing: it must be WANT". Returns
 * -EINVAL. */
int field_wrong(struct err *e, const char *where, const char *name, const json_t *seen,
		const char *want);

int field_bool(const json_t *object, const char *where, const char *name, bool *ret,
	       struct err *e) MUST_CHECK;

/* A whole number (16.0 is one) in min..max. */
int field_int(const json_t *object, const char *where, const char *name, int64_t min, int64_t max,
	      int64_t *ret, struct err *e) MUST_CHECK;
int field_number(const json_t *object, const char *where, const char *name, double min, double max,
		 double *ret, struct err *e) MUST_CHECK;

/* *ret is the string itself (json_string_value, json_string_length), borrowed. */
int field_string(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e) MUST_CHECK;

/* A list of token ids, each below `vocab`, at most `max` of them, copied into the arena. */
int field_ids(const json_t *array, const char *path, uint32_t vocab, size_t max,
	      struct arena *arena, const int32_t **ret, size_t *ret_n, struct err *e) MUST_CHECK;
