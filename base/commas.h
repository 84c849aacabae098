/* Lists that are one text with commas between their parts, such as "a,b" of an option. A part may be empty: "" has one
 * part, "a," has two. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Walks over a list from its first part to its last: *list points into the text, and is NULL behind the last part.
 * *ret, *len: the next part, borrowed and without its comma. False: there are no more parts. */
static inline bool commas_next(const char **list, const char **ret, size_t *len)
{
	const char *at = *list;

	if (!at)
		return false;
	*ret = at;
	*len = strcspn(at, ",");
	*list = at[*len] ? at + *len + 1 : NULL;
	return true;
}
