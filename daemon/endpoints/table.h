/*
 * All endpoints of the API.
 */
#pragma once

#include "daemon/request/endpoint.h"

/* The endpoint of a path; *rest is the part of the path behind the endpoint's own. NULL: there is none. */
const struct endpoint *endpoints_find(const char *path, const char **ret_rest);
