/* Words in JSON from outside: the value of a type, a role, a choice, a name. A string of JSON may have a NUL
 * ("\u0000"), at which a text of C ends, so "auto\u0000x" must not be compared as if it were "auto". */
#pragma once

#include <jansson.h>
#include <string.h>

/* Returns the text of a string without NUL, borrowed; NULL: the value is another one, or `v` is NULL. */
static inline const char *word_of(const json_t *v)
{
	const char *text = json_string_value(v);

	return text && strlen(text) == json_string_length(v) ? text : NULL;
}
