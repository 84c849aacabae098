/*
 * All endpoints of the API.
 */
#pragma once

#include "daemon/request/endpoint.h"

/* Returns the endpoint of a path, and in *ret_rest the rest of `path` behind the endpoint's own path. NULL: there is
 * none. An endpoint whose path begins with "/v1" is also found without these characters. */
const struct endpoint *endpoints_find(const char *path, const char **ret_rest);

/* Returns the dialect of the error for a path that is no endpoint's: Ollama's API has the paths below /api/, Anthropic's
 * those below /v1/messages/. */
const struct dialect *endpoints_dialect(const char *path);
