/* Decides whether a client may send its request: by the host that the request names, by the web page that sends it, and
 * by the client's key. */
#pragma once

#include "daemon/http/exchange.h"

/* To be called when the headers have arrived and x->endpoint was looked up, also for OPTIONS. 0, or the negative code
 * of a problem with a sentence for the client. Sets x->owner in either case. */
int guard_check(struct MHD_Connection *mc, struct exchange *x, const char *method,
		struct err *e) MUST_CHECK ON(role_http);
