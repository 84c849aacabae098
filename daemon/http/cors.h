/* Which pages of web sites may read answers: the list of --cors-origin. A page has an *origin*, SCHEME://HOST or
 * SCHEME://HOST:PORT, which the browser sends in the header Origin. The browser lets the page read an answer only if
 * the answer's header Access-Control-Allow-Origin has that origin or "*" (the Fetch standard, section 3.3). */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Checks a list: "*", "none", or origins with commas between. -EINVAL with a sentence. */
int cors_check(const char *list, struct err *e) MUST_CHECK;

/* Returns whether every page may read answers. list NULL: true. */
bool cors_is_open(const char *list);

/* Returns whether the list names the origin. False for origin NULL, and if the list is "*" or "none". */
bool cors_names(const char *list, const char *origin);
