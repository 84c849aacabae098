/* The header Host of requests to a loopback address. The owner of a web site can let the site's name lead to 127.0.0.1
 * (DNS rebinding). A browser on this machine that shows a page of this site then takes the server here for a part of
 * the site, and hands the server's answers to the page. Only the header Host still has the site's name. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Returns whether the header's value, or the host in a request's target, is "NAME" or "NAME:PORT" with a name and a
 * port of digits, without a user ("user@NAME"). */
bool host_is_valid(const char *value);

/* Returns whether such a value has a name that is allowed on loopback: localhost, a loopback address, or one in
 * `allowed`. allowed: names with commas between them, "*" for every name; NULL: none. */
bool host_is_allowed(const char *value, const char *allowed);

/* Checks such a list. -EINVAL with a sentence: it is empty, or it has an empty name, which would be that of a request
 * whose Host is empty, or one that no request can have, such as one with a port. An IPv6 address has brackets. */
int host_list_check(const char *allowed, struct err *e) MUST_CHECK;
