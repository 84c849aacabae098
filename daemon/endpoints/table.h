/*
 * All endpoints of the API.
 */
#pragma once

#include "daemon/request/endpoint.h"

/* Returns the endpoint of a path, and in *ret_rest the rest of `path` behind endpoint.path. NULL: there is none. The
 * "/v1" of a path may be left out. */
const struct endpoint *endpoints_find(const char *path, const char **ret_rest);
