/* The header Host of requests to a loopback address. The owner of a web site can let the site's name lead to 127.0.0.1
 * (DNS rebinding). A browser on this machine that shows a page of this site then takes the server here for a part of
 * the site, and hands the server's answers to the page. Only the header Host still has the site's name. */
#pragma once

#include <stdbool.h>

/* Returns whether the header's value, "NAME" or "NAME:PORT", has a name that is allowed on loopback: localhost, a
 * loopback address, or one in `allowed`. allowed: names with commas between them, "*" for every name; NULL: none. */
bool host_is_allowed(const char *value, const char *allowed);
