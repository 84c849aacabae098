/*
 * All endpoints of the API.
 */
#pragma once

#include "daemon/request/endpoint.h"

/* The endpoint of a path; *ret_rest is the rest of `path`, behind endpoint.path. NULL: there is none. */
const struct endpoint *endpoints_find(const char *path, const char **ret_rest);
