/*
 * The paths of the API: which methods they have, who answers them.
 */
#ifndef DAEMON_ENDPOINTS_ROUTES_H
#define DAEMON_ENDPOINTS_ROUTES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "daemon/request/call.h"

/* A path is answered by `get` at once, or it makes a call: of a POST's body, of a POST whose body
 * does not matter (`bodiless`), or of a GET (`fetch`). */
struct route {
	const char *path;
	bool prefix; /* path is followed by a name */
	bool fetch, bodiless;
	bool guarded;	    /* not for pages of web sites: answers carry no CORS */
	bool worker;	    /* also of a prefill worker, which has no API */
	bool while_loading; /* answered before the model is there and while draining */
	const char *content_type;
	int (*get)(struct server *s, const char *rest, struct buf *out, struct err *e);
	enum call_kind call; /* when get is NULL */
};

/* The route of a path and what follows its prefix; NULL: there is none. */
const struct route *routes_find(const char *path, const char **ret_rest);

/* Whether a call is made of the body. */
bool routes_has_body(const struct route *r);

/* "GET, HEAD, OPTIONS": for Allow. */
const char *routes_methods(const struct route *r);
bool routes_allow(const struct route *r, const char *method);

#endif
